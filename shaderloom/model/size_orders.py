"""Orders of open sizes, where an output of a plan has the larger, or the smaller, of two.

The present cache of a decoder has as many rows as the past one, or as there are keys, whichever is more.  A plan for
all sizes of both cannot tell, and writes the cache anew; a plan for capacities that suffice extends it in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..runtime.plan.plan import Plan, Symbol
from ..runtime.plan.record import record

#: Name of a value, and one of its axes; for a compiled-in value one of its elements
ValueAxis = tuple[str, int]
#: A size: the name of a symbol, "" for none, and what is added to it
Term = tuple[str, int]


@record
class SymbolicSize:
    """A size equal to ``symbol`` plus ``offset``."""

    symbol: Symbol
    offset: int

    def __str__(self) -> str:
        return f"{self.symbol.name} + {self.offset}" if self.offset else self.symbol.name


@record
class SizeOrder:
    """``lesser`` plus ``offset`` is at most ``greater``, by the names of symbols."""

    lesser: str
    greater: str
    offset: int

    def holds(self, values: Mapping[str, int]) -> bool:
        return values[self.lesser] + self.offset <= values[self.greater]

    def __str__(self) -> str:
        return f"{self.lesser}{f' + {self.offset}' if self.offset else ''} at most {self.greater}"


def compared_sizes(plan: Plan) -> list[tuple[Term, Term]]:
    """Return the pairs of sizes whose order decides the shape of an output of ``plan``."""
    dims = (dim for port in plan.outputs for dim in port.shape)
    return list(dict.fromkeys(pair for dim in dims for pair in _compared(dim)))


def _compared(dim: Any) -> Iterator[tuple[Term, Term]]:
    if not isinstance(dim, (list, tuple)):
        return
    operator, *operands = dim
    terms = [term for term in map(_term, operands) if term is not None]
    if operator in ("min", "max") and len(terms) == len(operands) == 2:
        yield terms[0], terms[1]
    for operand in operands:
        yield from _compared(operand)


def _term(dim: Any) -> Term | None:
    match dim:
        case int():
            return "", dim
        case str():
            return dim, 0
        case ["+", int(offset), str(name)]:
            return name, offset
    return None


def ordered(
    sizes: Mapping[ValueAxis, SymbolicSize], values: Mapping[str, int], one: Term, other: Term
) -> tuple[Mapping[ValueAxis, SymbolicSize], SizeOrder | None]:
    """Return ``sizes`` with what makes the order of two terms that of ``values``, or an order to add for that.

    A symbol that is compared with a number gets a narrower range, and two that are equal become one.
    """
    symbols = {size.symbol.name: size.symbol for size in sizes.values()}
    if not {one[0], other[0]} <= {"", *symbols} or any(symbol.step > 1 for symbol in symbols.values()):
        return sizes, None
    (low_value, _, lesser, low_offset), (high_value, _, greater, high_offset) = sorted(
        (values.get(name, 0) + offset, not name, name, offset) for name, offset in (one, other)
    )
    difference = low_offset - high_offset
    if lesser and greater and lesser != greater and low_value < high_value:
        return sizes, SizeOrder(lesser, greater, difference)
    if not greater and lesser:
        symbol = symbols[lesser]
        return _replaced(sizes, lesser, replace(symbol, high=min(symbol.high, -difference)), 0), None
    if not lesser and greater:
        symbol = symbols[greater]
        return _replaced(sizes, greater, replace(symbol, low=max(symbol.low, difference)), 0), None
    large, small = symbols[greater], symbols[lesser]  # greater = lesser + difference
    low, high = max(large.low, small.low + difference), min(large.high, small.high + difference)
    merged = replace(large, low=low, high=high)
    return _replaced(_replaced(sizes, greater, merged, 0), lesser, merged, -difference), None


def _replaced(
    sizes: Mapping[ValueAxis, SymbolicSize], name: str, symbol: Symbol, offset: int
) -> Mapping[ValueAxis, SymbolicSize]:
    return {
        place: replace(size, symbol=symbol, offset=size.offset + offset) if size.symbol.name == name else size
        for place, size in sizes.items()
    }
