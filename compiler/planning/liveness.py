"""Liveness of the values of a run: which share a block of memory, and during which calls a block is in use."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ir.graph import Value
from ..kernels.groups import Group
from .arena_allocator import LiveRange
from .kernel_table import KernelTable
from .sizes import stored_bytes


class Liveness:
    """The blocks of memory of a run, each named by the value that is written there first."""

    def __init__(self, running: Sequence[Group]) -> None:
        """Give each value a block of its own; ``running`` are the groups of the run in order."""
        self._running = running
        self._block_of: dict[Value, Value] = {}  #: of values that live in the block of another
        self._last_read = {value: group.index for group in running for value in group.reads}  #: by block

    def block_of(self, value: Value) -> Value:
        """Return the block that holds ``value``."""
        return self._block_of.get(value, value)

    def is_read_after(self, value: Value, group: Group) -> bool:
        """Return whether the block that holds ``value`` is read after ``group``."""
        return self._last_read.get(self.block_of(value), -1) > group.index

    def overwrite(self, operand: Value, result: Value) -> None:
        """Let ``result`` live in the block of ``operand``."""
        block = self._block_of[result] = self.block_of(operand)
        self._last_read[block] = max(self._last_read.get(block, -1), self._last_read.get(result, -1))

    def ranges(self, kernels: KernelTable, outputs: Collection[Value]) -> dict[Value, LiveRange]:
        """Return the live range of each block, in the order of first writes; those of ``outputs`` last to the end."""
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        written: dict[Value, set[int]] = {}
        read: dict[Value, set[int]] = {}
        for call, group in enumerate(self._running):
            results = [self.block_of(value) for value in group.outputs]
            for block in results:
                first.setdefault(block, call)
                last[block] = call
                written.setdefault(block, set()).add(call)
            for value in kernels[group.output].built.operands:
                block = self.block_of(value)
                if block not in results and block in first:
                    last[block] = call
                    read.setdefault(block, set()).add(call)
        end = len(self._running)
        return {
            block: LiveRange(
                stored_bytes(block),
                first[block],
                end if block in outputs else last[block],
                frozenset(written[block]),
                frozenset(read.get(block, ())),
            )
            for block in first
        }
