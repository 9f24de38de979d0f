"""In-place reuse: results that take over the memory of an operand."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..fusion import Fusion
from ..ir.graph import Value
from ..kernels.groups import Group
from .kernel_table import GroupKernel, KernelTable
from .liveness import Liveness
from .sizes import stored_bytes


def share_in_place(
    running: Sequence[Group], kernels: KernelTable, fusion: Fusion, liveness: Liveness, outputs: Collection[Value]
) -> int:
    """Let results take over the memory of operands that die where every thread reads only what it overwrites.

    ``outputs`` keep memory of their own.  Return the number of results that take over memory.
    """
    shared = 0
    for group in running:
        kernel = kernels[group.output]
        operand = None if group.output in outputs else _overwritable(kernel, fusion, liveness, outputs)
        if operand is None:
            continue
        kernel.overwrites = operand
        kernel.built = kernel.built.in_place(operand)
        liveness.overwrite(operand, group.output)
        shared += 1
    return shared


def _overwritable(kernel: GroupKernel, fusion: Fusion, liveness: Liveness, outputs: Collection[Value]) -> Value | None:
    """Return an operand that dies with the group and that every thread reads only where it writes."""
    group, built = kernel.group, kernel.built
    output = group.output
    size = stored_bytes(output)
    for value in built.operands:
        source = fusion.materialised.get(value)
        if value is output or source is None or source.constant or value in outputs:
            continue
        if value.dtype.name != output.dtype.name or stored_bytes(value) != size:  # one binding has one element type
            continue
        if liveness.is_read_after(value, group):
            continue
        slot = liveness.slot_of(value)
        if any(liveness.slot_of(other) is slot and other is not value for other in built.operands):
            continue
        if built.reads_own_element_only(value):
            return value
    return None
