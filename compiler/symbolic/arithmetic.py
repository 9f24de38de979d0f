"""Arithmetic of indices: sums, products, floor divisions and remainders, brought into the normal form.

The bounds of atoms drive the simplifications that make views free: ``(8*a + b) // 8 == a`` and ``(8*a + b) % 8 == b``
when ``0 <= b < 8``.  A coordinate of an axis of symbolic size ``n`` is known to be below ``n`` as well, so
``(n*a + b) // n == a`` holds for all ``n``.
"""

from __future__ import annotations

from functools import lru_cache

from .clamps import join_clamps
from .terms import Atom, Monomial, Polynomial, bounds, common_factor, intern_atom, monomial_key, terms_of, text

#: Results that each memoised operation keeps: operands are immutable, and the kernels of a model resemble each other
MEMO_ENTRIES = 8192


class Index(Polynomial):
    """A polynomial with Python's arithmetic operators; an operation whose result is constant gives an int."""

    __slots__ = ()

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


Dim = int | Index


def of_atom(atom: Atom) -> Index:
    """Return the polynomial that consists of one atom."""
    return Index((((atom,), 1),))


def build(collected: dict[Monomial, int]) -> Dim:
    items = [item for item in collected.items() if item[1]]
    if not items:
        return 0
    if any(atom.kind == "mod" for monomial, _ in items for atom in monomial):
        joined = _join_remainders(dict(items))
        if joined is not None:
            return joined
    if any(atom.kind == "max" for monomial, _ in items for atom in monomial):
        windows = join_clamps(dict(items), of_atom)
        if windows is not None:
            return build(windows)
    if len(items) == 1 and not items[0][0]:
        return items[0][1]
    items.sort(key=monomial_key)
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
                    partners = dict(terms_of(multiply(step, of_atom(other))))
                    if any(collected.get(key) != value for key, value in partners.items()):
                        continue
                    remaining = {
                        key: value for key, value in collected.items() if key != monomial and key not in partners
                    }
                    scaled = multiply(whole, build({tuple(scale): coefficient}))
                    return add(build(remaining), scaled)
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
    collected: dict[Monomial, int] = dict(terms_of(left))
    for monomial, coefficient in terms_of(right):
        collected[monomial] = collected.get(monomial, 0) + coefficient
    return build(collected)


def multiply(left: Dim, right: Dim) -> Dim:
    if type(left) is int and type(right) is int:  # by far the most
        return left * right
    if not isinstance(left, Index) and not isinstance(right, Index):
        return int(left) * int(right)
    return _multiply(left, right)


@lru_cache(MEMO_ENTRIES)
def _multiply(left: Dim, right: Dim) -> Dim:
    collected: dict[Monomial, int] = {}
    for left_monomial, left_coefficient in terms_of(left):
        for right_monomial, right_coefficient in terms_of(right):
            monomial = tuple(sorted(left_monomial + right_monomial, key=lambda atom: atom.key))
            collected[monomial] = collected.get(monomial, 0) + left_coefficient * right_coefficient
    return build(collected)


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
    return build(quotient), build(rest)


def divide_exactly(value: Index, divisor: Index) -> Dim | None:
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
    return build(collected)


def _split_symbolic(value: Index, divisor: Index) -> tuple[Dim, Dim]:
    """Split ``value == divisor * quotient + rest`` with as many terms as possible in the quotient."""
    if len(divisor.terms) > 1:
        return _split_polynomial(value, divisor)
    quotient: Dim = 0
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        part = divide_exactly(Index(((monomial, coefficient),)), divisor) if monomial else None
        if part is None:
            rest[monomial] = coefficient
        else:
            quotient = add(quotient, part)
    return quotient, build(rest)


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
        part = divide_exactly(last, leading) if isinstance(last, Index) else None
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
    """Return the quotient of floor division by a positive divisor."""
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
        return of_atom(intern_atom("floordiv", (value, divisor), None, min(corners), max(corners), key))
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
        factor = common_factor(rest, divisor)
        if factor > 1:
            scaled, remainder = _split(rest, factor)
            if 0 <= bounds(remainder)[0] and bounds(remainder)[1] < factor:
                return add(quotient, floordiv(scaled, divisor // factor))
    key = f"({text(rest)})//{divisor}"
    atom = intern_atom("floordiv", (rest, divisor), None, rest_low // divisor, rest_high // divisor, key)
    return add(quotient, of_atom(atom))


def _nested_floordiv(value: Index, divisor: int) -> Dim | None:
    """Rewrite ``(x // a) // b`` as ``x // (a*b)`` for constant a and b."""
    if len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
        atom = value.terms[0][0][0]
        if atom.kind == "floordiv" and isinstance(atom.args[1], int):
            return floordiv(atom.args[0], atom.args[1] * divisor)
    return None


def modulo(value: Dim, divisor: Dim) -> Dim:
    """Return the remainder of floor division by a positive divisor: in ``[0, divisor)``."""
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
        atom = intern_atom("mod", (value, divisor), None, 0, max(divisor.bounds[1] - 1, 0), key)
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
    factor = common_factor(rest, divisor)
    if factor > 1:
        scaled, remainder = _split(rest, factor)
        if 0 <= bounds(remainder)[0] and bounds(remainder)[1] < factor:
            return add(multiply(modulo(scaled, divisor // factor), factor), remainder)
    key = f"({text(rest)})%{divisor}"
    return of_atom(intern_atom("mod", (rest, divisor), None, 0, divisor - 1, key))


def always_less(left: Dim, right: Dim) -> bool:
    """Return whether ``left < right`` for all values of the variables (a sound, incomplete test)."""
    if bounds(left)[1] < bounds(right)[0]:
        return True
    return difference_bounds(left, right)[1] < 0


def difference_bounds(left: Dim, right: Dim) -> tuple[int, int]:
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
            factor = build({others: coefficient})
            if bounds(factor)[0] >= 0:
                term = _at_largest_coordinates(multiply(factor, add(atom.below, -1)))
                break
        result = add(result, term)
    return result
