"""Look at every tensor that a plan's kernels write, without changing what they do.

:func:`observed` puts a copy after each call that is looked at: the plan keeps its kernels, its memory and its in-place
sharing, and has more outputs.  :func:`observe` runs such plans and gives the tensors in logical order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .runtime.dtypes import BY_NAME, numpy_dtype
from .runtime.plan import Binding, Kernel, KernelCall, Plan, Port, Range, Stage, evaluate

if TYPE_CHECKING:
    from .runtime.device import Device
    from .runtime.loader import WeightPool

#: Bytes that the copies of one run may take; more tensors are looked at in several runs
COPIED_BYTES = 256 << 20

_COPY = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(
    @builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>
) {
    for (var i = id.x; i < arrayLength(&x); i += groups.x * 64u) { y[i] = x[i]; }
}
"""
_COPY_GROUPS = 4096
_COPY_KERNEL = Kernel(
    hashlib.sha256(_COPY.encode()).hexdigest(),
    "copy",
    _COPY,
    "main",
    (64, 1, 1),
    (Binding("x", "read", "u32"), Binding("y", "read_write", "u32")),
)


@dataclass(frozen=True)
class Observation:
    """What a call wrote: ``array`` in logical order, and the row of ``Plan.report["tensors"]`` that describes it."""

    call: int
    tensor: Mapping[str, Any]
    array: np.ndarray


def operands_of(record: Mapping[str, Any]) -> list[int]:
    """Numbers of the tensors that a call reads, the one that its result overwrites included."""
    overwritten, further = record["in_place"], record.get("also", ())
    read = [operand for operand in record["operands"][:-1] if operand not in further]
    return [*read, *([] if overwritten is None else [overwritten])]


def results_of(record: Mapping[str, Any]) -> list[int]:
    """Numbers of the tensors that a call writes, the main one first."""
    return [record["operands"][-1], *record.get("also", ())]


def writers_of(records: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The call that writes each tensor."""
    return {tensor: number for number, record in enumerate(records) for tensor in results_of(record)}


def output_range(plan: Plan, call: int) -> Range:
    """The range of a call's main result."""
    record = plan.report["call_records"][call]
    return plan.calls[call].ranges[len(record["operands"]) - 1]


def output_tensor(plan: Plan, call: int) -> dict[str, Any]:
    """The row of a call's main result."""
    return plan.report["tensors"][plan.report["call_records"][call]["operands"][-1]]


def copy_kernel() -> Kernel:
    """The kernel of :func:`copy_call`; a plan with such calls must hold it."""
    return _COPY_KERNEL


def copy_call(source: Range, output: str) -> KernelCall:
    """A call that copies a range, word by word, to the start of an output."""
    grid = (["min", _COPY_GROUPS, ["//", ["+", source.size, 255], 256]], 1, 1)
    return KernelCall(_COPY_KERNEL.key, (source, Range(f"output:{output}", 0, source.size)), grid, (), "copy")


def observed(plan: Plan, calls: Sequence[int]) -> Plan:
    """``plan`` up to the last of ``calls``, with the words that each of them writes as an output ``call N``."""
    wanted = set(calls)
    listed: list[KernelCall] = []
    outputs = []
    for number, call in enumerate(plan.calls[: max(wanted, default=-1) + 1]):
        listed.append(call)
        if number not in wanted:
            continue
        written, name = output_range(plan, number), f"call {number}"
        listed.append(copy_call(written, name))
        outputs.append(Port(name, "uint32", (["//", written.size, 4],)))
    return replace(
        plan,
        key="",
        kernels=(*plan.kernels, _COPY_KERNEL),
        stages=(Stage(tuple(listed)),),
        outputs=(*plan.outputs, *outputs),
    )


def observe(
    device: Device,
    plan: Plan,
    pool: WeightPool,
    feeds: Mapping[str, np.ndarray],
    calls: Sequence[int],
) -> Iterator[Observation]:
    """Run the plan and give what each of ``calls`` wrote, in order; memory is poisoned before each run."""
    from .profiling import symbol_values
    from .runtime.executor import Executor

    symbols = symbol_values(plan, feeds)
    for part in _parts(plan, calls, symbols):
        with Executor(device, observed(plan, part), pool, poison=True) as executor:
            results = executor.run(feeds, [f"call {number}" for number in part])
        for number in part:
            row = output_tensor(plan, number)
            yield Observation(number, row, decode(results.pop(f"call {number}"), row, symbols))


def _parts(plan: Plan, calls: Sequence[int], symbols: Mapping[str, int]) -> Iterator[list[int]]:
    """The calls in runs whose copies fit; those that run with an empty grid have nothing to be copied."""
    part: list[int] = []
    total = 0
    for number in sorted(set(calls)):
        if 0 in (evaluate(size, symbols) for size in plan.calls[number].grid):
            continue
        size = evaluate(output_range(plan, number).size, symbols)
        if part and total + size > COPIED_BYTES:
            yield part
            part, total = [], 0
        part.append(number)
        total += size
    if part:
        yield part


def decode(words: np.ndarray, row: Mapping[str, Any], symbols: Mapping[str, int]) -> np.ndarray:
    """The logical elements of a tensor from its words in memory; ``row`` tells its dtype, shape and layout."""
    shape = [evaluate(size, symbols) for size in row["shape"]]
    layout = row["layout"]
    blocks = dict(map(tuple, layout["blocks"]))
    stored = list(shape)
    for axis, multiple in [*layout["padding"], *layout["blocks"]]:
        stored[axis] = -(-stored[axis] // multiple) * multiple
    physical = [stored[axis] // blocks.get(axis, 1) for axis in layout["order"]] + [
        size for _, size in layout["blocks"]
    ]
    dtype = numpy_dtype(BY_NAME[row["dtype"]])
    count = int(np.prod(physical, dtype=np.int64))
    elements = np.ascontiguousarray(words).view(np.uint8)[: count * dtype.itemsize].view(dtype).reshape(physical)
    place = {axis: position for position, axis in enumerate(layout["order"])}
    block_place = {axis: len(layout["order"]) + number for number, (axis, _) in enumerate(layout["blocks"])}
    order: list[int] = []
    for axis in range(len(shape)):
        order.append(place[axis])
        if axis in block_place:
            order.append(block_place[axis])
    logical = elements.transpose(order).reshape(stored)
    return np.ascontiguousarray(logical[tuple(slice(0, size) for size in shape)])
