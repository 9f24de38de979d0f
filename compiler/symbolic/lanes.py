"""Four neighbouring elements by one thread: the variable :data:`LANE` (0 to 3) tells them apart.

An access is *aligned* when its position is a multiple of four plus the lane: one vector load, or one store.
"""

from __future__ import annotations

from . import expr as ex
from . import polynomial as ix
from .polynomial import Dim

LANE = "lane"
LANES = 4


def lane_variable() -> Dim:
    return ix.variable(LANE, 0, LANES - 1)


def depends_on_lane(value: Dim) -> bool:
    """Return whether an index differs between lanes, directly or through a run-time value that it reads."""
    if LANE in ix.variables(value):
        return True
    for inner in ix.opaque_payloads(value):
        for node in ex.walk(inner):
            if node.op == "load":
                coordinates = node.payload.coordinates
            else:
                coordinates = (node.payload,) if node.op == "coordinate" else ()
            if any(LANE in ix.variables(axis) for axis in coordinates):
                return True
    return False


def split_lane(value: Dim) -> tuple[Dim | None, int]:
    """Split ``value`` into ``base + step * lane`` with a lane-independent base; (None, 0) if impossible."""
    if not isinstance(value, ix.Index):
        return value, 0
    step = 0
    rest: Dim = 0
    for monomial, coefficient in value.terms:
        if len(monomial) == 1 and monomial[0].kind == "var" and monomial[0].payload == LANE:
            step = coefficient
            continue
        term = ix.Index(((monomial, coefficient),)) if monomial else coefficient
        if depends_on_lane(term):
            return None, 0
        rest = ix.add(rest, term)
    return rest, step


def is_aligned(position: Dim) -> bool:
    """Return whether the four lanes access four neighbours that start at a multiple of four."""
    base, step = split_lane(position)
    return base is not None and step == 1 and is_multiple(base, LANES)


def is_multiple(value: Dim, divisor: int) -> bool:
    if not isinstance(value, ix.Index):
        return int(value) % divisor == 0
    return all(coefficient % divisor == 0 for _, coefficient in value.terms)
