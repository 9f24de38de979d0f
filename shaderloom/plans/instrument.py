"""Observe every tensor that a plan's kernels write, without changing their behaviour.

:func:`observed` inserts a copy after each observed call: the plan keeps its kernels, its memory and its in-place
sharing, and has more outputs.  :func:`observe` runs such plans and yields the tensors in logical order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.plan.dimension import evaluate
from ..runtime.plan.dtypes import BY_NAME, interface_dtype
from ..runtime.plan.facts import TensorFacts
from ..runtime.plan.plan import Binding, Command, ComputePass, Kernel, KernelCall, Plan, Port, Range
from ..runtime.plan.record import record

if TYPE_CHECKING:
    from ..runtime.device.device import Device
    from ..runtime.execution.weight_pool import WeightPool

#: Largest size in bytes of the copies in one run; more tensors are observed in several runs
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
    (64, 1, 1),
    (Binding("x", "read", "u32"), Binding("y", "read_write", "u32")),
)


@record(slots=False)
class Observation:
    """The result of a call: ``array`` in logical order, and the facts of its tensor.

    ``further`` holds the same for the other results of a call that has several.
    """

    call: int
    tensor: TensorFacts
    array: np.ndarray
    further: tuple[tuple[TensorFacts, np.ndarray], ...] = ()

    @property
    def results(self) -> tuple[tuple[TensorFacts, np.ndarray], ...]:
        """All results, the main one first."""
        return ((self.tensor, self.array), *self.further)


def output_range(plan: Plan, call: int) -> Range:
    """Return the range of a call's main result."""
    return plan.calls[call].ranges[len(plan.facts.calls[call].operands) - 1]


def writer_of(plan: Plan, output: str) -> int | None:
    """Return the call that writes an output of the plan; None if no call does: it is a constant or a copy."""
    written = f"output:{output}"
    for number in reversed(range(len(plan.calls))):
        if any(item.buffer == written for item in _output_ranges(plan, number)):
            return number
    return None


def _output_ranges(plan: Plan, call: int) -> list[Range]:
    """Return the ranges of all results of a call, the main one first."""
    facts, ranges = plan.facts.calls[call], plan.calls[call].ranges
    return [output_range(plan, call), *(ranges[facts.operands.index(tensor)] for tensor in facts.also)]


def _names(plan: Plan, call: int) -> list[str]:
    """Return the outputs of :func:`observed` that hold the results of a call."""
    count = len(plan.facts.calls[call].writes)
    return [f"call {call}", *(f"call {call}, result {number}" for number in range(1, count))]


def copy_kernel() -> Kernel:
    """Return the kernel of :func:`copy_call`; a plan with such calls must hold it."""
    return _COPY_KERNEL


def copy_call(source: Range, output: str) -> KernelCall:
    """Return a call that copies a range, word by word, to the start of an output."""
    grid = (["min", _COPY_GROUPS, ["//", ["+", source.size, 255], 256]], 1, 1)
    return KernelCall(_COPY_KERNEL.key, (source, Range(f"output:{output}", 0, source.size)), grid, (), "copy")


def first_commands(plan: Plan, count: int) -> tuple[Command, ...]:
    """Return the commands of a plan's first ``count`` calls."""
    commands: list[Command] = []
    for command in plan.commands:
        calls = command.calls[:count]
        if calls:
            commands.append(replace(command, calls=calls))
        count -= len(calls)
    return tuple(commands)


def observed(plan: Plan, calls: Sequence[int]) -> Plan:
    """Return ``plan`` up to the last of ``calls``, with the results of each of them as outputs ``call N`` and so on.

    Of repeated calls those are the results after the last iteration.
    """
    wanted = set(calls)
    commands: list[Command] = []
    outputs = []
    number = 0
    for command in first_commands(plan, max(wanted, default=-1) + 1):
        listed: list[KernelCall] = []
        copies: list[KernelCall] = []
        for call in command.calls:
            listed.append(call)
            if number in wanted:
                for written, name in zip(_output_ranges(plan, number), _names(plan, number), strict=True):
                    copies.append(copy_call(written, name))
                    outputs.append(Port(name, "uint32", (["//", written.size, 4],)))
            if isinstance(command, ComputePass):
                listed, copies = [*listed, *copies], []
            number += 1
        commands += [replace(command, calls=tuple(listed)), *([ComputePass(tuple(copies))] if copies else [])]
    return replace(
        plan,
        key="",
        kernels=(*plan.kernels, _COPY_KERNEL),
        commands=tuple(commands),
        outputs=(*plan.outputs, *outputs),
    )


def observe(
    device: Device,
    plan: Plan,
    pool: WeightPool,
    feeds: Mapping[str, np.ndarray],
    calls: Sequence[int],
) -> Iterator[Observation]:
    """Run the plan and yield the results of each of ``calls``, in order; memory is poisoned before each run."""
    from ..runtime.execution.executor import Executor
    from .profiling import symbol_values

    symbols = symbol_values(plan, feeds)
    for part in _parts(plan, calls, symbols):
        with Executor(device, observed(plan, part), pool, poison=True) as executor:
            results = executor.run(feeds, [name for number in part for name in _names(plan, number)])
        for number in part:
            rows = plan.facts.results(number)
            arrays = [
                decode(results.pop(name), row, symbols) for name, row in zip(_names(plan, number), rows, strict=True)
            ]
            yield Observation(number, rows[0], arrays[0], tuple(zip(rows[1:], arrays[1:])))


def _parts(plan: Plan, calls: Sequence[int], symbols: Mapping[str, int]) -> Iterator[list[int]]:
    """Yield groups of calls whose copies fit into one run; calls with an empty grid write nothing."""
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


def decode(words: np.ndarray, tensor: TensorFacts, symbols: Mapping[str, int]) -> np.ndarray:
    """Return the logical elements of a tensor from its words in memory."""
    shape = [evaluate(size, symbols) for size in tensor.shape]
    layout = tensor.layout
    blocks = dict(layout.blocks)
    stored = list(shape)
    for axis, multiple in [*layout.padding, *layout.blocks]:
        stored[axis] = -(-stored[axis] // multiple) * multiple
    physical = [stored[axis] // blocks.get(axis, 1) for axis in layout.order] + [size for _, size in layout.blocks]
    dtype = interface_dtype(BY_NAME[tensor.dtype])
    count = int(np.prod(physical, dtype=np.int64))
    elements = np.ascontiguousarray(words).view(np.uint8)[: count * dtype.itemsize].view(dtype).reshape(physical)
    place = {axis: position for position, axis in enumerate(layout.order)}
    block_place = {axis: len(layout.order) + number for number, (axis, _) in enumerate(layout.blocks)}
    order: list[int] = []
    for axis in range(len(shape)):
        order.append(place[axis])
        if axis in block_place:
            order.append(block_place[axis])
    logical = elements.transpose(order).reshape(stored)
    return np.array(logical[tuple(slice(0, size) for size in shape)], order="C")
