"""Random models for property tests.

Every value carries bounds on its elements: ``high`` on the magnitude, and ``grain`` such that all elements are
multiples of ``2**-grain``.  Where both together fit into the 24 bits of a float's mantissa the value is *exact* however
it is computed, so operators with jumps (Floor, Less, ArgMax, casts to integers) are applied to exact values only, and
two correct programs agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

OPSET = 21
LARGEST = 1e4  #: no value grows beyond
MOST_ELEMENTS = 4096
ANY_INTEGER = ("int32", "int64")
NUMBERS = ("float32", *ANY_INTEGER)
STORED = (*NUMBERS, "bool", "uint8", "int8", "float16")


@dataclass(frozen=True)
class Known:
    """A value of the graph and what is known of its elements; ``grain`` None: inexact."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    high: float
    grain: int | None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def exact(self) -> bool:
        if self.dtype != "float32":
            return self.dtype != "float16"
        return self.grain is not None and self.high * 2**self.grain <= 2**24


@dataclass
class RandomGraph:
    """A model under construction, with data for its inputs."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    generator: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Known] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    inexact: set[str] = field(default_factory=set)  #: values that depend on an inexact one
    inputs_only: bool = False  #: no initializers but those of given elements
    leaves: int = 0

    # -- drawing ---------------------------------------------------------------------------------------------------

    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flip(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        """Small sizes, now and then one of nothing or a larger one."""
        sizes = st.sampled_from((1, 2, 3, 4, 5, 8, 1, 2, 3, 4, 7, 12, 0, 33))
        rank = self.integer(low, high)
        found = tuple(self.draw(sizes) for _ in range(rank))
        return found if math.prod(found) <= MOST_ELEMENTS else tuple(min(size, 4) for size in found)

    # -- values ----------------------------------------------------------------------------------------------------

    def data(self, dtype: str, shape: Sequence[int]) -> np.ndarray:
        if dtype == "bool":
            return self.generator.integers(0, 2, shape).astype(np.bool_)
        if dtype == "uint8":
            return self.generator.integers(0, 200, shape).astype(np.uint8)
        if dtype.startswith("int"):
            return self.generator.integers(-9, 10, shape).astype(dtype)
        return (self.generator.integers(-8, 9, shape) / 4).astype(dtype)

    def leaf(self, dtype: str, shape: Sequence[int], array: np.ndarray | None = None) -> Known:
        """A new input or initializer (an initializer if ``array`` is given)."""
        self.leaves += 1
        name = f"v{self.leaves}"
        constant = array is not None or (not self.inputs_only and self.flip())
        array = np.asarray(self.data(dtype, shape) if array is None else array)
        (self.initializers if constant else self.feeds)[name] = array
        value = Known(name, dtype, tuple(shape), float(np.abs(array.astype(np.float64)).max(initial=0)), 2)
        self.values.append(value)
        return value

    def constant(self, array: np.ndarray) -> str:
        """An initializer that no other node shall pick: shapes, axes, pads."""
        self.leaves += 1
        name = f"c{self.leaves}"
        self.initializers[name] = array
        return name

    def pick(self, dtypes: Sequence[str] = ("float32",), suits: Callable[[Known], bool] = lambda value: True) -> Known:
        """An earlier value, preferably a recent one, or a new leaf."""
        found = [value for value in self.values if value.dtype in dtypes and suits(value)]
        if found and self.integer(0, 7):
            return found[max(len(found) - 1 - self.integer(0, 3), 0)]
        for _ in range(8):
            value = self.leaf(self.choose(dtypes), self.shape())
            if suits(value):
                return value
        raise Unsuitable

    def partner(self, value: Known) -> Known:
        """A value that broadcasts against ``value``."""
        found = [
            other
            for other in self.values
            if other.dtype == value.dtype and broadcast(other.shape, value.shape) is not None
        ]
        if found and self.flip():
            return self.choose(found)
        keep = self.integer(0, value.rank)
        shape = [1 if self.integer(0, 2) == 0 else size for size in value.shape[value.rank - keep :]]
        if keep == value.rank and self.integer(0, 4) == 0:
            shape = [self.integer(1, 3), *shape]
        if math.prod(shape) > MOST_ELEMENTS:
            raise Unsuitable
        return self.leaf(value.dtype, shape)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def node(
        self,
        op: str,
        inputs: Sequence[Known | str],
        shape: Sequence[int],
        high: float,
        grain: int | None,
        *,
        dtype: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Known:
        return self.nodes_of(op, inputs, [shape], high, grain, dtype=dtype, domain=domain, **attributes)[0]

    def nodes_of(
        self,
        op: str,
        inputs: Sequence[Known | str],
        shapes: Sequence[Sequence[int]],
        high: float,
        grain: int | None,
        *,
        dtype: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[Known]:
        """Append a node; raises :class:`Unsuitable` if its results would be too many or too large."""
        operands = [value for value in inputs if isinstance(value, Known)]
        kind = dtype or operands[0].dtype
        limits = {"float32": LARGEST, "float16": 256.0, "int8": 100.0, "uint8": 250.0, "bool": 1.0}
        if high > limits.get(kind, 2.0**30) or any(math.prod(shape) > MOST_ELEMENTS for shape in shapes):
            raise Unsuitable
        names = [f"n{len(self.nodes)}_{position}" for position in range(len(shapes))]
        arguments = [value.name if isinstance(value, Known) else value for value in inputs]
        self.nodes.append(helper.make_node(op, arguments, names, domain=domain, **attributes))
        results = [Known(name, kind, tuple(shape), high, grain) for name, shape in zip(names, shapes)]
        depends = any(value.name in self.inexact for value in operands)
        self.inexact |= {result.name for result in results if depends or not result.exact}
        self.values += results
        return results

    def model(self, outputs: Sequence[Known], dims: dict[str, Sequence[int | str]] | None = None) -> onnx.ModelProto:
        def port(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
            shape = (dims or {}).get(name, array.shape)
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)

        graph = helper.make_graph(
            self.nodes,
            "random",
            [port(name, array) for name, array in self.feeds.items()],
            [
                helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)), None)
                for v in outputs
            ],
            [numpy_helper.from_array(array, name) for name, array in self.initializers.items()],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def named_dims(self) -> dict[str, list[int | str]]:
        """Shapes of the inputs with a name for every size above 1, the same name for equal sizes."""
        return {
            name: [size if size < 2 else f"size{size}" for size in array.shape] for name, array in self.feeds.items()
        }

    def resized(self, sizes: dict[int, int]) -> dict[str, np.ndarray]:
        """Other data for the inputs, with the sizes replaced that ``sizes`` maps."""
        return {
            name: np.asarray(self.data(array.dtype.name, [sizes.get(size, size) for size in array.shape]))
            for name, array in self.feeds.items()
        }


class Unsuitable(Exception):
    """The node that was tried does not fit; another one is drawn."""


def broadcast(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(tuple(left), tuple(right))
    except ValueError:
        return None


def sum_grain(*grains: int | None) -> int | None:
    return None if None in grains else max(grains)  # type: ignore[type-var]


def product_grain(*grains: int | None) -> int | None:
    return None if None in grains else sum(grains)  # type: ignore[arg-type]


# -- elementwise -----------------------------------------------------------------------------------------------------

#: operator -> bound of the result from that of the operand, where results are inexact
SMOOTH: dict[str, Callable[[float], float]] = {
    "Sigmoid": lambda high: 1.0,
    "Tanh": lambda high: 1.0,
    "Erf": lambda high: 1.0,
    "Sin": lambda high: 1.0 if high < 100 else math.inf,
    "Cos": lambda high: 1.0 if high < 100 else math.inf,
    "Atan": lambda high: 2.0,
    "Exp": lambda high: math.exp(high) if high < 8 else math.inf,
    "Elu": lambda high: high + 1,
    "Selu": lambda high: 2 * high + 2,
    "Celu": lambda high: high + 1,
    "Softplus": lambda high: high + 1,
    "Softsign": lambda high: 1.0,
    "Gelu": lambda high: high + 1,
    "Mish": lambda high: high + 1,
    "HardSwish": lambda high: high + 1,
    "HardSigmoid": lambda high: 1.0,
    "Asinh": lambda high: high + 1,
}
EXACT = ("Abs", "Neg", "Relu", "Identity", "Sign")
JUMPS = ("Floor", "Ceil", "Round", "ThresholdedRelu", "Shrink")


def smooth(graph: RandomGraph) -> None:
    op = graph.choose(tuple(SMOOTH))
    value = graph.pick()
    graph.node(op, [value], value.shape, SMOOTH[op](value.high), None)


def root(graph: RandomGraph) -> None:
    value = graph.pick()
    squares = graph.node("Mul", [value, value], value.shape, value.high**2, product_grain(value.grain, value.grain))
    if graph.flip():
        graph.node("Sqrt", [squares], value.shape, value.high + 1, None)
    else:
        one = graph.leaf("float32", (), np.array(1, np.float32))
        total = graph.node("Add", [squares, one], value.shape, value.high**2 + 1, squares.grain)
        graph.node(graph.choose(("Reciprocal", "Log", "Sqrt")), [total], value.shape, value.high**2 + 1, None)


def unary(graph: RandomGraph) -> None:
    op = graph.choose((*EXACT, *JUMPS))
    if op in JUMPS:
        value = graph.pick(suits=lambda value: value.exact and value.name not in graph.inexact)
    else:
        dtypes = ("float32", "int32", "int64", "float16") if op != "Relu" else ("float32", "float16")
        value = graph.pick(dtypes, lambda value: op != "Sign" or value.name not in graph.inexact)
    attributes = {"alpha": 0.5} if op == "ThresholdedRelu" else {"lambd": 0.75, "bias": 0.25} if op == "Shrink" else {}
    graph.node(op, [value], value.shape, value.high + 1, None if value.grain is None else value.grain + 2, **attributes)


def leaky(graph: RandomGraph) -> None:
    value = graph.pick()
    if graph.flip():
        graph.node("LeakyRelu", [value], value.shape, value.high, product_grain(value.grain, 2), alpha=0.25)
    else:
        slope = graph.leaf("float32", value.shape[-1:], graph.data("float32", value.shape[-1:]))
        graph.node("PRelu", [value, slope], value.shape, 2 * value.high, product_grain(value.grain, 2))


def clip(graph: RandomGraph) -> None:
    value = graph.pick(("float32", "int32", "int64"))
    low = graph.constant(np.array(-1, value.dtype)) if graph.flip() else ""
    high = graph.constant(np.array(2, value.dtype)) if graph.flip() or not low else ""
    graph.node("Clip", [value, low, high], value.shape, value.high + 2, value.grain)


def arithmetic(graph: RandomGraph) -> None:
    left = graph.pick((*NUMBERS, "float16", "float32"))
    right = graph.partner(left)
    op = graph.choose(("Add", "Sub", "Mul", "Max", "Min"))
    shape = broadcast(left.shape, right.shape)
    if shape is None:
        raise Unsuitable
    if graph.flip():
        left, right = right, left
    if op == "Mul":
        graph.node(op, [left, right], shape, left.high * right.high, product_grain(left.grain, right.grain))
    else:
        graph.node(op, [left, right], shape, left.high + right.high, sum_grain(left.grain, right.grain))


def division(graph: RandomGraph) -> None:
    value = graph.pick(NUMBERS)
    shape = value.shape[-1:] if graph.flip() else ()
    divisors = graph.generator.choice(np.array([1, 2, 4, -2]), shape).astype(value.dtype)
    by = graph.leaf(value.dtype, shape, np.asarray(divisors, value.dtype))
    if value.dtype == "float32":
        graph.node("Div", [value, by], value.shape, value.high, product_grain(value.grain, 2))
    else:
        graph.node(graph.choose(("Div", "Mod")), [value, by], value.shape, value.high + 4, 0)


def power(graph: RandomGraph) -> None:
    value = graph.pick()
    exponent = graph.choose((2.0, 3.0, 1.0, 0.0))
    by = graph.leaf("float32", (), np.array(exponent, np.float32))
    graph.node("Pow", [value, by], value.shape, max(value.high, 1) ** exponent, None)


def variadic(graph: RandomGraph) -> None:
    first = graph.pick()
    count = graph.integer(1, 4) if graph.integer(0, 5) else graph.integer(8, 14)
    values, shape = [first], first.shape
    for _ in range(count - 1):
        other = graph.partner(first)
        joined = broadcast(shape, other.shape)
        if joined is None:
            break
        values.append(other)
        shape = joined
    op = graph.choose(("Sum", "Max", "Min", "Mean"))
    grain = None if op == "Mean" else sum_grain(*(value.grain for value in values))
    graph.node(op, values, shape, sum(value.high for value in values), grain)


def comparison(graph: RandomGraph) -> None:
    sound = lambda value: value.exact and value.name not in graph.inexact  # noqa: E731
    left = graph.pick(NUMBERS, sound)
    right = graph.partner(left)
    shape = broadcast(left.shape, right.shape)
    if shape is None or not sound(right):
        raise Unsuitable
    op = graph.choose(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"))
    graph.node(op, [left, right], shape, 1, 0, dtype="bool")


def logic(graph: RandomGraph) -> None:
    left = graph.pick(("bool",))
    if graph.integer(0, 3) == 0:
        graph.node("Not", [left], left.shape, 1, 0)
        return
    right = graph.partner(left)
    shape = broadcast(left.shape, right.shape)
    if shape is None:
        raise Unsuitable
    graph.node(graph.choose(("And", "Or", "Xor")), [left, right], shape, 1, 0)


def where(graph: RandomGraph) -> None:
    condition = graph.pick(("bool",))
    left = graph.pick(NUMBERS, lambda value: broadcast(value.shape, condition.shape) is not None)
    right = graph.partner(left)
    shape = broadcast(left.shape, right.shape)
    shape = None if shape is None else broadcast(shape, condition.shape)
    if shape is None:
        raise Unsuitable
    high, grain = max(left.high, right.high), sum_grain(left.grain, right.grain)
    graph.node("Where", [condition, left, right], shape, high, grain, dtype=left.dtype)


def cast(graph: RandomGraph) -> None:
    value = graph.pick(STORED)
    to = graph.choose(STORED)
    sound = value.exact and value.name not in graph.inexact
    if to not in ("float32", "float16") and (not sound or (to == "uint8" and value.dtype not in ("bool", "uint8"))):
        raise Unsuitable
    if to == "uint8" or value.dtype in ("uint8", "bool") or to == "bool":
        grain: int | None = 0
    else:
        grain = value.grain if to == "float32" else 0
    high = 1 if to == "bool" else value.high
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    graph.node("Cast", [value], value.shape, high, grain, dtype=to, to=code)


# -- views and indexing ----------------------------------------------------------------------------------------------


def view(graph: RandomGraph, op: str, value: Known, shape: Sequence[int], *more: str, **attributes: Any) -> None:
    graph.node(op, [value, *more], shape, value.high, value.grain, **attributes)


def transpose(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: value.rank > 1)
    order = graph.draw(st.permutations(range(value.rank)))
    view(graph, "Transpose", value, [value.shape[axis] for axis in order], perm=order)


def reshape(graph: RandomGraph) -> None:
    value = graph.pick(STORED)
    sizes = list(value.shape)
    for _ in range(graph.integer(1, 3)):
        position = graph.integer(0, max(len(sizes) - 1, 0))
        if len(sizes) > 1 and graph.flip() and position + 1 < len(sizes):
            sizes[position : position + 2] = [sizes[position] * sizes[position + 1]]
        elif sizes and sizes[position] > 1 and len(sizes) < 6:
            factor = next(number for number in range(2, sizes[position] + 1) if sizes[position] % number == 0)
            sizes[position : position + 1] = [factor, sizes[position] // factor]
        else:
            sizes.insert(position, 1)
    target = graph.constant(np.array(sizes, np.int64))
    view(graph, "Reshape", value, sizes, target, allowzero=1)


def unsqueeze(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: value.rank < 6)
    axis = graph.integer(0, value.rank)
    sizes = [*value.shape[:axis], 1, *value.shape[axis:]]
    view(graph, "Unsqueeze", value, sizes, graph.constant(np.array([axis], np.int64)))


def squeeze(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: 1 in value.shape)
    axis = value.shape.index(1)
    view(
        graph,
        "Squeeze",
        value,
        value.shape[:axis] + value.shape[axis + 1 :],
        graph.constant(np.array([axis], np.int64)),
    )


def flatten(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: value.rank > 0)
    axis = graph.integer(0, value.rank)
    view(graph, "Flatten", value, [math.prod(value.shape[:axis]), math.prod(value.shape[axis:])], axis=axis)


def expand(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: value.rank < 5)
    sizes = [graph.integer(2, 3) if size == 1 and graph.flip() else size for size in value.shape]
    sizes = [2, *sizes] if graph.flip() else sizes
    view(graph, "Expand", value, sizes, graph.constant(np.array(sizes, np.int64)))


def tile(graph: RandomGraph) -> None:
    value = graph.pick(("float32", "int32", "int64", "bool", "uint8"), lambda value: value.rank > 0)
    repeats = [graph.integer(1, 2) for _ in value.shape]
    sizes = [size * count for size, count in zip(value.shape, repeats)]
    view(graph, "Tile", value, sizes, graph.constant(np.array(repeats, np.int64)))


def sliced(size: int, start: int, end: int, step: int) -> int:
    """How many elements ONNX's Slice takes: bounds are clamped to the axis, a negative step ends before the first."""
    if not size:
        return 0
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size if start < 0 else start, 0), high)
    last = min(max(end + size if end < 0 else end, low), high)
    return max(-((first - last) // step), 0)


def cut(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: value.rank > 0)
    axis = graph.integer(0, value.rank - 1)
    size = value.shape[axis]
    step = graph.choose((1, 1, 2, -1, -2, 3))
    start, end = (graph.integer(-size - 1, size + 1) for _ in range(2))
    count = sliced(size, start, end, step)
    pieces = [graph.constant(np.array([number], np.int64)) for number in (start, end, axis, step)]
    view(graph, "Slice", value, [*value.shape[:axis], count, *value.shape[axis + 1 :]], *pieces)


def split(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: value.rank > 0 and max(value.shape) > 1)
    axis = graph.choose([axis for axis, size in enumerate(value.shape) if size > 1])
    first = graph.integer(0, value.shape[axis])
    parts = [first, value.shape[axis] - first]
    shapes = [[*value.shape[:axis], part, *value.shape[axis + 1 :]] for part in parts]
    sizes = graph.constant(np.array(parts, np.int64))
    graph.nodes_of("Split", [value, sizes], shapes, value.high, value.grain, axis=axis)


def concat(graph: RandomGraph) -> None:
    first = graph.pick(STORED, lambda value: value.rank > 0)
    axis = graph.integer(0, first.rank - 1)
    values = [first]
    count = graph.integer(1, 3) if graph.integer(0, 5) else graph.integer(8, 12)
    fits = [
        other
        for other in graph.values
        if other.dtype == first.dtype
        and other.rank == first.rank
        and all(left == right for at, (left, right) in enumerate(zip(other.shape, first.shape)) if at != axis)
    ]
    for _ in range(count):
        if graph.flip():
            values.append(graph.choose(fits))
        else:
            shape = [graph.integer(0, 3) if at == axis else size for at, size in enumerate(first.shape)]
            values.append(graph.leaf(first.dtype, shape))
    sizes = [sum(value.shape[axis] for value in values) if at == axis else size for at, size in enumerate(first.shape)]
    high, grain = max(value.high for value in values), sum_grain(*(value.grain for value in values))
    graph.node("Concat", values, sizes, high, grain, axis=axis)


def pad(graph: RandomGraph) -> None:
    value = graph.pick(("float32", "int32", "int64", "uint8", "bool"), lambda value: 0 < value.rank < 5)
    mode = graph.choose(("constant", "edge", "reflect"))
    if mode != "constant" and (0 in value.shape or value.dtype == "bool"):
        raise Unsuitable
    most = 2 if mode != "reflect" else max(min(value.shape) - 1, 0)
    pads = [graph.integer(0, min(most, 2)) for _ in range(2 * value.rank)]
    sizes = [size + pads[axis] + pads[axis + value.rank] for axis, size in enumerate(value.shape)]
    view(graph, "Pad", value, sizes, graph.constant(np.array(pads, np.int64)), mode=mode)


def gather(graph: RandomGraph) -> None:
    value = graph.pick(STORED, lambda value: value.rank > 0 and 0 not in value.shape)
    axis = graph.integer(0, value.rank - 1)
    shape = graph.shape(0, 2)
    size = value.shape[axis]
    kind = graph.choose(ANY_INTEGER)
    indices = graph.leaf(kind, shape)
    array = np.asarray(graph.generator.integers(-size, size, shape), kind)
    (graph.initializers if indices.name in graph.initializers else graph.feeds)[indices.name] = array
    graph.values.remove(indices)
    graph.node(
        "Gather",
        [value, indices],
        [*value.shape[:axis], *shape, *value.shape[axis + 1 :]],
        value.high,
        value.grain,
        axis=axis,
    )


def depth_to_space(graph: RandomGraph) -> None:
    value = graph.leaf("float32", (graph.integer(1, 2), 8, graph.integer(1, 3), graph.integer(1, 3)))
    n, c, h, w = value.shape
    mode = graph.choose(("DCR", "CRD"))
    view(graph, "DepthToSpace", value, (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=mode)


def resize(graph: RandomGraph) -> None:
    value = graph.pick(suits=lambda value: value.rank == 4 and 0 not in value.shape)
    scales = [1.0, 1.0, graph.choose((1.0, 2.0)), graph.choose((2.0, 3.0))]
    sizes = [int(size * scale) for size, scale in zip(value.shape, scales)]
    mode = graph.choose(("nearest", "linear"))
    graph.node(
        "Resize",
        [value, "", graph.constant(np.array(scales, np.float32))],
        sizes,
        value.high,
        value.grain if mode == "nearest" else None,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def trilu(graph: RandomGraph) -> None:
    value = graph.pick(("float32", "int64"), lambda value: value.rank >= 2)
    offset = graph.constant(np.array(graph.integer(-2, 2), np.int64))
    view(graph, "Trilu", value, value.shape, offset, upper=int(graph.flip()))


# -- reductions and products -----------------------------------------------------------------------------------------


def reduction(graph: RandomGraph) -> None:
    op = graph.choose(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"))
    dtypes = NUMBERS if op in ("ReduceSum", "ReduceMax", "ReduceMin") else ("float32",)
    value = graph.pick(dtypes, lambda value: value.rank > 0 and (0 not in value.shape or op == "ReduceSum"))
    axes = graph.draw(st.lists(st.integers(0, value.rank - 1), min_size=1, max_size=value.rank, unique=True))
    keepdims = graph.integer(0, 1)
    sizes = [1 if axis in axes else size for axis, size in enumerate(value.shape)]
    if not keepdims:
        sizes = [size for axis, size in enumerate(value.shape) if axis not in axes]
    count = math.prod(value.shape[axis] for axis in axes)
    high = value.high if op in ("ReduceMean", "ReduceMax", "ReduceMin") else value.high * max(count, 1)
    high, grain = (high * max(value.high, 1), None) if op == "ReduceSumSquare" else (high, value.grain)
    if op in ("ReduceMean", "ReduceL2"):
        grain = None
    names = graph.constant(np.array(sorted(axes), np.int64))
    graph.node(op, [value, names], sizes, high, grain, keepdims=keepdims)


def softmax(graph: RandomGraph) -> None:
    value = graph.pick(suits=lambda value: value.rank > 0 and value.high < 50)
    op = graph.choose(("Softmax", "LogSoftmax"))
    axis = graph.integer(-value.rank, value.rank - 1)
    graph.node(op, [value], value.shape, 1 if op == "Softmax" else 2 * value.high + 10, None, axis=axis)


def layer_norm(graph: RandomGraph) -> None:
    value = graph.pick(suits=lambda value: value.rank > 1 and 0 not in value.shape and value.shape[-1] > 1)
    scale, bias = (graph.leaf("float32", value.shape[-1:], graph.data("float32", value.shape[-1:])) for _ in range(2))
    graph.node("LayerNormalization", [value, scale, bias], value.shape, 20.0, None, axis=-1, epsilon=0.1)


def batch_norm(graph: RandomGraph) -> None:
    value = graph.pick(suits=lambda value: value.rank > 1)
    channels = value.shape[1:2]
    scale, bias, mean = (graph.constant(graph.data("float32", channels)) for _ in range(3))
    variance = graph.constant(np.abs(graph.data("float32", channels)) + np.float32(0.5))
    graph.node("BatchNormalization", [value, scale, bias, mean, variance], value.shape, 4 * value.high + 8, None)


def arg_reduction(graph: RandomGraph) -> None:
    value = graph.pick(
        ("float32", "int32"),
        lambda value: value.rank > 0 and 0 not in value.shape and value.exact and value.name not in graph.inexact,
    )
    axis, keepdims, last = graph.integer(0, value.rank - 1), graph.integer(0, 1), graph.integer(0, 1)
    sizes = [1 if at == axis else size for at, size in enumerate(value.shape) if at != axis or keepdims]
    graph.node(
        graph.choose(("ArgMax", "ArgMin")),
        [value],
        sizes,
        value.shape[axis],
        0,
        dtype="int64",
        axis=axis,
        keepdims=keepdims,
        select_last_index=last,
    )


def matmul(graph: RandomGraph) -> None:
    left = graph.pick(suits=lambda value: value.rank > 0)
    inner, columns = left.shape[-1], graph.choose((1, 2, 4, 5, 8, 17))
    batch = left.shape[:-2] if graph.flip() else ()
    right = graph.leaf("float32", (*batch, inner, columns) if graph.integer(0, 4) else (inner,))
    sizes = np.matmul(np.empty(left.shape, np.bool_), np.empty(right.shape, np.bool_)).shape
    high = left.high * right.high * max(inner, 1)
    graph.node("MatMul", [left, right], sizes, high, product_grain(left.grain, right.grain))


def gemm(graph: RandomGraph) -> None:
    left = graph.pick(suits=lambda value: value.rank == 2 and 0 not in value.shape)
    flipped_left, flipped_right = graph.integer(0, 1), graph.integer(0, 1)
    rows, inner = left.shape[::-1] if flipped_left else left.shape
    columns = graph.choose((1, 3, 4, 16))
    right = graph.leaf("float32", (columns, inner) if flipped_right else (inner, columns))
    bias = [graph.leaf("float32", graph.choose(((columns,), (rows, 1), ())))] if graph.flip() else []
    graph.node(
        "Gemm",
        [left, right, *bias],
        (rows, columns),
        left.high * right.high * inner * 2 + 2,
        None,
        transA=flipped_left,
        transB=flipped_right,
        alpha=graph.choose((1.0, 0.5)),
        beta=graph.choose((1.0, 0.25)),
    )


def image(graph: RandomGraph) -> Known:
    found = [value for value in graph.values if value.dtype == "float32" and value.rank == 4 and 0 not in value.shape]
    if found and graph.flip():
        return graph.choose(found)
    return graph.leaf(
        "float32", [graph.integer(1, 2), graph.choose((1, 3, 4, 8)), graph.integer(3, 9), graph.integer(3, 9)]
    )


def convolution(graph: RandomGraph) -> None:
    value = image(graph)
    n, c, h, w = value.shape
    group = graph.choose((1, 1, 1, c))
    out = graph.choose((1, 4, 5, 8)) if group == 1 else c * graph.choose((1, 1, 2))
    kernel = [graph.choose((1, 2, 3)) for _ in range(2)]
    stride, pads = graph.choose((1, 1, 2)), [graph.integer(0, 1) for _ in range(4)]
    sizes = [(size + pads[axis] + pads[axis + 2] - kernel[axis]) // stride + 1 for axis, size in enumerate((h, w))]
    if min(sizes) < 1 or math.prod((n, out, *sizes)) > MOST_ELEMENTS:
        raise Unsuitable
    weight = graph.leaf("float32", (out, c // group, *kernel))
    bias = [graph.leaf("float32", (out,))] if graph.flip() else []
    high = value.high * weight.high * math.prod(kernel) * (c // group) + 2
    graph.node(
        "Conv",
        [value, weight, *bias],
        (n, out, *sizes),
        high,
        product_grain(value.grain, weight.grain),
        kernel_shape=kernel,
        strides=[stride, stride],
        pads=pads,
        group=group,
    )


def pool(graph: RandomGraph) -> None:
    value = image(graph)
    n, c, h, w = value.shape
    op = graph.choose(("MaxPool", "AveragePool", "GlobalAveragePool"))
    if op == "GlobalAveragePool":
        graph.node(op, [value], (n, c, 1, 1), value.high, None)
        return
    stride, pads = graph.choose((1, 2)), [graph.integer(0, 1) for _ in range(4)]
    sizes = [(size + pads[axis] + pads[axis + 2] - 2) // stride + 1 for axis, size in enumerate((h, w))]
    if min(sizes) < 1:
        raise Unsuitable
    grain = value.grain if op == "MaxPool" else None
    graph.node(op, [value], (n, c, *sizes), value.high, grain, kernel_shape=[2, 2], strides=[stride, stride], pads=pads)


ELEMENTWISE = (
    smooth,
    root,
    unary,
    leaky,
    clip,
    arithmetic,
    arithmetic,
    division,
    power,
    variadic,
    comparison,
    logic,
    where,
)
VIEWS = (
    transpose,
    reshape,
    unsqueeze,
    squeeze,
    flatten,
    expand,
    tile,
    cut,
    split,
    concat,
    pad,
    gather,
    depth_to_space,
    resize,
    trilu,
)
REDUCTIONS = (reduction, reduction, softmax, layer_norm, batch_norm, arg_reduction)
PRODUCTS = (matmul, gemm, convolution, convolution, pool)

KINDS: dict[str, tuple[Callable[[RandomGraph], None], ...]] = {
    "elementwise": (*ELEMENTWISE, cast, *VIEWS),
    "types": (comparison, logic, where, cast, cast, arithmetic, division, *VIEWS),
    "reductions": (*REDUCTIONS, *REDUCTIONS, arithmetic, where, comparison, cast, smooth, root, *VIEWS),
    "products": (
        *PRODUCTS,
        *PRODUCTS,
        arithmetic,
        arithmetic,
        smooth,
        unary,
        reduction,
        softmax,
        batch_norm,
        transpose,
        reshape,
        cut,
        concat,
        pad,
        resize,
    ),
    # nothing here has a size as an attribute or as an element
    "dynamic": (
        *ELEMENTWISE,
        cast,
        transpose,
        unsqueeze,
        squeeze,
        flatten,
        cut,
        concat,
        pad,
        trilu,
        reduction,
        reduction,
        softmax,
        arg_reduction,
        matmul,
        matmul,
    ),
}


@st.composite
def random_graphs(draw: Callable[[st.SearchStrategy[Any]], Any], kind: str) -> tuple[RandomGraph, list[Known]]:
    """A graph of 1 to 12 nodes and its outputs."""
    graph = RandomGraph(draw, np.random.default_rng(draw(st.integers(0, 2**16))), inputs_only=kind == "dynamic")
    for _ in range(draw(st.integers(1, 12))):
        state = (len(graph.nodes), len(graph.values), dict(graph.feeds), dict(graph.initializers), set(graph.inexact))
        try:
            draw(st.sampled_from(KINDS[kind]))(graph)
        except Unsuitable:
            nodes, values, graph.feeds, graph.initializers, graph.inexact = state
            del graph.nodes[nodes:], graph.values[values:]
        if len(graph.nodes) >= 12:
            break
    computed = [value for value in graph.values if value.name.startswith("n")]
    if not computed:
        value = graph.leaf("float32", (3,))
        computed = [graph.node("Neg", [value], value.shape, value.high, value.grain)]
    used = {name for node in graph.nodes for name in node.input}
    unread = [value for value in computed if value.name not in used]
    more = draw(st.lists(st.sampled_from(computed), max_size=2, unique_by=lambda value: value.name))
    outputs = list({value.name: value for value in (*unread[:5], *more)}.values())
    if draw(st.integers(0, 15)) == 0 and graph.feeds:  # an input, as it is
        name = draw(st.sampled_from(sorted(graph.feeds)))
        array = graph.feeds[name]
        outputs.append(Known(name, array.dtype.name, array.shape, 1e4, 0))
    return graph, outputs
