"""Declared dynamic dimensions as integers of the compiler, and integers as plans write them.

A dimension is a size that is known at run time, within a range, or within steps of a range.  The compiler's variable is
the size, or how many whole steps it has; plans speak of sizes alone.
"""

from __future__ import annotations

from typing import Any

from ...runtime.plan.record import record
from . import polynomial as ix
from .polynomial import Dim


def dimension(name: str, low: int, high: int, step: int = 1, below: Dim | None = None) -> Dim:
    """Create the declared dynamic dimension ``name``: ``low``, ``low + step``, ... or ``high``.

    One without a step may always be ``below`` another size.  With a step it is ``step * count + offset``, where the
    variable counts whole steps: so halves of a size that is a multiple of 4 are exact, and two ways to the same size
    are the same polynomial.
    """
    payload = dimension_variable(name, low, step)
    if step == 1:
        return ix.variable(payload, low, high, below=below)
    if low == high:
        return low
    count = ix.variable(payload, low // step, high // step, f"${name}/{step}")
    return ix.add(ix.multiply(count, step), low % step)


def dimension_variable(name: str, low: int, step: int = 1) -> str:
    """Return the variable of a declared dynamic dimension.

    Users choose the names of dimensions: the first character separates them from loop variables, and those with a step
    from those without.
    """
    return f"${name}" if step == 1 else f"@{step}+{low % step}:{name}"


@record
class Dimension:
    """A dimension, decoded from the name of its variable: its sizes are ``step * variable + offset``."""

    name: str
    step: int = 1
    offset: int = 0


def declared_dimension(variable: str) -> Dimension | None:
    """Return the declared dynamic dimension that a variable represents; None for other variables."""
    if variable.startswith("$"):
        return Dimension(variable[1:])
    if not variable.startswith("@"):
        return None
    numbers, _, name = variable[1:].partition(":")
    step, _, offset = numbers.partition("+")
    return Dimension(name, int(step), int(offset))


def serialise(value: Dim) -> Any:
    """Return the JSON form of an index without opaque atoms: an int, a name, or lists ``[operator, operand, ...]``.

    Names stand for sizes; a variable that counts steps is the size divided by the step.
    """
    if not isinstance(value, ix.Index):
        return int(value)
    constant, terms = 0, []
    for monomial, coefficient in value.terms:
        if not monomial:
            constant += coefficient
            continue
        factors: list[Any] = []
        for atom in monomial:
            counted = declared_dimension(atom.payload) if atom.kind == "var" else None
            if counted is None or coefficient % counted.step or (counted.offset and len(monomial) > 1):
                factors.append(_serialise_atom(atom))
                continue
            coefficient //= counted.step  # step * count is size - offset
            constant -= coefficient * counted.offset
            factors.append(counted.name)
        if coefficient != 1:
            factors.insert(0, coefficient)
        terms.append(factors[0] if len(factors) == 1 else ["*", *factors])
    if constant:
        terms.insert(0, constant)
    return terms[0] if len(terms) == 1 else ["+", *terms]


def _serialise_atom(atom: ix.Atom) -> Any:
    if atom.kind == "var":
        counted = declared_dimension(atom.payload)
        if counted is None:
            return atom.payload
        return counted.name if counted.step == 1 else ["//", counted.name, counted.step]
    if atom.kind == "opaque":
        raise ValueError(f"a run-time value cannot be part of a plan's dimension: {atom.key}")
    operator = {"floordiv": "//", "mod": "%", "min": "min", "max": "max"}[atom.kind]
    return [operator, *(serialise(argument) for argument in atom.args)]
