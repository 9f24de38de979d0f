"""Rows of windows: their bounds, their values, and that they add up."""

from __future__ import annotations

import pytest

from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.dimensions import dimension, serialise
from shaderloom.runtime.plan.dimension import evaluate

SIZES = {
    "from zero": (0, 400, 1),
    "from the second window on": (120, 400, 1),
    "in steps": (4, 400, 4),
    "in steps with an offset": (6, 402, 4),
}


@pytest.mark.parametrize("rows", [28, 64, 100, 400])
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("factor", [1, 4])
def test_windows_have_the_rows_of_the_whole(name: str, rows: int, factor: int):
    low, high, step = SIZES[name]
    size = ix.multiply(dimension("n", low, high, step), factor)
    starts = range(0, high * factor, rows * factor)
    windows = [ix.between(start, start + rows * factor, size) for start in starts]
    assert all(0 <= ix.bounds(window)[0] and ix.bounds(window)[1] <= rows * factor for window in windows)
    for value in range(low, high + 1, step):
        found = [evaluate(serialise(window), {"n": value}) for window in windows]
        assert found == [max(min(value * factor, start + rows * factor), start) - start for start in starts]
    other = ix.variable("m", 0, 9)
    for order in (windows, windows[::-1], windows[1::2] + windows[::2]):
        total: ix.Dim = 7
        for window in order:
            total = ix.add(total, ix.multiply(window, other))
        assert total == ix.add(ix.multiply(size, other), 7)


def test_windows_of_fixed_sizes_are_numbers():
    assert [ix.between(start, start + 64, 150) for start in (0, 64, 128, 192)] == [64, 64, 22, 0]


def test_windows_of_more_rows_are_those_of_the_rows():
    """Rows of a size behind 9 others: each window has what both have there."""
    size = dimension("n", 0, 400)
    total = ix.add(size, 9)
    for start, stop in ((0, 64), (64, 128), (5, 9), (8, 72), (400, 409)):
        fixed = ix.between(start, stop, 9)
        behind = ix.between(max(start - 9, 0), stop - 9, size) if stop > 9 else 0
        assert ix.add(fixed, behind) == ix.between(start, stop, total)


def test_joined_windows_have_arithmetic():
    first, second, third = (ix.between(start, start + 64, dimension("n", 0, 400)) for start in (64, 128, 192))
    (atom,) = (atom for monomial, _ in ix.terms_of(ix.add(ix.add(first, second), third)) for atom in monomial)
    assert all(isinstance(argument, int | ix.Index) for argument in atom.args)


def test_other_clamps_stay_apart():
    size, other = dimension("n", 0, 400), dimension("m", 0, 400)
    first, second = ix.between(0, 64, size), ix.between(64, 128, size)
    sums = {
        "another size": (1, first, 1, ix.between(64, 128, other)),
        "no neighbour": (1, first, 1, ix.between(128, 192, size)),
        "another factor": (2, first, 1, second),
    }
    for name, (one, left, two, right) in sums.items():
        total = ix.add(ix.multiply(left, one), ix.multiply(right, two))
        for value in (0, 63, 64, 65, 127, 300):
            sizes = {"$n": value, "$m": 90}
            expected = one * ix.evaluate(left, sizes) + two * ix.evaluate(right, sizes)
            assert ix.evaluate(total, sizes) == expected, (name, value)
