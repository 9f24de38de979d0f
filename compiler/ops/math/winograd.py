"""Winograd's minimal filtering: convolutions of 3 by 3 with fewer multiplications.

``outputs`` results in a row of a 3-tap filter are, by Cook and Toom, ``A (G w * B d)`` with ``size = outputs + 2``
products instead of ``3 outputs``; used along both axes (S. Winograd 1980; Lavin and Gray, arXiv:1509.09308).  A
convolution becomes a transform of tiles of the input, one matrix product for each of ``size ** 2`` points, and a
transform of the products.

The matrices follow from the points at which polynomials are evaluated.  Small powers of fractions near 1 keep rounding
near that of a direct sum: with 0, +-3/4, +-3/2 the largest error is twice the direct one, with 0, +-1, +-2 ten times.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import prod

from ....runtime.plan.record import record

TAPS = 3  #: of the filter along each axis
#: results of a tile along an axis -> finite points; infinity is the last point
_POINTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
}

Matrix = tuple[tuple[float, ...], ...]


@record
class Transform:
    """The matrices of one tile size; every entry of ``data`` and ``result`` is exact in f32."""

    outputs: int
    data: Matrix  #: B: size rows, size columns
    weight: Matrix  #: G: size rows, TAPS columns
    result: Matrix  #: A: outputs rows, size columns

    @property
    def size(self) -> int:
        return self.outputs + TAPS - 1


@lru_cache(maxsize=8)
def transform(outputs: int) -> Transform:
    """Return the transform with ``outputs`` results along an axis."""
    points = _POINTS[outputs]
    result = [[point**power for point in points] + [Fraction(power == outputs - 1)] for power in range(outputs)]
    weight = []
    data = []
    for number, point in enumerate(points):
        others = points[:number] + points[number + 1 :]
        scale = prod((point - other for other in others), start=Fraction(1))
        weight.append([point**power / scale for power in range(TAPS)])
        data.append([*_with_roots(others), Fraction(0)])
    weight.append([Fraction(power == TAPS - 1) for power in range(TAPS)])
    data.append(_with_roots(points))
    return Transform(outputs, _floats(data), _floats(weight), _floats(result))


def _with_roots(roots: tuple[Fraction, ...]) -> list[Fraction]:
    """Return the coefficients of the monic polynomial with these roots, lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [high - root * low for high, low in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return coefficients


def _floats(rows: list[list[Fraction]]) -> Matrix:
    return tuple(tuple(float(entry) for entry in row) for row in rows)


def tiles(size: int, outputs: int) -> int:
    """Return the number of tiles that cover ``size`` results along an axis."""
    return -(-size // outputs)


#: Results of a tile along each axis that there are transforms for
TILE_OUTPUTS = tuple(_POINTS)
