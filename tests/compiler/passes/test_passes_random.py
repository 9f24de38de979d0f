"""Passes on every operator's cases and on random graphs: results are those of the graph before.

Covers: compiler/passes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.graph import Graph, Value
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.compiler.rewriting.builder import GraphBuilder
from shaderloom.runtime.plan.dtypes import FLOAT32
from shaderloom.runtime.plan.errors import Origin, ShapeError, UnsupportedError

from ...support.cases import OperatorCase, all_cases, difference
from ...support.passes import OPTIONAL_REWRITES, run_rewrites

CASES = all_cases()


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_operator_cases(operator: OperatorCase):
    """With the sizes as numbers, and declared dynamic where the operator allows it."""
    model = operator.model()
    shapes = {name: array.shape for name, array in operator.feeds.items()}
    for dynamic in (False, True):
        dims = {
            name: [size if size < 2 else f"size{size}" for size in array.shape]
            for name, array in operator.feeds.items()
        }
        names = {dim for sizes in dims.values() for dim in sizes if isinstance(dim, str)}
        if dynamic and not names:
            continue
        imported = load_model(operator.model(dims) if dynamic else model)
        sizes = {name: int(name.removeprefix("size")) for name in names} if dynamic else {}
        ranges = {name: (2, size + 3) for name, size in sizes.items()}
        try:
            graph = specialise(imported, bind_shapes(imported, shapes, ranges).shapes)
            expand(graph)
        except (ShapeError, UnsupportedError):
            assert dynamic, "only a dynamic size may be refused"
            continue
        expected = run_graph(graph, operator.feeds, sizes)
        run_rewrites(graph, verify=True)
        for before, after in zip(expected, run_graph(graph, operator.feeds, sizes), strict=True):
            assert difference(after, before) <= 1e-6, str(graph)


# -- random graphs ---------------------------------------------------------------------------------------------------


class _Grower:
    """Grows a graph of [1, C, H, W] tensors and of their views, one drawn step after the other."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.graph = Graph("g")
        self.values: list[Value] = [self.graph.add_input("x", FLOAT32, (1, 4, 3, 6))]
        self.builder = GraphBuilder(self.graph)
        self.step = 0

    def draw(self, strategy: st.SearchStrategy):
        return self.data.draw(strategy)

    def number(self, *shape: int, low: float = 0.5) -> Value:
        generator = np.random.default_rng((self.step, *shape))
        sign = generator.choice([-1.0, 1.0], shape)
        return self.builder.constant((generator.uniform(low, low + 1.0, shape) * sign).astype(np.float32))

    def grow(self) -> None:
        self.step += 1
        self.builder.origins = (Origin("main", self.step, "Step"),)
        value = self.draw(st.sampled_from(self.values[-4:]))
        kinds = [self.arithmetic, self.arithmetic, self.unary, self.shape, self.transpose, self.slice, self.join]
        if value.rank == 4:
            kinds += [self.convolution, self.pool, self.padded_convolution]
        if value.rank >= 2:
            kinds.append(self.matmul)
        made = self.draw(st.sampled_from(kinds))(value)
        if made is not None and made.producer is not None:
            self.values.append(made)

    def arithmetic(self, value: Value) -> Value:
        operator = self.draw(st.sampled_from(["Add", "Mul", "Sub", "Div"]))
        mask = self.draw(st.lists(st.booleans(), min_size=value.rank, max_size=value.rank))
        shape = tuple(int(size) if kept else 1 for size, kept in zip(value.shape, mask))
        constant = self.draw(st.sampled_from([self.number(*shape), self.builder.scalar(1.0, value), self.number()]))
        if operator in ("Add", "Mul") and self.draw(st.booleans()):
            return self.builder.op(operator, constant, value)
        return self.builder.op(operator, value, constant)

    def unary(self, value: Value) -> Value:
        return self.builder.op(self.draw(st.sampled_from(["Neg", "Relu", "Abs", "Tanh"])), value)

    def shape(self, value: Value) -> Value:
        sizes = [int(size) for size in value.shape]
        options = [[-1], [1, *sizes], [*sizes[:-1], 1, sizes[-1]], [sizes[0], -1], [int(np.prod(sizes[:-1])), -1]]
        wanted = self.draw(st.sampled_from(options))
        return self.builder.op("Reshape", value, self.builder.constant(np.array(wanted, np.int64)))

    def transpose(self, value: Value) -> Value:
        return self.builder.op("Transpose", value, perm=tuple(self.draw(st.permutations(range(value.rank)))))

    def slice(self, value: Value) -> Value | None:
        axis = self.draw(st.integers(0, value.rank - 1))
        size = int(value.shape[axis])
        start = self.draw(st.integers(0, size - 1))
        end = self.draw(st.integers(start + 1, size))
        bounds = [self.builder.constant(np.array([number], np.int64)) for number in (start, end, axis)]
        return self.builder.op("Slice", value, *bounds)

    def join(self, value: Value) -> Value:
        others = [other for other in self.values if other.shape == value.shape]
        other = self.draw(st.sampled_from(others))
        kind = self.draw(st.sampled_from(["Concat", "Add", "Mul"]))
        if kind == "Concat":
            return self.builder.op("Concat", value, other, axis=self.draw(st.integers(0, value.rank - 1)))
        return self.builder.op(kind, value, other)

    def convolution(self, value: Value) -> Value:
        channels = int(value.shape[1])
        return self.builder.op("Conv", value, self.number(3, channels, 1, 1, low=0.1), self.number(3))

    def padded_convolution(self, value: Value) -> Value:
        pads = self.builder.constant(np.array([0, 0, 1, 0, 0, 0, 1, 0], np.int64))
        weight = self.number(2, int(value.shape[1]), 3, 1, low=0.1)
        return self.builder.op("Conv", self.builder.op("Pad", value, pads), weight)

    def pool(self, value: Value) -> Value:
        kind = self.draw(st.sampled_from(["MaxPool", "AveragePool"]))
        pads = self.builder.constant(np.array([0, 0, 0, 1, 0, 0, 0, 1], np.int64))
        return self.builder.op(kind, self.builder.op("Pad", value, pads), kernel_shape=(1, 2))

    def matmul(self, value: Value) -> Value:
        return self.builder.op("MatMul", value, self.number(int(value.shape[-1]), 3, low=0.1))


def _finish(graph: Graph, values: list[Value]) -> Graph:
    outputs = [value for value in values if not value.uses] or values[-1:]
    graph.outputs = outputs
    graph.output_names = [f"y{position}" for position in range(len(outputs))]
    expand(graph)
    return graph


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_graphs(data: st.DataObject):
    grower = _Grower(data)
    for _ in range(data.draw(st.integers(1, 14))):
        grower.grow()
    graph = _finish(grower.graph, grower.values)
    disabled = data.draw(st.sets(st.sampled_from(OPTIONAL_REWRITES), max_size=2))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 4, 3, 6)).astype(np.float32)}
    expected = run_graph(graph, feeds)
    text = str(graph)
    run_rewrites(graph, disabled=disabled, verify=True)
    for before, after in zip(expected, run_graph(graph, feeds), strict=True):
        scale = max(float(np.abs(before).max(initial=0.0)), 1e-3)
        error = float(np.abs(after.astype(np.float64) - before).max(initial=0.0)) / scale
        assert error <= 1e-4, f"{error}\n{text}\n{graph}"
