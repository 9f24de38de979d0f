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

from ..runtime.plan.dtypes import BY_NAME, interface_dtype
from ..runtime.plan.plan import Binding, Kernel, KernelCall, Plan, Port, Range, Stage, evaluate

if TYPE_CHECKING:
    from ..runtime.device.device import Device
    from ..runtime.execution.weight_pool import WeightPool

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
    """What a call wrote: ``array`` in logical order, and the row of ``Plan.report["tensors"]`` that describes it.

    ``further`` has the same of the other results of a call that has several.
    """

    call: int
    tensor: Mapping[str, Any]
    array: np.ndarray
    further: tuple[tuple[Mapping[str, Any], np.ndarray], ...] = ()

    @property
    def results(self) -> tuple[tuple[Mapping[str, Any], np.ndarray], ...]:
        """All results, the main one first."""
        return ((self.tensor, self.array), *self.further)


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


def output_tensors(plan: Plan, call: int) -> list[dict[str, Any]]:
    """The rows of all results of a call, the main one first."""
    return [plan.report["tensors"][tensor] for tensor in results_of(plan.report["call_records"][call])]


def writer_of(plan: Plan, output: str) -> int | None:
    """The call that writes an output of the plan; None if no call does: it is a constant or a copy."""
    written = f"output:{output}"
    for number in reversed(range(len(plan.calls))):
        if any(item.buffer == written for item in _output_ranges(plan, number)):
            return number
    return None


def _output_ranges(plan: Plan, call: int) -> list[Range]:
    """The ranges of all results of a call, the main one first."""
    record, ranges = plan.report["call_records"][call], plan.calls[call].ranges
    return [
        output_range(plan, call),
        *(ranges[record["operands"].index(tensor)] for tensor in record.get("also", ())),
    ]


def _names(plan: Plan, call: int) -> list[str]:
    """The outputs of :func:`observed` that hold the results of a call."""
    count = len(results_of(plan.report["call_records"][call]))
    return [f"call {call}", *(f"call {call}, result {number}" for number in range(1, count))]


def copy_kernel() -> Kernel:
    """The kernel of :func:`copy_call`; a plan with such calls must hold it."""
    return _COPY_KERNEL


def copy_call(source: Range, output: str) -> KernelCall:
    """A call that copies a range, word by word, to the start of an output."""
    grid = (["min", _COPY_GROUPS, ["//", ["+", source.size, 255], 256]], 1, 1)
    return KernelCall(_COPY_KERNEL.key, (source, Range(f"output:{output}", 0, source.size)), grid, (), "copy")


def observed(plan: Plan, calls: Sequence[int]) -> Plan:
    """``plan`` up to the last of ``calls``, with the words that each of them writes as outputs ``call N`` and so on."""
    wanted = set(calls)
    listed: list[KernelCall] = []
    outputs = []
    for number, call in enumerate(plan.calls[: max(wanted, default=-1) + 1]):
        listed.append(call)
        if number not in wanted:
            continue
        for written, name in zip(_output_ranges(plan, number), _names(plan, number), strict=True):
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
    from ..runtime.execution.executor import Executor
    from .profiling import symbol_values

    symbols = symbol_values(plan, feeds)
    for part in _parts(plan, calls, symbols):
        with Executor(device, observed(plan, part), pool, poison=True) as executor:
            results = executor.run(feeds, [name for number in part for name in _names(plan, number)])
        for number in part:
            rows = output_tensors(plan, number)
            arrays = [
                decode(results.pop(name), row, symbols) for name, row in zip(_names(plan, number), rows, strict=True)
            ]
            yield Observation(number, rows[0], arrays[0], tuple(zip(rows[1:], arrays[1:])))


def _parts(plan: Plan, calls: Sequence[int], symbols: Mapping[str, int]) -> Iterator[list[int]]:
    """The calls in runs whose copies fit; those that run with an empty grid have nothing to be copied."""
    part: list[int] = []
    total = 0
    for number in sorted(set(calls)):
        if 0 in (evaluate(size, symbols) for size in plan.calls[number].grid):
            continue
        size = sum(evaluate(written.size, symbols) for written in _output_ranges(plan, number))
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
    dtype = interface_dtype(BY_NAME[row["dtype"]])
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
    return np.array(logical[tuple(slice(0, size) for size in shape)], order="C")
