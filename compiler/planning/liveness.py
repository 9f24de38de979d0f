"""Liveness of the values of a run: which share a slot, and during which calls a slot is in use."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ir.graph import Value
from ..kernels.groups import Group
from .arena_allocator import LiveRange
from .kernel_table import KernelTable
from .sizes import stored_bytes


class Liveness:
    """The slots of a run, each named by the value that is written there first."""

    def __init__(self, running: Sequence[Group]) -> None:
        """Give each value a slot of its own; ``running`` are the groups of the run in order."""
        self._running = running
        self._slot_of: dict[Value, Value] = {}  #: of values that live in the slot of another
        self._last_read = {value: group.index for group in running for value in group.reads}  #: by slot

    def slot_of(self, value: Value) -> Value:
        """Return the slot that holds ``value``."""
        return self._slot_of.get(value, value)

    def is_read_after(self, value: Value, group: Group) -> bool:
        """Return whether the slot that holds ``value`` is read after ``group``."""
        return self._last_read.get(self.slot_of(value), -1) > group.index

    def overwrite(self, operand: Value, result: Value) -> None:
        """Let ``result`` live in the slot of ``operand``."""
        slot = self._slot_of[result] = self.slot_of(operand)
        self._last_read[slot] = max(self._last_read.get(slot, -1), self._last_read.get(result, -1))

    def ranges(self, kernels: KernelTable, outputs: Collection[Value]) -> dict[Value, LiveRange]:
        """Return the live range of each slot, in the order of first writes; those of ``outputs`` last to the end."""
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        written: dict[Value, set[int]] = {}
        read: dict[Value, set[int]] = {}
        for call, group in enumerate(self._running):
            results = [self.slot_of(value) for value in group.outputs]
            for slot in results:
                first.setdefault(slot, call)
                last[slot] = call
                written.setdefault(slot, set()).add(call)
            for value in kernels[group.output].built.operands:
                slot = self.slot_of(value)
                if slot not in results and slot in first:
                    last[slot] = call
                    read.setdefault(slot, set()).add(call)
        end = len(self._running)
        return {
            slot: LiveRange(
                stored_bytes(slot),
                first[slot],
                end if slot in outputs else last[slot],
                frozenset(written[slot]),
                frozenset(read.get(slot, ())),
            )
            for slot in first
        }
