"""Index arithmetic is exact: whatever is simplified, every index equals the expression that it was built from.

Random expressions over a few variables are evaluated by brute force at every value of the variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.dimensions import serialise
from shaderloom.runtime.plan.dimension import evaluate

Tree = tuple[Any, ...]  #: ("const", 3), ("var", "x"), (operator, left, right)


@dataclass(frozen=True)
class Space:
    """Sizes ``n``, ``m`` and a number ``y`` by their bounds; the coordinate ``x`` runs over an axis of size ``n``."""

    bounds: dict[str, tuple[int, int]]

    def variables(self) -> dict[str, ix.Dim]:
        made = {name: ix.variable(name, low, high) for name, (low, high) in self.bounds.items()}
        return {**made, "x": ix.coordinate("x", made["n"])}

    def points(self) -> dict[str, np.ndarray]:
        """All values of the variables, as arrays of equal length."""
        ranges = {**self.bounds, "x": (0, self.bounds["n"][1] - 1)}
        columns = np.array(list(itertools.product(*(range(low, high + 1) for low, high in ranges.values()))), np.int64)
        values = dict(zip(ranges, columns.T))
        exists = values["x"] < values["n"]
        return {name: column[exists] for name, column in values.items()}


@st.composite
def spaces(draw: Any) -> Space:
    def interval(low: int) -> tuple[int, int]:
        start = draw(st.integers(low, 3))
        return start, start + draw(st.sampled_from([0, 1, 2, 3, 4, 5, 7, 11]))

    return Space({"y": interval(-3), "n": interval(1), "m": interval(1)})


_POSITIVE: st.SearchStrategy[Tree] = st.one_of(
    st.builds(lambda number: ("const", number), st.sampled_from([1, 2, 3, 4, 6, 8, 12])),
    st.sampled_from(
        [
            ("var", "n"),
            ("var", "m"),
            ("mul", ("var", "n"), ("var", "m")),
            ("mul", ("var", "n"), ("const", 2)),
            ("add", ("mul", ("var", "n"), ("const", 2)), ("const", 3)),
            ("add", ("var", "n"), ("var", "m")),
        ]
    ),
)
_LEAF: st.SearchStrategy[Tree] = st.one_of(
    st.builds(lambda number: ("const", number), st.integers(-6, 12)),
    st.builds(lambda name: ("var", name), st.sampled_from("xynm")),
)


def _grow(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "mul", "min", "max"]), children, children),
        st.tuples(st.sampled_from(["floordiv", "mod", "ceildiv"]), children, _POSITIVE),
        # what views make: an element's number, and what is left after taking a part of it
        st.builds(lambda a, size, b: ("add", ("mul", a, size), b), children, _POSITIVE, children),
        st.builds(lambda a, size: ("add", ("mul", ("floordiv", a, size), size), ("mod", a, size)), children, _POSITIVE),
    )


TREES = st.recursive(_LEAF, _grow, max_leaves=8)

_BUILD: dict[str, Callable[[Any, Any], Any]] = {
    "add": ix.add,
    "sub": lambda left, right: ix.add(left, ix.multiply(right, -1)),
    "mul": ix.multiply,
    "min": ix.minimum,
    "max": ix.maximum,
    "floordiv": ix.floordiv,
    "mod": ix.modulo,
    "ceildiv": ix.ceildiv,
}
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "ceildiv": lambda left, right: -(-left // right),
}


def build(tree: Tree, variables: dict[str, ix.Dim]) -> ix.Dim:
    if tree[0] == "const":
        return tree[1]
    if tree[0] == "var":
        return variables[tree[1]]
    return _BUILD[tree[0]](build(tree[1], variables), build(tree[2], variables))


def compute(tree: Tree, points: dict[str, np.ndarray]) -> np.ndarray:
    if tree[0] == "const":
        return np.full(len(points["x"]), tree[1], np.int64)
    if tree[0] == "var":
        return points[tree[1]]
    return _COMPUTE[tree[0]](compute(tree[1], points), compute(tree[2], points))


def evaluated(value: ix.Dim, points: dict[str, np.ndarray]) -> np.ndarray:
    return np.broadcast_to(ix.evaluate(value, points), points["x"].shape)


@settings(max_examples=250, deadline=None)
@given(TREES, spaces())
def test_simplified_indices_have_the_value_of_their_expression(tree: Tree, space: Space) -> None:
    value = build(tree, space.variables())
    np.testing.assert_array_equal(evaluated(value, space.points()), compute(tree, space.points()))


@settings(max_examples=100, deadline=None)
@given(TREES, spaces())
def test_bounds_hold(tree: Tree, space: Space) -> None:
    low, high = ix.bounds(build(tree, space.variables()))
    found = compute(tree, space.points())
    assert low <= found.min()
    assert found.max() <= high


@settings(max_examples=100, deadline=None)
@given(TREES, TREES, spaces())
def test_substitution_replaces_a_variable_everywhere(tree: Tree, replacement: Tree, space: Space) -> None:
    variables, points = space.variables(), space.points()
    chosen = ("max", ("min", replacement, ("sub", ("var", "n"), ("const", 1))), ("const", 0))  # it stays below n
    result = ix.substitute(build(tree, variables), {"x": build(chosen, variables)})
    moved = {**points, "x": compute(chosen, points)}
    np.testing.assert_array_equal(evaluated(result, points), compute(tree, moved))


@settings(max_examples=100, deadline=None)
@given(TREES, spaces())
def test_a_plan_evaluates_serialised_indices_to_the_same_number(tree: Tree, space: Space) -> None:
    value = build(tree, space.variables())
    expected = compute(tree, space.points())
    for position in range(0, len(expected), max(len(expected) // 5, 1)):
        symbols = {name: int(column[position]) for name, column in space.points().items()}
        assert evaluate(serialise(value), symbols) == expected[position]


@settings(max_examples=100, deadline=None)
@given(TREES, TREES, spaces())
def test_decided_comparisons_hold_for_all_values(left: Tree, right: Tree, space: Space) -> None:
    variables, points = space.variables(), space.points()
    first, second = build(left, variables), build(right, variables)
    smaller = compute(left, points) < compute(right, points)
    same = compute(left, points) == compute(right, points)
    if ix.always_less(first, second):
        assert smaller.all()
    for decide, outcome in ((ix.less, smaller), (ix.equal, same)):
        try:
            decided = decide(first, second)
        except ix.Undecidable:
            continue
        assert (outcome == decided).all()


@settings(max_examples=100, deadline=None)
@given(TREES, TREES, spaces())
def test_a_multiple_divides_exactly(tree: Tree, divisor: Tree, space: Space) -> None:
    variables, points = space.variables(), space.points()
    by = build(divisor, variables)
    assume(by != 0)
    quotient = ix.divide(build(tree, variables), by)
    if quotient is not None:
        product = evaluated(quotient, points) * compute(divisor, points)
        np.testing.assert_array_equal(product, compute(tree, points))


@settings(max_examples=100, deadline=None)
@given(TREES, spaces())
def test_equal_expressions_built_twice_are_equal_and_print_alike(tree: Tree, space: Space) -> None:
    first, second = build(tree, space.variables()), build(tree, space.variables())
    assert first == second
    assert hash(first) == hash(second)
    assert ix.text(first) == ix.text(second)


# -- simplifications that views rely on -------------------------------------------------------------------------------


def _coordinates(**sizes: int) -> dict[str, ix.Dim]:
    return {name: ix.variable(name, 0, size - 1) for name, size in sizes.items()}


def test_taking_an_element_number_apart_gives_its_coordinates_back() -> None:
    v = _coordinates(a=5, b=4, c=8)
    number = v["a"] * 32 + v["b"] * 8 + v["c"]
    assert number // 32 == v["a"]
    assert (number // 8) % 4 == v["b"]
    assert number % 8 == v["c"]
    assert number // 8 == v["a"] * 4 + v["b"]


def test_putting_an_element_number_together_again_gives_it_back() -> None:
    x = ix.variable("x", 0, 95)
    assert (x // 8) * 8 + x % 8 == x
    assert ((x // 8) % 4) * 8 + x % 8 == x % 32
    assert (x // 32) * 32 + ((x // 8) % 4) * 8 + x % 8 == x


def test_nested_divisions_become_one() -> None:
    x = ix.variable("x", 0, 999)
    assert (x // 4) // 5 == x // 20
    assert (x * 6) // 4 == (x * 3) // 2
    assert (x * 6 + 1) // 2 == x * 3


def test_extremes_of_indices_with_a_known_difference_are_decided() -> None:
    n = ix.variable("n", 1, 512)
    assert ix.minimum(n - 1, n) == n - 1
    assert ix.maximum(n - 1, n) == n
    assert ix.minimum(n, 2**31 - 1) == n


def test_symbolic_sizes_divide() -> None:
    batch, length = ix.variable("batch", 1, 8), ix.variable("length", 1, 512)
    assert ix.divide(batch * length * 768, batch * 768) == length
    assert ix.divide(batch * (length + 1) * 64, (length + 1) * 16) == batch * 4
    assert ix.divide(batch * length, length + 1) is None
    assert ix.divide(length * 3, 2) is None


def test_coordinates_of_symbolic_axes_are_below_their_sizes() -> None:
    batch, length = ix.variable("batch", 1, 8), ix.variable("length", 1, 512)
    b, s, d = ix.coordinate("b", batch), ix.coordinate("s", length), ix.coordinate("d", 64)
    number = (b * length + s) * 64 + d
    assert number // 64 == b * length + s
    assert number // (length * 64) == b
    assert (number // 64) % length == s
    assert ix.always_less(number, batch * length * 64)
    assert ix.minimum(s, length - 1) == s
    assert ix.maximum(length - 1 - s, 0) == length - 1 - s
    assert not ix.always_less(s + 1, length)


def test_undecidable_comparisons_say_so() -> None:
    n = ix.variable("n", 1, 9)
    with pytest.raises(ix.Undecidable, match="n"):
        ix.equal(n, 5)
    with pytest.raises(ix.Undecidable, match="n"):
        ix.less(n, 5)
    assert ix.less(n, 10)
    assert not ix.equal(n, 0)


def test_an_extremum_is_compared_with_its_operands() -> None:
    n, m = ix.variable("n", 1, 9), ix.variable("m", 0, 9)
    least, largest = ix.minimum(n, ix.add(m, 3)), ix.maximum(n, ix.add(m, 3))
    assert not ix.less(n, least)
    assert not ix.less(largest, n)
    assert ix.less(least, n + 1)
    assert ix.less(m, largest)
    assert not ix.less(n * 2 + largest, n * 3)
    for first, second in ((least, n), (n, largest), (least, m)):
        with pytest.raises(ix.Undecidable):
            ix.less(first, second)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_views_of_axes_whose_sizes_are_sums(step: int, count: int, low: int, rows: int, factor: int, more: int) -> None:
    """An axis of ``step * n + low`` elements, joined with others and split again: every coordinate is the plain one."""
    columns = ix.add(ix.multiply(ix.variable("n", 1, count), step), low)
    row = ix.coordinate("row", ix.multiply(ix.variable("m", 1, rows), factor))
    column = ix.coordinate("column", columns)
    position = ix.add(ix.multiply(row, columns), column)
    assert ix.floordiv(position, columns) == row
    assert ix.modulo(position, columns) == column
    place = ix.coordinate("place", ix.multiply(ix.multiply(columns, 7), factor + more))
    back = ix.add(ix.multiply(ix.floordiv(place, columns), columns), ix.modulo(place, columns))
    assert back == place
    scaled = ix.multiply(back, factor)
    assert scaled == ix.multiply(place, factor)
