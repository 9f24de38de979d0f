"""Views: where they read, where they store, and how simple the index arithmetic between them stays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shaderloom.compiler.ir.graph import Graph, Node, Shape, Value
from shaderloom.compiler.ops.math.regroup import groups, reindex
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.rewriting.builder import GraphBuilder
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.polynomial import Dim
from shaderloom.runtime.plan import dtypes
from shaderloom.runtime.plan.errors import ShapeError

BATCH = ix.variable("batch", 1, 8)
LENGTH = ix.variable("length", 1, 512)


def make(op: str, shape: Shape, *static: Sequence[int], **attributes: Any) -> Node:
    """A node on an input of ``shape`` with constant further inputs."""
    graph = Graph("test")
    builder = GraphBuilder(graph)
    data = graph.add_input("x", dtypes.FLOAT32, shape)
    operands: list[Value] = [builder.constant(np.array(values, np.int64)) for values in static]
    producer = builder.op(op, data, *operands, **attributes).producer
    assert producer is not None
    return producer


def read_coordinates(node: Node, coordinates: Sequence[Dim]) -> Shape:
    """Where a view reads its input for an output element."""
    found: list[Shape] = []

    def read(position: int, where: Sequence[Dim]) -> ex.Expr:
        assert position == 0
        found.append(tuple(where))
        return ex.load("x", "float32", tuple(where), "f32")

    gather = registry.of(node).gather
    assert gather is not None
    gather(node, coordinates, read)
    assert len(found) == 1
    return found[0]


def coordinates_of(shape: Shape, prefix: str = "c") -> Shape:
    return tuple(ix.coordinate(f"{prefix}{axis}", size) for axis, size in enumerate(shape))


def points(shape: Shape) -> dict[str, np.ndarray]:
    """Every coordinate tuple of a shape of numbers, one column a variable."""
    columns = np.array(list(itertools.product(*(range(int(size)) for size in shape))), np.int64).reshape(-1, len(shape))
    return {f"c{axis}": columns[:, axis] for axis in range(len(shape))}


def evaluated(coordinates: Sequence[Dim], variables: dict[str, np.ndarray], count: int) -> np.ndarray:
    columns = [np.broadcast_to(ix.evaluate(at, variables), count) for at in coordinates]
    return np.stack(columns, axis=-1) if columns else np.zeros((count, 0), np.int64)


VIEWS = [
    ("Reshape", (2, 3, 4), [(6, 4)], {}),
    ("Reshape", (2, 3, 5), [(5, 6)], {}),
    ("Reshape", (4, 6), [(3, 8)], {}),
    ("Reshape", (2, 3, 4, 5), [(2, 12, 5, 1)], {}),
    ("Reshape", (6, 1, 4), [(2, 3, 2, 2)], {}),
    ("Flatten", (2, 3, 4), [], {"axis": 2}),
    ("Squeeze", (1, 3, 1, 2), [(0, 2)], {}),
    ("Unsqueeze", (3, 2), [(0, 3)], {}),
    ("Transpose", (2, 3, 4), [], {"perm": (2, 0, 1)}),
    ("Transpose", (2, 3, 2, 2), [], {"perm": (0, 2, 3, 1)}),
    ("DepthToSpace", (1, 8, 2, 3), [], {"blocksize": 2}),
    ("DepthToSpace", (2, 9, 2, 1), [], {"blocksize": 3, "mode": "CRD"}),
    ("SpaceToDepth", (1, 2, 4, 6), [], {"blocksize": 2}),
    ("SpaceToDepth", (2, 2, 3, 3), [], {"blocksize": 3, "mode": "CRD"}),
]


@pytest.mark.parametrize(("op", "shape", "static", "attributes"), VIEWS)
def test_store_map_is_the_inverse_of_the_gather(
    op: str, shape: Shape, static: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    node = make(op, shape, *static, **attributes)
    store_map = registry.of(node).store_map
    assert store_map is not None
    output = node.output.shape
    count = math.prod(int(size) for size in output)
    reads = evaluated(read_coordinates(node, coordinates_of(output)), points(output), count)
    assert len(np.unique(reads, axis=0)) == count, "an element is read twice"
    assert (reads >= 0).all()
    assert (reads < np.array(shape)).all()
    columns = {f"c{axis}": reads[:, axis] for axis in range(len(shape))}
    back = evaluated(store_map(node, coordinates_of(shape)), columns, count)
    np.testing.assert_array_equal(back, np.stack(list(points(output).values()), axis=-1))


@pytest.mark.parametrize(("op", "shape", "static", "attributes"), VIEWS)
def test_store_map_after_gather_simplifies_to_the_coordinates(
    op: str, shape: Shape, static: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    node = make(op, shape, *static, **attributes)
    store_map = registry.of(node).store_map
    assert store_map is not None
    coordinates = coordinates_of(shape)
    assert read_coordinates(node, store_map(node, coordinates)) == coordinates


def test_every_definition_with_a_store_map_is_tested() -> None:
    public = [definition for definition in registry.all() if definition.domain != "loom"]
    defined = {definition.name for definition in public if definition.store_map is not None}
    assert defined == {op for op, *_ in VIEWS} | {"Identity"}


# -- groups of axes ---------------------------------------------------------------------------------------------------


def test_unchanged_axes_are_groups_of_their_own() -> None:
    assert list(groups((8, 12, 64), (8, 768))) == [([0], [0]), ([1, 2], [1])]
    assert list(groups((BATCH, LENGTH, 768), (BATCH, LENGTH, 12, 64))) == [([0], [0]), ([1], [1]), ([2], [2, 3])]
    assert list(groups((1, 6, 1, 5), (3, 2, 5, 1))) == [([1], [0, 1]), ([3], [2])]


@st.composite
def _two_shapes(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), min_size=1, max_size=6))

    def cut(values: list[int]) -> tuple[int, ...]:
        shape, size = [], 1
        for value in values:
            size *= value
            if draw(st.booleans()):
                shape.append(size)
                size = 1
        return (*shape, size)

    return cut(factors), cut(draw(st.permutations(factors)))


@settings(max_examples=150, deadline=None)
@given(_two_shapes())
def test_reindex_keeps_the_row_major_number(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = shapes
    count = math.prod(source)
    result = evaluated(reindex(coordinates_of(source), source, target), points(source), count)
    numbers = np.ravel_multi_index(tuple(result.T), target)
    np.testing.assert_array_equal(numbers, np.arange(count))


# -- what chains of views become --------------------------------------------------------------------------------------


def test_splitting_heads_keeps_plain_coordinates() -> None:
    """Reshape to heads and Transpose, as before attention: only the merged axis is computed, the others are plain."""
    split = make("Reshape", (BATCH, LENGTH, 768), (0, 0, 12, 64))
    heads = make("Transpose", split.output.shape, perm=(0, 2, 1, 3))
    b, h, s, d = coordinates_of(heads.output.shape)
    where = read_coordinates(split, read_coordinates(heads, (b, h, s, d)))
    assert where == (b, s, ix.add(ix.multiply(h, 64), d))


def test_merging_heads_is_the_inverse_without_arithmetic_left() -> None:
    split = make("Reshape", (BATCH, LENGTH, 768), (0, 0, 12, 64))
    merge = make("Reshape", split.output.shape, (0, 0, -1))
    assert merge.output.shape == (BATCH, LENGTH, 768)
    coordinates = coordinates_of(merge.output.shape)
    assert read_coordinates(split, read_coordinates(merge, coordinates)) == coordinates


def test_flattening_symbolic_axes_for_a_matrix_product_and_back_cancels() -> None:
    flat = make("Reshape", (BATCH, LENGTH, 768), (-1, 768))
    assert flat.output.shape == (ix.multiply(BATCH, LENGTH), 768)
    coordinates = coordinates_of((BATCH, LENGTH, 768))
    stored = registry.of(flat).store_map
    assert stored is not None
    assert read_coordinates(flat, stored(flat, coordinates)) == coordinates


def test_neighbours_stay_neighbours_through_a_split_of_the_innermost_axis() -> None:
    """Four neighbours that start at a multiple of four read four neighbours: the load can be one vector."""
    split = make("Reshape", (2, 768), (2, 12, 64))
    merge = make("Reshape", split.output.shape, (2, 768))
    quad, lane = ix.variable("quad", 0, 191), ix.variable("lane", 0, 3)
    row, column = read_coordinates(merge, (0, ix.add(ix.multiply(quad, 4), lane)))[:2]
    assert "lane" not in ix.variables(column)
    inner = read_coordinates(merge, (0, ix.add(ix.multiply(quad, 4), lane)))[2]
    assert ix.add(inner, ix.multiply(lane, -1)) == ix.multiply(ix.modulo(quad, 16), 4)
    assert row == 0


def test_a_slice_shifts_and_a_broadcast_drops_a_coordinate() -> None:
    node = make("Expand", (3, 1, 5), (2, 3, 4, 5))
    c = coordinates_of(node.output.shape)
    assert read_coordinates(node, c) == (c[1], 0, c[3])


def test_resizing_by_two_reads_at_half_the_coordinate() -> None:
    graph = Graph("test")
    builder = GraphBuilder(graph)
    image = graph.add_input("x", dtypes.FLOAT32, (1, 3, 8, LENGTH))
    scales = builder.constant(np.array([1, 1, 2, 2], np.float32))
    resized = builder.op(
        "Resize", image, None, scales, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    assert resized.shape == (1, 3, 16, ix.multiply(LENGTH, 2))
    assert resized.producer is not None
    expand = registry.of(resized.producer).expand
    assert expand is not None
    (sampled,) = expand(builder, resized.producer)
    assert sampled.producer is not None
    n, c, y, x = coordinates_of(sampled.shape)
    where = read_coordinates(sampled.producer, (n, c, y, x))
    assert where[:3] == (n, c, ix.floordiv(y, 2))


def test_constants_of_symbolic_shapes_become_symbolic_values() -> None:
    """Shape -> Gather -> Unsqueeze -> Concat -> Reshape, as exporters write it, over a declared dynamic dimension."""
    graph = Graph("test")
    builder = GraphBuilder(graph)
    x = graph.add_input("x", dtypes.FLOAT32, (BATCH, LENGTH, 768))
    shape = builder.op("Shape", x)
    length = builder.op("Gather", shape, builder.constant(np.array(1)), axis=0)
    parts = [builder.constant(np.array([-1]))]
    parts.append(builder.op("Unsqueeze", length, builder.constant(np.array([0]))))
    parts += [builder.constant(np.array([12])), builder.constant(np.array([64]))]
    result = builder.op("Reshape", x, builder.op("Concat", *parts, axis=0))
    assert result.shape == (BATCH, LENGTH, 12, 64)


def test_ranges_over_symbolic_limits_have_symbolic_lengths() -> None:
    graph = Graph("test")
    builder = GraphBuilder(graph)
    x = graph.add_input("x", dtypes.FLOAT32, (BATCH, LENGTH))
    length = builder.op("Gather", builder.op("Shape", x), builder.constant(np.array(-1)), axis=0)
    positions = builder.op("Range", builder.constant(np.array(0)), length, builder.constant(np.array(1)))
    assert positions.shape == (LENGTH,)
    tail = builder.op(
        "Slice",
        positions,
        builder.constant(np.array([-2])),
        builder.constant(np.array([2**63 - 1])),
    )
    assert ix.bounds(tail.shape[0]) == (1, 2)


@pytest.mark.parametrize(
    ("op", "shape", "static", "attributes", "reason"),
    [
        ("Reshape", (2, 3), [(4, -1)], {}, "does not divide"),
        ("Reshape", (2, 3), [(-1, -1)], {}, "more than one size is -1"),
        ("Reshape", (2, 3), [(5,)], {}, "does not reshape"),
        ("Reshape", (2, 3), [(2, 3, 0)], {}, "copies an axis"),
        ("Squeeze", (2, 3), [(0,)], {}, "cannot be squeezed"),
        ("Squeeze", (LENGTH, 3), [], {}, "whether length is 1"),
        ("Transpose", (2, 3), [], {"perm": (0, 0)}, "not a permutation"),
        ("Expand", (2, 3), [(2, 4)], {}, "do not broadcast"),
        ("Expand", (LENGTH, 3), [(5, 3)], {}, "do not broadcast"),
        ("Slice", (4,), [(0,), (4,), (1,)], {}, "out of range"),
        ("Slice", (4,), [(0,), (4,), (0,), (0,)], {}, "step"),
        ("Split", (5,), [(2, 2)], {}, "do not make up 5"),
        ("Tile", (2, 3), [(2,)], {}, "repeats"),
        ("Pad", (2, 3), [(1, 1)], {}, "pads"),
        ("Pad", (2, 3), [(-3, 0, 0, 0)], {}, "cut below zero"),
        ("DepthToSpace", (1, 6, 2, 2), [], {"blocksize": 2}, "not a multiple"),
    ],
)
def test_operands_that_do_not_fit_are_refused_with_the_reason(
    op: str, shape: Shape, static: list[tuple[int, ...]], attributes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ShapeError, match=reason):
        make(op, shape, *static, **attributes)
