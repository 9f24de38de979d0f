"""The range of what a kernel stores, which the kernel finds besides: a second result, with two numbers for each part.

A thread extends a range in registers by each number that it stores.  The threads of a workgroup join theirs in its
memory, and a part is what a workgroup stores; where threads share nothing it is what a thread stores.  So the number of
parts follows from the kernel, and is known once that is built (:mod:`.stored_ranges`).
"""

from __future__ import annotations

from dataclasses import replace

from ...runtime.plan.dtypes import FLOAT16, FLOAT32
from ..codegen.spec import BoundTensor, Hook, KernelSpec, RangeForm, Store, StoredRange
from ..ir.graph import Value
from ..kernels.draft import BuiltKernel
from ..kernels.ranges import RANGE_BYTES
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from ..target import Target

#: Parts at the most that every workgroup reads which quantises, and that one workgroup reads for all
_MOST_PARTS, _MOST_PARTS_OF_THREADS = 8192, 32768
#: Elements of a part, at least: storing and reading a part takes about as long as reading four elements
_LEAST_ELEMENTS = 16


def form_of(target: Target) -> RangeForm:
    """Return whether the threads of a workgroup join their ranges."""
    return RangeForm.WORKGROUP if target.uses_workgroup_memory else RangeForm.THREAD


def parts_of(spec: KernelSpec, target: Target) -> Dim:
    """Return the number of parts whose ranges a kernel would store."""
    groups = ix.product(list(spec.grid))
    return groups if form_of(target) is RangeForm.WORKGROUP else ix.multiply(groups, spec.threads)


def why_not(spec: KernelSpec, output: Value, target: Target) -> str | None:
    """Return why a kernel that stores ``output`` does not find its range; None if it can, and it pays."""
    if output.dtype not in (FLOAT32, FLOAT16):
        return f"the kernel stores {output.dtype}"
    if spec.iterations is not None:
        return "the kernel runs several times"
    if len(spec.operands) >= target.limit("max-storage-buffers-per-shader-stage"):
        return "the kernel would bind too many buffers"
    if spec.workgroup_bytes + RANGE_BYTES > target.limit("max-compute-workgroup-storage-size"):
        return "the kernel uses all of the workgroup memory"
    in_threads = form_of(target) is RangeForm.THREAD
    parts, elements = (ix.bounds(size)[1] for size in (parts_of(spec, target), output.elements))
    if parts > (_MOST_PARTS_OF_THREADS if in_threads else _MOST_PARTS) or parts * _LEAST_ELEMENTS > elements:
        return f"the kernel would store the ranges of {parts:,} parts"
    return None


def with_range(built: BuiltKernel, ends: Value, target: Target) -> BuiltKernel:
    """Return the kernel that stores the range of its result in ``ends`` as well."""
    spec, form = built.spec, form_of(target)
    place = ix.coordinate("place", ends.elements)
    store = Store("range", FLOAT32.name, place, ex.register("value", "f32"))
    hook = Hook("store_range", ("place",), 1, (("value", "f32"),), None, (store,))
    *others, result = spec.operands
    spec = replace(
        spec,
        operands=(*others, BoundTensor("range", "read_write", FLOAT32.name), result),
        hooks=(*spec.hooks, hook),
        workgroup_bytes=spec.workgroup_bytes + (RANGE_BYTES if form is RangeForm.WORKGROUP else 0),
        stored_range=StoredRange(form, built.operands[-1].elements),
    )
    return replace(built, spec=spec, operands=(*built.operands[:-1], ends, built.operands[-1]))
