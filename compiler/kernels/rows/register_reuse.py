"""Reuse common subexpressions across the phases of a row program, held in registers.

Softmax reads each element three times and takes its exponential twice; a normalisation unpacks and adds its residual in
every phase.  Where the steps of a thread are written out, a value that varies along the row and that a later phase or
the store needs too is computed once for each step and held in a register, if it is worth one: loads, and functions
that cost more than arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....runtime.plan.record import record
from ...codegen.spec import Store
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic import substitution
from ...symbolic.expr import Expr
from ..results import Phase

#: Scalars of all reused values that a thread may hold
MOST_SCALARS = 128


@record
class ReusedValue:
    """``value`` is computed in phase ``phase``, for every step of a thread, into registers ``name``."""

    name: str
    phase: int
    value: Expr


@record
class RowProgram:
    """Phases and the store, in terms of the registers of the reused values."""

    phases: list[Phase]
    store: Store
    reused: tuple[ReusedValue, ...] = ()

    def computed_in(self, phase: int) -> tuple[ReusedValue, ...]:
        return tuple(reused for reused in self.reused if reused.phase == phase)

    def used(self, value: Expr) -> tuple[ReusedValue, ...]:
        """Return the reused registers that a value reads."""
        names = {node.payload for node in ex.walk(value) if node.op == "register"}
        return tuple(reused for reused in self.reused if reused.name in names)


def reuse_registers(phases: Sequence[Phase], store: Store, stores_row: bool, steps: int, lanes: int) -> RowProgram:
    """Keep what later phases compute again; a store of one element a row computes nothing for every step."""
    values = [phase.value for phase in phases] + ([] if stores_row else [store.value])
    chosen: list[ReusedValue] = []
    for number in range(len(phases)):
        later = {node for value in values[number + 1 :] for node in ex.walk(value)}
        registers = {reused.name for reused in chosen}
        for value in _outermost(values[number], later, registers):
            if (len(chosen) + 1) * steps * lanes > MOST_SCALARS:
                break
            reused = ReusedValue(f"kept_{len(chosen)}", number, value)
            chosen.append(reused)
            register = ex.register(reused.name, value.dtype)
            values[number:] = [_with_register(other, value, register) for other in values[number:]]
    changed = [replace(phase, value=value) for phase, value in zip(phases, values, strict=False)]
    return RowProgram(changed, store if stores_row else replace(store, value=values[-1]), tuple(chosen))


def _with_register(value: Expr, computed: Expr, register: Expr) -> Expr:
    return ex.fold(value, substitution.rebuild, {computed: register})


def _outermost(value: Expr, later: set[Expr], registers: set[str]) -> list[Expr]:
    """Return the largest parts of ``value`` that are needed later and worth a register."""
    outermost: dict[Expr, None] = {}
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        if node in later and _is_worth(node, registers):
            outermost[node] = None
            continue
        for argument in node.args[:1] if node.op == "guard" else node.args:  # what is guarded is not always computed
            if argument not in seen:
                seen.add(argument)
                stack.append(argument)
    return list(outermost)


def _is_worth(value: Expr, registers: set[str]) -> bool:
    """Return whether ``value`` varies along the row, and has a load or an expensive function."""
    nodes = ex.walk(value)
    loads = [node for node in nodes if node.op == "load"]
    varies = any(ix.variables(node.payload.position) & {"column"} for node in loads) or any(
        node.op == "register" and node.payload in registers for node in nodes
    )
    return varies and (bool(loads) or any(node.op in ex.EXPENSIVE for node in nodes))
