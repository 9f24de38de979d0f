"""Integer index arithmetic: dimensions, coordinates and buffer offsets.

A dimension, a coordinate or an offset is either a plain ``int`` or an :class:`Index`.  An ``Index`` is a polynomial
with integer coefficients over *atoms*: variables (loop coordinates, declared dynamic dimensions), floor divisions and
remainders, and opaque run-time integers (an element read from an indices tensor).  The normal form is unique up to the
atoms, so equality of two indices is object equality, and a constant is always a Python ``int``.

This module has every public name: the normal form is in :mod:`.terms`, sums, products and divisions in
:mod:`.arithmetic`; here are variables, comparisons, and rebuilding with other atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from .arithmetic import (
    Dim,
    Index,
    add,
    always_less,
    build,
    difference_bounds,
    divide_exactly,
    floordiv,
    modulo,
    multiply,
    of_atom,
)
from .clamps import extremum_atom
from .terms import (
    Atom,
    Undecidable,
    atoms,
    bounds,
    intern_atom,
    number,
    opaque_payloads,
    terms_of,
    text,
    variables,
)

__all__ = [
    "UNBOUNDED",
    "Atom",
    "Dim",
    "Index",
    "Undecidable",
    "add",
    "always_less",
    "assuming",
    "atoms",
    "between",
    "bounds",
    "ceildiv",
    "content",
    "coordinate",
    "divide",
    "equal",
    "evaluate",
    "floordiv",
    "less",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "number",
    "of_atom",
    "opaque",
    "opaque_payloads",
    "product",
    "round_up",
    "substitute",
    "text",
    "transform",
    "variable",
    "variables",
]

UNBOUNDED = 1 << 31  #: bounds never leave the range of a signed 32-bit integer: device indices are i32


def variable(name: str, low: int, high: int, text: str = "", below: Dim | None = None) -> Dim:
    """Create the variable ``name`` with inclusive bounds, shown as ``text``; a plain int if the bounds are equal.

    ``below`` is an upper bound that it does not reach, and that may be symbolic.
    """
    if low == high:
        return low
    return of_atom(intern_atom("var", (), name, low, high, text or name, below))


def coordinate(name: str, size: Dim) -> Dim:
    """Create the variable ``name`` that runs over an axis: ``0 <= name < size``, also where ``size`` is symbolic.

    Zero where the size is (at most) one; the coordinate of an empty axis has no meaning, and is never evaluated.
    """
    high = max(bounds(size)[1] - 1, 0)
    if high == 0:
        return 0
    return of_atom(intern_atom("var", (), name, 0, high, name, size))


def opaque(payload: Any, low: int, high: int, key: str) -> Dim:
    """Create a run-time integer defined by ``payload`` (a hashable value expression) whose text is ``key``."""
    return of_atom(intern_atom("opaque", (), payload, low, high, key))


# -- products and quotients ------------------------------------------------------------------------------------------


def product(values: tuple[Dim, ...] | list[Dim]) -> Dim:
    result: Dim = 1
    for value in values:
        plain = type(result) is int and type(value) is int  # by far the most
        result = result * value if plain else multiply(result, value)
    return result


def divide(value: Dim, divisor: Dim) -> Dim | None:
    """Return the polynomial quotient when ``value`` is a multiple of ``divisor`` for all variables, else None.

    Uses long division by leading terms; the divisor must not be zero.
    """
    if not isinstance(divisor, Index):
        if any(coefficient % divisor for _, coefficient in terms_of(value)):
            return None
        return build({monomial: coefficient // divisor for monomial, coefficient in terms_of(value)})
    leading_monomial, leading_coefficient = divisor.terms[-1]
    leading = Index(((leading_monomial, leading_coefficient),))
    quotient: Dim = 0
    rest = value
    # every step removes the leading term of the rest, or fails; each quotient term is of lower order than the last
    for _ in range(64):
        if not isinstance(rest, Index):
            return quotient if rest == 0 else None
        part = divide_exactly(Index((rest.terms[-1],)), leading)
        if part is None:
            return None
        quotient = add(quotient, part)
        rest = add(rest, multiply(multiply(part, divisor), -1))
    return None


def ceildiv(value: Dim, divisor: Dim) -> Dim:
    return floordiv(add(value, add(divisor, -1)), divisor)


def content(value: Dim) -> int:
    """Return the greatest number that divides all coefficients."""
    return math.gcd(*(coefficient for _, coefficient in terms_of(value)))


def round_up(value: Dim, multiple: int) -> Dim:
    return multiply(ceildiv(value, multiple), multiple)


# -- comparison ------------------------------------------------------------------------------------------------------


def minimum(left: Dim, right: Dim) -> Dim:
    if not isinstance(left, Index) and not isinstance(right, Index):
        return min(int(left), int(right))
    low, high = difference_bounds(left, right)
    if high <= 0:
        return left
    if low >= 0:
        return right
    return _extremum("min", left, right)


def maximum(left: Dim, right: Dim) -> Dim:
    if not isinstance(left, Index) and not isinstance(right, Index):
        return max(int(left), int(right))
    low, high = difference_bounds(left, right)
    if low >= 0:
        return left
    if high <= 0:
        return right
    return _extremum("max", left, right)


def _extremum(kind: str, left: Dim, right: Dim) -> Dim:
    return left if left == right else of_atom(extremum_atom(kind, left, right))


def between(start: int, stop: int, size: Dim) -> Dim:
    """Return how many of the rows from ``start`` up to ``stop`` there are where there are ``size`` in all.

    Rows of ``size`` and a number are written as rows of ``size`` are, so that both add up.
    """
    unit = math.gcd(start, stop, content(size))
    if not unit:
        return 0
    rows = floordiv(size, unit)
    fixed = dict(terms_of(rows)).get((), 0)
    first, last = start // unit - fixed, stop // unit - fixed
    return multiply(add(maximum(minimum(add(rows, -fixed), last), first), -first), unit)


#: A comparison, ``equal`` or ``less``, and its sides
Comparison = tuple[str, Dim, Dim]
#: The answers to comparisons that hold for all that is decided now, by the test and the difference of the sides
_assumed: ContextVar[Mapping[tuple[str, Dim], bool]] = ContextVar("assumed", default=MappingProxyType({}))


@contextmanager
def assuming(answers: Mapping[Comparison, bool]) -> Iterator[None]:
    """Let :func:`less` and :func:`equal` give these answers where the variables decide."""
    differences = {(test, add(left, multiply(right, -1))): answer for (test, left, right), answer in answers.items()}
    token = _assumed.set({**_assumed.get(), **differences})
    try:
        yield
    finally:
        _assumed.reset(token)


def _answer(test: str, left: Dim, right: Dim) -> bool:
    """Return what is assumed of a comparison; raise :class:`Undecidable` without that."""
    difference = add(left, multiply(right, -1))
    answer = _assumed.get().get((test, difference))
    if answer is None and test == "equal":
        answer = _assumed.get().get((test, multiply(difference, -1)))
    if answer is None:
        sign = "==" if test == "equal" else "<"
        raise Undecidable(f"{text(left)} {sign} {text(right)}", (test, left, right))
    return answer


def less(left: Dim, right: Dim) -> bool:
    """Decide ``left < right``; raises :class:`Undecidable` when it depends on the variables."""
    low, high = difference_bounds(left, right)
    if high < 0:
        return True
    if low >= 0:
        return False
    difference = add(left, multiply(right, -1))
    if any(difference_bounds(each, 0)[0] >= 0 for each in _bounding(difference, above=False)):
        return False
    if any(difference_bounds(each, 0)[1] < 0 for each in _bounding(difference, above=True)):
        return True
    return _answer("less", left, right)


def _bounding(value: Dim, *, above: bool) -> Iterator[Dim]:
    """Yield indices that are never less than ``value`` (``above``), or never more.

    They have an operand of an extremum in its place.
    """
    for monomial, coefficient in terms_of(value):
        if len(monomial) != 1 or monomial[0].kind not in ("min", "max"):
            continue
        (atom,) = monomial
        if ((atom.kind == "min") == (coefficient > 0)) == above:
            rest = add(value, multiply(of_atom(atom), -coefficient))
            yield from (add(rest, multiply(operand, coefficient)) for operand in atom.args)


def equal(left: Dim, right: Dim) -> bool:
    """Decide ``left == right``; raises :class:`Undecidable` when it depends on the variables."""
    low, high = difference_bounds(left, right)
    if low == high == 0:
        return True
    if low > 0 or high < 0:
        return False
    return _answer("equal", left, right)


# -- other atoms -----------------------------------------------------------------------------------------------------


def transform(value: Dim, replace: Callable[[Atom], Dim | None], memo: dict[Atom, Dim] | None = None) -> Dim:
    """Rebuild ``value`` bottom-up; ``replace`` may give another index for an atom (None keeps it).

    ``memo`` caches the replacement of each atom, for further calls with the same ``replace``.
    """
    if not isinstance(value, Index):
        return value
    done: dict[Atom, Dim] = {} if memo is None else memo
    result: Dim = 0
    for monomial, coefficient in value.terms:
        term: Dim = coefficient
        for atom in monomial:
            if atom not in done:
                done[atom] = _transform_atom(atom, replace, done)
            term = multiply(term, done[atom])
        result = add(result, term)
    return result


def _transform_atom(atom: Atom, replace: Callable[[Atom], Dim | None], done: dict[Atom, Dim]) -> Dim:
    replaced = replace(atom)
    if replaced is not None:
        return replaced
    if not atom.args:
        return of_atom(atom)
    args = [transform(argument, replace, done) for argument in atom.args]
    return _RULES[atom.kind](args[0], args[1])


_RULES: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": floordiv,
    "mod": modulo,
    "min": minimum,
    "max": maximum,
}


def substitute(value: Dim, mapping: Mapping[str, Dim]) -> Dim:
    """Replace variables by name."""
    return transform(value, lambda atom: mapping.get(atom.payload) if atom.kind == "var" else None)


def evaluate(value: Dim, values: Mapping[str, Any], read: Callable[[Any], Any] | None = None) -> Any:
    """Evaluate ``value`` to a number (or numpy array) for these variables; ``read`` evaluates opaque payloads."""
    return _evaluate(value, values, read, {})


def _evaluate(value: Dim, values: Mapping[str, Any], read: Callable[[Any], Any] | None, done: dict[Atom, Any]) -> Any:
    if not isinstance(value, Index):
        return value
    total: Any = 0
    for monomial, coefficient in value.terms:
        term: Any = coefficient
        for atom in monomial:
            if atom not in done:
                done[atom] = _evaluate_atom(atom, values, read, done)
            term = term * done[atom]
        total = total + term
    return total


def _evaluate_atom(
    atom: Atom, values: Mapping[str, Any], read: Callable[[Any], Any] | None, done: dict[Atom, Any]
) -> Any:
    if atom.kind == "var":
        return values[atom.payload]
    if atom.kind == "opaque":
        if read is None:
            raise ValueError("an opaque index needs a reader")
        return read(atom.payload)
    left, right = (_evaluate(argument, values, read, done) for argument in atom.args)
    if atom.kind == "floordiv":
        return left // right
    if atom.kind == "mod":
        return left % right
    import numpy as np

    return np.minimum(left, right) if atom.kind == "min" else np.maximum(left, right)
