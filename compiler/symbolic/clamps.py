"""Minima and maxima in the normal form: sizes of windows, which add up to the size that they divide.

The part of ``x`` rows that lies between rows ``a`` and ``b`` has ``max(min(x, b), a) - a`` rows.
"""

from __future__ import annotations

from collections.abc import Callable

from .terms import Atom, Monomial, Polynomial, bounds, intern_atom, terms_of, text

#: An index with the least and the greatest value that it is limited to; None for one without
Clamp = tuple[int | Polynomial, int | None, int | None]


def extremum_atom(kind: str, left: int | Polynomial, right: int | Polynomial) -> Atom:
    """Return the atom of the minimum (``kind`` is "min") or the maximum ("max") of two indices."""
    pick = min if kind == "min" else max
    low, high = pick(bounds(left)[0], bounds(right)[0]), pick(bounds(left)[1], bounds(right)[1])
    first, second = sorted((left, right), key=text)
    return intern_atom(kind, (first, second), None, low, high, f"{kind}({text(first)},{text(second)})")


def join_clamps(collected: dict[Monomial, int], of_atom: Callable[[Atom], Polynomial]) -> dict[Monomial, int] | None:
    """Return terms with neighbouring windows joined, of indices that ``of_atom`` makes of atoms; None where there are
    none.

    With ``clamp(x, a, b)`` for ``max(min(x, b), a)``, and ``a < b < c``, ``clamp(x, a, b) + clamp(x, b, c)`` is
    ``clamp(x, a, c) + b``, also scaled by a factor; so it is without ``a``, without ``c``, and without both.
    """
    windows: dict[tuple[int | Polynomial, int | None, Monomial, int], tuple[Monomial, int | None]] = {}
    for monomial, factor in collected.items():
        for position, atom in enumerate(monomial):
            limited = _clamp(atom)
            if limited is not None:
                index, low, high = limited
                windows[index, low, monomial[:position] + monomial[position + 1 :], factor] = monomial, high
    for (index, low, rest, factor), (monomial, middle) in windows.items():
        following = None if middle is None else windows.get((index, middle, rest, factor))
        if following is None or middle is None:
            continue
        joined = {key: value for key, value in collected.items() if key not in (monomial, following[0])}
        for inner, coefficient in (*_terms((index, low, following[1]), of_atom), ((), middle)):
            key = tuple(sorted((*rest, *inner), key=lambda atom: atom.key))
            joined[key] = joined.get(key, 0) + factor * coefficient
        return joined
    return None


def _clamp(atom: Atom) -> Clamp | None:
    """Return an extremum of an index and numbers; None for other atoms."""
    if atom.kind not in ("min", "max"):
        return None
    numbers = [argument for argument in atom.args if isinstance(argument, int)]
    indices = [argument for argument in atom.args if isinstance(argument, Polynomial)]
    if len(numbers) != 1:
        return None
    if atom.kind == "min":
        return indices[0], None, numbers[0]
    terms = indices[0].terms
    inner = _clamp(terms[0][0][0]) if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 else None
    if inner is None or inner[1] is not None:
        return indices[0], numbers[0], None
    return inner[0], numbers[0], inner[2]


def _terms(limited: Clamp, of_atom: Callable[[Atom], Polynomial]) -> tuple[tuple[Monomial, int], ...]:
    """Return the terms of a clamped index."""
    value, low, high = limited
    for kind, limit in (("min", high), ("max", low)):
        if limit is not None:
            value = of_atom(extremum_atom(kind, value, limit))
    return terms_of(value)
