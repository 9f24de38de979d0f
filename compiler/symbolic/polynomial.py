"""Integer index arithmetic: dimensions, coordinates and buffer offsets.

A dimension, a coordinate or an offset is either a plain ``int`` or an :class:`Index`.  An ``Index`` is a polynomial
with integer coefficients over *atoms*: variables (loop coordinates, declared dynamic dimensions), floor divisions and
remainders, and opaque run-time integers (an element read from an indices tensor).  The normal form is unique up to the
atoms, so equality of two indices is object equality, and a constant is always a Python ``int``.

Every atom has inclusive bounds.  They drive the simplifications that make views free:
``(8*a + b) // 8 == a`` and ``(8*a + b) % 8 == b`` when ``0 <= b < 8``.  A coordinate of an axis of symbolic size ``n``
is known to be below ``n`` as well, so ``(n*a + b) // n == a`` holds for all ``n``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Union
from weakref import WeakValueDictionary

#: Results that each memoised operation keeps: operands are immutable, and the kernels of a model resemble each other
MEMO_ENTRIES = 8192
#: Characters of an atom's text that are kept: parts that are shared are written out each time, so that it may double
#: with every division
KEY_LENGTH = 1024
UNBOUNDED = 1 << 31  #: bounds never leave the range of a signed 32-bit integer: device indices are i32


class Atom:
    """An indivisible factor.  Atoms are interned: equal atoms are the same object."""

    __slots__ = ("__weakref__", "args", "below", "high", "key", "kind", "low", "names", "payload", "reads")
    kind: str  #: "var", "floordiv", "mod", "min", "max" or "opaque"
    args: tuple[Dim, ...]
    payload: Any  #: the name of a "var"; the value expression of an "opaque"
    low: int
    high: int
    key: str  #: structural text, for a deterministic order; a digest in place of what is beyond :data:`KEY_LENGTH`
    below: Dim | None  #: exclusive upper bound of a coordinate: the size of its axis
    names: frozenset[str]  #: names of the variables in it
    reads: tuple[Any, ...]  #: distinct payloads of the opaque atoms in it, in order

    def __repr__(self) -> str:
        return self.key


_atoms: WeakValueDictionary[tuple[Any, ...], Atom] = WeakValueDictionary()


def _atom(
    kind: str, args: tuple[Dim, ...], payload: Any, low: int, high: int, key: str, below: Dim | None = None
) -> Atom:
    identity = (kind, args, payload, low, high, below)
    found = _atoms.get(identity)
    if found is not None:
        return found
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


def _factors(value: Dim) -> list[Atom]:
    """Return the atoms of a polynomial, without those that they contain."""
    return [atom for monomial, _ in value.terms for atom in monomial] if isinstance(value, Index) else []


def shortened(text: str) -> str:
    """Return ``text``, with a digest in place of its end if it is longer than :data:`KEY_LENGTH`."""
    if len(text) <= KEY_LENGTH:
        return text
    return f"{text[:KEY_LENGTH]}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"


Monomial = tuple[Atom, ...]  #: factors sorted by key; the empty monomial is the constant term


class Index:
    """A non-constant integer polynomial.  Immutable; build with the arithmetic operators or the functions below."""

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
        return isinstance(other, Index) and self._hash == other._hash and self.terms == other.terms

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

    def __add__(self, other: Dim) -> Dim:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return add(self, multiply(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return add(other, multiply(self, -1))

    def __mul__(self, other: Dim) -> Dim:
        return multiply(self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return multiply(self, -1)

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return modulo(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return modulo(other, self)

    def __repr__(self) -> str:
        return text(self)


Dim = Union[int, Index]


def of_atom(atom: Atom) -> Index:
    """Return the polynomial that consists of one atom."""
    return Index((((atom,), 1),))


class Undecidable(Exception):
    """A comparison of two symbolic integers holds for some values of the variables and not for others."""


def variable(name: str, low: int, high: int, text: str = "") -> Dim:
    """Create the variable ``name`` with inclusive bounds, shown as ``text``; a plain int if the bounds are equal."""
    if low == high:
        return low
    return of_atom(_atom("var", (), name, low, high, text or name))


def is_variable(value: Dim) -> bool:
    """Return whether ``value`` is a variable and nothing else."""
    return (
        isinstance(value, Index)
        and len(value.terms) == 1
        and value.terms[0][1] == 1
        and (len(value.terms[0][0]) == 1 and value.terms[0][0][0].kind == "var")
    )


def coordinate(name: str, size: Dim) -> Dim:
    """Create the variable ``name`` that runs over an axis: ``0 <= name < size``, also where ``size`` is symbolic.

    Zero where the size is (at most) one; the coordinate of an empty axis has no meaning, and is never evaluated.
    """
    high = max(bounds(size)[1] - 1, 0)
    if high == 0:
        return 0
    return of_atom(_atom("var", (), name, 0, high, name, size))


def opaque(payload: Any, low: int, high: int, key: str) -> Dim:
    """Create a run-time integer defined by ``payload`` (a hashable value expression) whose text is ``key``."""
    return of_atom(_atom("opaque", (), payload, low, high, key))


def bounds(value: Dim) -> tuple[int, int]:
    return value.bounds if isinstance(value, Index) else (value, value)


def number(value: Dim) -> int:
    """Return ``value`` as a plain int; raise :class:`Undecidable` when it depends on variables."""
    if isinstance(value, Index):
        raise Undecidable(f"{text(value)} is one number")
    return int(value)


def _monomial_key(item: tuple[Monomial, int]) -> tuple[int, str]:
    monomial = item[0]
    return len(monomial), "*".join(atom.key for atom in monomial)


def _terms(value: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(value, Index):
        return value.terms
    return (((), int(value)),) if value else ()


def _build(collected: dict[Monomial, int]) -> Dim:
    items = [item for item in collected.items() if item[1]]
    if not items:
        return 0
    if any(atom.kind == "mod" for monomial, _ in items for atom in monomial):
        joined = _join_remainders(dict(items))
        if joined is not None:
            return joined
    if len(items) == 1 and not items[0][0]:
        return items[0][1]
    items.sort(key=_monomial_key)
    return Index(tuple(items))


def _join_remainders(collected: dict[Monomial, int]) -> Dim | None:
    """Undo an unflattening: ``b*(x//b) + x%b == x`` and ``b*((x//b)%a) + x%b == x%(a*b)``, also scaled by a factor.

    ``b`` may be a polynomial, of which every term then has a partner.  Gives the joined polynomial, or None when no
    terms belong together.
    """
    for monomial, coefficient in collected.items():
        for atom in monomial:
            if atom.kind != "mod":
                continue
            dividend, divisor = atom.args
            quotient = floordiv(dividend, divisor)
            scale = list(monomial)
            scale.remove(atom)
            step = multiply(divisor, Index(((tuple(scale), coefficient),)) if scale else coefficient)
            for partner in collected:
                for other in partner:
                    whole = _joined(atom, other, quotient)
                    if whole is None:
                        continue
                    partners = dict(_terms(multiply(step, of_atom(other))))
                    if any(collected.get(key) != value for key, value in partners.items()):
                        continue
                    remaining = {
                        key: value for key, value in collected.items() if key != monomial and key not in partners
                    }
                    scaled = multiply(whole, _build({tuple(scale): coefficient}))
                    return add(_build(remaining), scaled)
    return None


def _joined(remainder: Atom, other: Atom, quotient: Dim) -> Dim | None:
    """Simplify ``divisor * other + remainder`` if ``other`` is the matching quotient, else None."""
    if not isinstance(quotient, Index) or len(quotient.terms) != 1:
        return None
    if quotient.terms[0] == ((other,), 1):
        return remainder.args[0]
    if other.kind == "mod" and other.args[0] == quotient:
        return modulo(remainder.args[0], multiply(remainder.args[1], other.args[1]))
    return None


def add(left: Dim, right: Dim) -> Dim:
    if type(left) is int and type(right) is int:  # by far the most
        return left + right
    if not isinstance(left, Index) and not isinstance(right, Index):
        return int(left) + int(right)
    return _add(left, right)


@lru_cache(MEMO_ENTRIES)
def _add(left: Dim, right: Dim) -> Dim:
    collected: dict[Monomial, int] = dict(_terms(left))
    for monomial, coefficient in _terms(right):
        collected[monomial] = collected.get(monomial, 0) + coefficient
    return _build(collected)


def multiply(left: Dim, right: Dim) -> Dim:
    if type(left) is int and type(right) is int:  # by far the most
        return left * right
    if not isinstance(left, Index) and not isinstance(right, Index):
        return int(left) * int(right)
    return _multiply(left, right)


@lru_cache(MEMO_ENTRIES)
def _multiply(left: Dim, right: Dim) -> Dim:
    collected: dict[Monomial, int] = {}
    for left_monomial, left_coefficient in _terms(left):
        for right_monomial, right_coefficient in _terms(right):
            monomial = tuple(sorted(left_monomial + right_monomial, key=lambda atom: atom.key))
            collected[monomial] = collected.get(monomial, 0) + left_coefficient * right_coefficient
    return _build(collected)


def _split(value: Index, divisor: int) -> tuple[Dim, Dim]:
    """Split ``value == divisor * quotient + rest`` so that the quotient takes every term that the divisor divides."""
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        if monomial and coefficient % divisor == 0:
            quotient[monomial] = coefficient // divisor
        elif not monomial:
            quotient[()], rest[()] = divmod(coefficient, divisor)
        else:
            rest[monomial] = coefficient
    return _build(quotient), _build(rest)


def _divide_exactly(value: Index, divisor: Index) -> Dim | None:
    """Return the quotient if dividing the polynomial by a single-term divisor leaves no rest, else None."""
    if len(divisor.terms) != 1:
        return 1 if value == divisor else None
    divisor_monomial, divisor_coefficient = divisor.terms[0]
    collected: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        factors = list(monomial)
        for atom in divisor_monomial:
            if atom not in factors:
                return None
            factors.remove(atom)
        if coefficient % divisor_coefficient:
            return None
        collected[tuple(factors)] = coefficient // divisor_coefficient
    return _build(collected)


def divide(value: Dim, divisor: Dim) -> Dim | None:
    """Return the polynomial quotient when ``value`` is a multiple of ``divisor`` for all variables, else None.

    Uses long division by leading terms; the divisor must not be zero.
    """
    if not isinstance(divisor, Index):
        if any(coefficient % divisor for _, coefficient in _terms(value)):
            return None
        return _build({monomial: coefficient // divisor for monomial, coefficient in _terms(value)})
    leading_monomial, leading_coefficient = divisor.terms[-1]
    leading = Index(((leading_monomial, leading_coefficient),))
    quotient: Dim = 0
    rest = value
    # every step removes the leading term of the rest, or fails; each quotient term is of lower order than the last
    for _ in range(64):
        if not isinstance(rest, Index):
            return quotient if rest == 0 else None
        part = _divide_exactly(Index((rest.terms[-1],)), leading)
        if part is None:
            return None
        quotient = add(quotient, part)
        rest = add(rest, multiply(multiply(part, divisor), -1))
    return None


def _split_symbolic(value: Index, divisor: Index) -> tuple[Dim, Dim]:
    """Split ``value == divisor * quotient + rest`` with as many terms as possible in the quotient."""
    if len(divisor.terms) > 1:
        return _split_polynomial(value, divisor)
    quotient: Dim = 0
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        part = _divide_exactly(Index(((monomial, coefficient),)), divisor) if monomial else None
        if part is None:
            rest[monomial] = coefficient
        else:
            quotient = add(quotient, part)
    return quotient, _build(rest)


def _split_polynomial(value: Index, divisor: Index) -> tuple[Dim, Dim]:
    """Split ``value == divisor * quotient + rest`` by long division; the quotient is 0 if the rest may be negative."""
    leading = Index((divisor.terms[-1],))
    quotient: Dim = 0
    rest: Dim = 0
    left: Dim = value
    for _ in range(64):
        if not isinstance(left, Index):
            rest = add(rest, left)
            return (quotient, rest) if bounds(rest)[0] >= 0 else (0, value)
        monomial, coefficient = left.terms[-1]
        last: Dim = Index(((monomial, coefficient),)) if monomial else coefficient
        part = _divide_exactly(last, leading) if isinstance(last, Index) else None
        if part is None:
            rest = add(rest, last)
            left = add(left, multiply(last, -1))
        else:
            quotient = add(quotient, part)
            left = add(left, multiply(multiply(part, divisor), -1))
    return 0, value


def _fits_below(value: Dim, divisor: Dim) -> bool:
    """Return whether ``0 <= value < divisor`` for all values of the variables."""
    low, _ = bounds(value)
    return low >= 0 and always_less(value, divisor)


def floordiv(value: Dim, divisor: Dim) -> Dim:
    """Floor division by a positive divisor."""
    if not isinstance(value, Index) and not isinstance(divisor, Index):
        return int(value) // int(divisor)
    return _floordiv(value, divisor)


@lru_cache(MEMO_ENTRIES)
def _floordiv(value: Dim, divisor: Dim) -> Dim:
    if not isinstance(value, Index):
        if value == 0:
            return 0
        value_low = value_high = int(value)
    else:
        value_low, value_high = value.bounds
    if isinstance(divisor, Index):
        if isinstance(value, Index):
            quotient, rest = _split_symbolic(value, divisor)
            if _fits_below(rest, divisor):
                return quotient
        if _fits_below(value, divisor):
            return 0
        divisor_low, divisor_high = divisor.bounds
        corners = [
            value_low // max(divisor_low, 1),
            value_high // max(divisor_low, 1),
            value_low // max(divisor_high, 1),
            value_high // max(divisor_high, 1),
        ]
        key = f"({text(value)})//({text(divisor)})"
        return of_atom(_atom("floordiv", (value, divisor), None, min(corners), max(corners), key))
    divisor = int(divisor)
    if divisor == 1:
        return value
    assert isinstance(value, Index)
    quotient, rest = _split(value, divisor)
    rest_low, rest_high = bounds(rest)
    if rest_low // divisor == rest_high // divisor:
        return add(quotient, rest_low // divisor)
    if isinstance(rest, Index):
        nested = _nested_floordiv(rest, divisor)
        if nested is not None:
            return add(quotient, nested)
        factor = _common_factor(rest, divisor)
        if factor > 1:
            scaled, remainder = _split(rest, factor)
            if 0 <= bounds(remainder)[0] and bounds(remainder)[1] < factor:
                return add(quotient, floordiv(scaled, divisor // factor))
    key = f"({text(rest)})//{divisor}"
    atom = _atom("floordiv", (rest, divisor), None, rest_low // divisor, rest_high // divisor, key)
    return add(quotient, of_atom(atom))


def _nested_floordiv(value: Index, divisor: int) -> Dim | None:
    """Rewrite ``(x // a) // b`` as ``x // (a*b)`` for constant a and b."""
    if len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
        atom = value.terms[0][0][0]
        if atom.kind == "floordiv" and isinstance(atom.args[1], int):
            return floordiv(atom.args[0], atom.args[1] * divisor)
    return None


def _common_factor(value: Index, divisor: int) -> int:
    """Return a factor of ``divisor`` such that value = factor * scaled + small non-negative rest may simplify."""
    from math import gcd

    best = 1
    for monomial, coefficient in value.terms:
        if monomial:
            factor = gcd(abs(coefficient), divisor)
            best = max(best, factor)
    return best


def modulo(value: Dim, divisor: Dim) -> Dim:
    """Remainder of floor division by a positive divisor: in ``[0, divisor)``."""
    if not isinstance(value, Index) and not isinstance(divisor, Index):
        return int(value) % int(divisor)
    return _modulo(value, divisor)


@lru_cache(MEMO_ENTRIES)
def _modulo(value: Dim, divisor: Dim) -> Dim:
    if isinstance(divisor, Index):
        if isinstance(value, Index):
            _, rest = _split_symbolic(value, divisor)
            if rest != value:
                return modulo(rest, divisor)
        if _fits_below(value, divisor):
            return value
        key = f"({text(value)})%({text(divisor)})"
        atom = _atom("mod", (value, divisor), None, 0, max(divisor.bounds[1] - 1, 0), key)
        return of_atom(atom)
    divisor = int(divisor)
    if divisor == 1:
        return 0
    assert isinstance(value, Index)
    _, rest = _split(value, divisor)
    if not isinstance(rest, Index):
        return rest % divisor
    rest_low, rest_high = rest.bounds
    if rest_low // divisor == rest_high // divisor:
        return add(rest, -divisor * (rest_low // divisor))
    factor = _common_factor(rest, divisor)
    if factor > 1:
        scaled, remainder = _split(rest, factor)
        if 0 <= bounds(remainder)[0] and bounds(remainder)[1] < factor:
            return add(multiply(modulo(scaled, divisor // factor), factor), remainder)
    key = f"({text(rest)})%{divisor}"
    return of_atom(_atom("mod", (rest, divisor), None, 0, divisor - 1, key))


def minimum(left: Dim, right: Dim) -> Dim:
    if not isinstance(left, Index) and not isinstance(right, Index):
        return min(int(left), int(right))
    low, high = _difference_bounds(left, right)
    if high <= 0:
        return left
    if low >= 0:
        return right
    return _extremum("min", left, right)


def maximum(left: Dim, right: Dim) -> Dim:
    if not isinstance(left, Index) and not isinstance(right, Index):
        return max(int(left), int(right))
    low, high = _difference_bounds(left, right)
    if low >= 0:
        return left
    if high <= 0:
        return right
    return _extremum("max", left, right)


def _extremum(kind: str, left: Dim, right: Dim) -> Dim:
    if left == right:
        return left
    pick = min if kind == "min" else max
    low, high = pick(bounds(left)[0], bounds(right)[0]), pick(bounds(left)[1], bounds(right)[1])
    first, second = sorted((left, right), key=text)
    return of_atom(_atom(kind, (first, second), None, low, high, f"{kind}({text(first)},{text(second)})"))


def ceildiv(value: Dim, divisor: Dim) -> Dim:
    return floordiv(add(value, add(divisor, -1)), divisor)


def round_up(value: Dim, multiple: int) -> Dim:
    return multiply(ceildiv(value, multiple), multiple)


def product(values: tuple[Dim, ...] | list[Dim]) -> Dim:
    result: Dim = 1
    for value in values:
        result = multiply(result, value)
    return result


def always_less(left: Dim, right: Dim) -> bool:
    """Return whether ``left < right`` for all values of the variables (a sound, incomplete test)."""
    if bounds(left)[1] < bounds(right)[0]:
        return True
    return _difference_bounds(left, right)[1] < 0


def _difference_bounds(left: Dim, right: Dim) -> tuple[int, int]:
    """Bound ``left - right``, also with the largest coordinates ``size - 1`` substituted, so that sizes may cancel."""
    difference = add(left, multiply(right, -1))
    low, high = bounds(difference)
    if not isinstance(difference, Index) or not any(
        atom.below is not None for monomial, _ in difference.terms for atom in monomial
    ):
        return low, high
    lowered = multiply(_at_largest_coordinates(multiply(difference, -1)), -1)
    return max(low, bounds(lowered)[0]), min(high, bounds(_at_largest_coordinates(difference))[1])


def _at_largest_coordinates(value: Dim) -> Dim:
    """Return an upper bound of ``value`` without the coordinates in which it increases."""
    if not isinstance(value, Index):
        return value
    result: Dim = 0
    for monomial, coefficient in value.terms:
        term: Dim = Index(((monomial, coefficient),)) if monomial else coefficient
        for position, atom in enumerate(monomial):
            if atom.below is None:
                continue
            others = monomial[:position] + monomial[position + 1 :]
            factor = _build({others: coefficient})
            if bounds(factor)[0] >= 0:
                term = _at_largest_coordinates(multiply(factor, add(atom.below, -1)))
                break
        result = add(result, term)
    return result


def less(left: Dim, right: Dim) -> bool:
    """Decide ``left < right``; raises :class:`Undecidable` when it depends on the variables."""
    low, high = _difference_bounds(left, right)
    if high < 0:
        return True
    if low >= 0:
        return False
    raise Undecidable(f"{text(left)} < {text(right)}")


def equal(left: Dim, right: Dim) -> bool:
    """Decide ``left == right``; raises :class:`Undecidable` when it depends on the variables."""
    low, high = _difference_bounds(left, right)
    if low == high == 0:
        return True
    if low > 0 or high < 0:
        return False
    raise Undecidable(f"{text(left)} == {text(right)}")


def text(value: Dim) -> str:
    """Deterministic text of an index, e.g. ``3 + 4*h + (w)//2``."""
    if not isinstance(value, Index):
        return str(int(value))
    parts = []
    for monomial, coefficient in value.terms:
        factors = [atom.key for atom in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        parts.append("*".join(factors))
    return " + ".join(parts)


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


def variables(value: Dim) -> frozenset[str]:
    """Return the names of the variables in ``value``, also inside divisions (not inside opaque payloads)."""
    return frozenset().union(*(atom.names for atom in _factors(value)))


def atoms(value: Dim) -> list[Atom]:
    """Return the distinct atoms in ``value``, also those inside divisions, outer ones first."""
    found: dict[Atom, None] = {}
    stack = _factors(value)[::-1]
    while stack:
        atom = stack.pop()
        if atom not in found:
            found[atom] = None
            stack += [factor for argument in reversed(atom.args) for factor in reversed(_factors(argument))]
    return list(found)


def opaque_payloads(value: Dim) -> list[Any]:
    """Return the distinct payloads of the opaque atoms in ``value``, also inside divisions, in order."""
    return list(dict.fromkeys(payload for atom in _factors(value) for payload in atom.reads))


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
