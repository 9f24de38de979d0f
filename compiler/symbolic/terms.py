"""The normal form of index polynomials: atoms, monomials, terms, and what is read off them.

The form is unique up to the atoms, so equality of two polynomials is equality of their terms.  Every atom has inclusive
bounds.  :mod:`.arithmetic` builds polynomials.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any
from weakref import WeakValueDictionary

#: Characters of an atom's text that are kept: parts that are shared are written out each time, so that it may double
#: with every division
KEY_LENGTH = 1024


class Atom:
    """An indivisible factor.  Atoms are interned: equal atoms are the same object."""

    __slots__ = ("__weakref__", "args", "below", "high", "key", "kind", "low", "names", "payload", "reads")
    kind: str  #: "var", "floordiv", "mod", "min", "max" or "opaque"
    args: tuple[Any, ...]  #: operands, of type :data:`~.arithmetic.Dim`
    payload: Any  #: the name of a "var"; the value expression of an "opaque"
    low: int
    high: int
    key: str  #: structural text, for a deterministic order; a digest in place of what is beyond :data:`KEY_LENGTH`
    below: Any  #: exclusive upper bound: of a coordinate the size of its axis, of a size a larger one; or None
    names: frozenset[str]  #: names of the variables in it
    reads: tuple[Any, ...]  #: distinct payloads of the opaque atoms in it, in order

    def __repr__(self) -> str:
        return self.key


_atoms: WeakValueDictionary[tuple[Any, ...], Atom] = WeakValueDictionary()


def intern_atom(
    kind: str, args: tuple[Any, ...], payload: Any, low: int, high: int, key: str, below: Any = None
) -> Atom:
    """Return the one atom of this identity; ``key`` is its text."""
    identity = (kind, args, payload, low, high, below)
    interned = _atoms.get(identity)
    if interned is not None:
        return interned
    atom = Atom()
    atom.kind, atom.args, atom.payload, atom.low, atom.high = kind, args, payload, low, high
    atom.key = shortened(key)
    atom.below = below
    inner = [factor for argument in args for factor in _factors(argument)]
    own = frozenset((payload,)) if kind == "var" else frozenset()
    atom.names = own.union(*(factor.names for factor in inner))
    reads = (payload,) if kind == "opaque" else (read for factor in inner for read in factor.reads)
    atom.reads = tuple(dict.fromkeys(reads))
    return _atoms.setdefault(identity, atom)


def _factors(value: int | Polynomial) -> list[Atom]:
    """Return the atoms of a polynomial, without those that they contain."""
    return [atom for monomial, _ in value.terms for atom in monomial] if isinstance(value, Polynomial) else []


def shortened(text: str) -> str:
    """Return ``text``, with a digest in place of its end if it is longer than :data:`KEY_LENGTH`."""
    if len(text) <= KEY_LENGTH:
        return text
    return f"{text[:KEY_LENGTH]}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"


Monomial = tuple[Atom, ...]  #: factors sorted by key; the empty monomial is the constant term


class Polynomial:
    """A non-constant integer polynomial in normal form.  Immutable."""

    __slots__ = ("_bounds", "_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms  #: (monomial, coefficient) sorted by monomial key, no zero coefficients
        self._hash = hash(terms)
        self._bounds: tuple[int, int] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Polynomial) and self._hash == other._hash and self.terms == other.terms

    @property
    def bounds(self) -> tuple[int, int]:
        """Inclusive lower and upper bound."""
        if self._bounds is None:
            low = high = 0
            for monomial, coefficient in self.terms:
                term_low, term_high = coefficient, coefficient
                for atom in monomial:
                    corners = (
                        term_low * atom.low,
                        term_low * atom.high,
                        term_high * atom.low,
                        term_high * atom.high,
                    )
                    term_low, term_high = min(corners), max(corners)
                low += term_low
                high += term_high
            self._bounds = (low, high)
        return self._bounds

    def __repr__(self) -> str:
        return text(self)


class Undecidable(Exception):
    """A comparison of two symbolic integers holds for some values of the variables and not for others.

    ``comparison`` is that one, where it is a single one: ``equal`` or ``less``, with its sides.
    """

    def __init__(self, reason: str, comparison: tuple[str, Any, Any] | None = None) -> None:
        super().__init__(reason)
        self.comparison = comparison


def bounds(value: int | Polynomial) -> tuple[int, int]:
    return value.bounds if isinstance(value, Polynomial) else (value, value)


def number(value: int | Polynomial) -> int:
    """Return ``value`` as a plain int; raise :class:`Undecidable` when it depends on variables."""
    if isinstance(value, Polynomial):
        raise Undecidable(f"{text(value)} is one number")
    return int(value)


def text(value: int | Polynomial) -> str:
    """Return the deterministic text of an index, e.g. ``3 + 4*h + (w)//2``."""
    if not isinstance(value, Polynomial):
        return str(int(value))
    parts = []
    for monomial, coefficient in value.terms:
        factors = [atom.key for atom in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        parts.append("*".join(factors))
    return " + ".join(parts)


def variables(value: int | Polynomial) -> frozenset[str]:
    """Return the names of the variables in ``value``, also inside divisions (not inside opaque payloads)."""
    return frozenset().union(*(atom.names for atom in _factors(value)))


def atoms(value: int | Polynomial) -> list[Atom]:
    """Return the distinct atoms in ``value``, also those inside divisions, outer ones first."""
    distinct: dict[Atom, None] = {}
    stack = _factors(value)[::-1]
    while stack:
        atom = stack.pop()
        if atom not in distinct:
            distinct[atom] = None
            stack += [factor for argument in reversed(atom.args) for factor in reversed(_factors(argument))]
    return list(distinct)


def opaque_payloads(value: int | Polynomial) -> list[Any]:
    """Return the distinct payloads of the opaque atoms in ``value``, also inside divisions, in order."""
    return list(dict.fromkeys(payload for atom in _factors(value) for payload in atom.reads))


def terms_of(value: int | Polynomial) -> tuple[tuple[Monomial, int], ...]:
    """Return the terms of ``value``: none for zero."""
    if isinstance(value, Polynomial):
        return value.terms
    return (((), int(value)),) if value else ()


def monomial_key(item: tuple[Monomial, int]) -> tuple[int, str]:
    monomial = item[0]
    return len(monomial), "*".join(atom.key for atom in monomial)


def common_factor(value: Polynomial, divisor: int) -> int:
    """Return a factor of ``divisor`` such that value = factor * scaled + small non-negative rest may simplify."""
    best = 1
    for monomial, coefficient in value.terms:
        if monomial:
            best = max(best, math.gcd(abs(coefficient), divisor))
    return best
