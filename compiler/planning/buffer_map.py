"""The memory of a run's values: the buffer and the range of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...runtime.plan.dimension import evaluate
from ...runtime.plan.errors import DeviceLimitError, Origin
from ...runtime.plan.facts import TensorKind
from ...runtime.plan.plan import Range
from ..fusion import Fusion
from ..ir.graph import PortWindow, Value
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import serialise
from ..target import Target
from .arena_allocator import Allocation, LiveRange, OutputBuffer, allocate
from .kernel_table import GroupKernel
from .liveness import Liveness
from .sizes import stored_bytes
from .weight_transforms import Weights


class BufferMap:
    """The range of a buffer for each value that a kernel of the run binds."""

    def __init__(
        self,
        inputs: Sequence[Value],
        outputs: Mapping[Value, str],
        fusion: Fusion,
        liveness: Liveness,
        weights: Weights,
        windows: Mapping[str, PortWindow],
    ) -> None:
        """Take the graph's inputs, computed outputs with their names, and those that are windows of the model's;
        :meth:`place` must follow.
        """
        self._inputs = frozenset(inputs)
        self._windows = windows
        self._outputs = outputs
        self._fusion = fusion
        self._liveness = liveness
        self._weights = weights
        self._positions: dict[Value, int] = {}  #: of slots among the allocation's locations
        self._produced: list[Value] = []  #: slots that are outputs, in the order in which they are written first
        self.allocation = Allocation()

    def place(self, ranges: Mapping[Value, LiveRange], target: Target) -> None:
        """Allocate memory for the slots with these live ranges.

        Raises :class:`DeviceLimitError` for a slot that the device cannot bind.
        """
        slots = [slot for slot in ranges if slot not in self._outputs]
        for slot in slots:
            size = ix.bounds(stored_bytes(slot))[1]
            _check_size(slot, size, slot.producer.origin if slot.producer else None, target)
        self._positions = {slot: position for position, slot in enumerate(slots)}
        self._produced = [slot for slot in ranges if slot in self._outputs and self._outputs[slot] not in self._windows]
        self.allocation = allocate(
            [ranges[slot] for slot in slots],
            target.storage_alignment,
            [ranges[slot] for slot in self._produced],
            target.limit("max-buffer-size"),
        )

    def kind_of(self, value: Value) -> TensorKind:
        """Return what a value is to the plan."""
        if value in self._inputs:
            return TensorKind.INPUT
        if value.is_constant or self._fusion.materialised[value].constant:
            return TensorKind.WEIGHT
        return TensorKind.OUTPUT if self._liveness.slot_of(value) in self._outputs else TensorKind.ACTIVATION

    def range_of(self, value: Value) -> Range:
        """Return the range of a buffer that holds ``value``."""
        size = serialise(stored_bytes(value))
        kind, slot = self.kind_of(value), self._liveness.slot_of(value)
        if kind is TensorKind.INPUT:
            return self._port_range("input", value.name, value)
        if kind is TensorKind.WEIGHT:
            return Range(f"weight:{self._weights.key_of(value)}", 0, size)
        if kind is TensorKind.OUTPUT:
            return self._port_range("output", self._outputs[slot], value)
        buffer, offset = self.allocation.locations[self._positions[slot]]
        if isinstance(buffer, OutputBuffer):
            return Range(f"output:{self._outputs[self._produced[buffer.number]]}", offset, size)
        return Range(f"arena:{buffer.number}", offset, size)

    def _port_range(self, kind: str, name: str, value: Value) -> Range:
        """Return the range of an input or output of the graph: of the model's that has it as a window, or a whole."""
        size, window = serialise(stored_bytes(value)), self._windows.get(name)
        if window is None:
            return Range(f"{kind}:{name}", 0, size)
        # one without elements may lie behind the end of the whole: what is bound in its place is not read
        first = ix.multiply(ix.multiply(window.first, value.dtype.itemsize), ix.minimum(value.elements, 1))
        return Range(f"{kind}:{window.whole}", serialise(first), size)

    def check_bindings(self, kernel: GroupKernel, target: Target) -> None:
        """Raise :class:`DeviceLimitError` if the device cannot bind an operand, or the source of a weight among them.

        The origin is the first node of the group that reads or computes it.  Inputs and outputs of open size are taken
        at their smallest: a run has the last word on them.
        """
        nodes = kernel.group.nodes
        for value in kernel.built.operands:
            sizes = [ix.bounds(stored_bytes(value))[0]]
            if self.kind_of(value) is TensorKind.WEIGHT:
                weight = self._weights.weights[self._weights.key_of(value)]
                sizes += [evaluate(item.size, {}) for call in weight.calls for item in call.ranges]
            origins = [node.origin for node in nodes if value in node.inputs or value in node.outputs]
            _check_size(value, max(sizes), next(iter(origins), nodes[-1].origin), target)

    def bind_for_writing(self, kernel: GroupKernel) -> None:
        """Bind for writing what a call reads from a buffer that it writes: a buffer has one kind of use in it."""
        written, built = {self.range_of(value).buffer for value in kernel.group.outputs}, kernel.built
        operands = tuple(
            replace(operand, access="read_write")
            if self.kind_of(value) in (TensorKind.OUTPUT, TensorKind.ACTIVATION)
            and self.range_of(value).buffer in written
            else operand
            for operand, value in zip(built.spec.operands, built.operands, strict=True)
        )
        if operands != built.spec.operands:
            kernel.built = replace(built, spec=replace(built.spec, operands=operands))


def _check_size(value: Value, size: int, origin: Origin | None, target: Target) -> None:
    for name in ("max-storage-buffer-binding-size", "max-buffer-size"):
        limit = target.limit(name)
        if size > limit:
            raise DeviceLimitError(
                f"the tensor takes {size:,} bytes; the device's {name} is {limit:,}",
                tensor=value.name or repr(value),
                origin=origin,
            )
