"""Chains of float16 around a reduction of up to a million elements, whose sums leave float16 where its means do not.

Growing graphs (:mod:`.growth`) are small, and far from where types end.  Here the first operand is large, its elements
lie about a mean of up to 60, and what is expected is onnxruntime's, which computes halves in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import reject
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from .source import Drawn, Source, Unsuitable, choose

#: Elements of the input
MOST = 1 << 20
#: Largest error over the largest element of the tensors from the reduction on: a few roundings of named tensors
TOLERANCE = 4e-3
#: Results stay where a rounding is no infinity
LARGEST = 6e4
#: Reductions of long axes: name, attributes, and the rank that they need (0: any).  Behind a mean there may be a
#: product, which takes the division over: then the sum lies in memory
REDUCTIONS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("ReduceMean", {}, 0),
    ("ReduceL2", {}, 0),
    ("ReduceLogSumExp", {}, 0),
    ("ReduceMax", {}, 0),
    ("GlobalAveragePool", {}, 4),
    ("MeanOfTokens", {}, 3),
    ("GlobalMaxPool", {}, 4),
    ("InstanceNormalization", {}, 4),
    ("LayerNormalization", {}, 3),
    ("Softmax", {}, 0),
    ("LpNormalization", {"p": 2}, 0),
    ("MatMul", {}, 3),
)
#: What rounds nothing: a normalisation magnifies the rounding of elements that lie far from 0
BEFORE = ("Relu", "Neg", "Abs", "Mul", "Identity")
AFTER = ("Sub", "Add", "Mul", "Neg", "Identity")


@dataclass
class LongGraph:
    """A model with a float16 input ``x``, some of whose dimensions are named; ``tail`` are its tensors from the
    reduction on."""

    proto: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    tail: list[str]

    def check(self, found: np.ndarray, feeds: dict[str, np.ndarray]) -> None:
        """Compare an output with onnxruntime's; raises :class:`Unsuitable` where that is no number of the type."""
        import onnxruntime

        model = onnx.ModelProto()
        model.CopyFrom(self.proto)
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.tail)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        results = [result.astype(np.float64) for result in session.run(None, feeds)]
        scale = max(np.abs(result).max(initial=0.0) for result in results)
        if not scale <= LARGEST:
            raise Unsuitable
        assert found.dtype == np.float16 and found.shape == results[-1].shape
        error = np.abs(found.astype(np.float64) - results[-1]).max(initial=0.0)
        assert error <= TOLERANCE * scale + 2.0**-24, f"error {error:.2e} of {scale:.2e}"  # a step of subnormals

    @property
    def dynamic(self) -> dict[str, tuple[int, int]]:
        """A range for every named dimension."""
        shape = self.proto.graph.input[0].type.tensor_type.shape
        sizes = self.feeds["x"].shape
        return {dim.dim_param: (1, size + 3) for dim, size in zip(shape.dim, sizes) if dim.dim_param}

    def resized(self, change: Callable[[int], int]) -> dict[str, np.ndarray]:
        """The input with the sizes of its named dimensions changed: parts of what it was."""
        x = self.feeds["x"]
        dims = self.proto.graph.input[0].type.tensor_type.shape.dim
        return {
            "x": x[tuple(slice(change(size)) if dim.dim_param else slice(None) for dim, size in zip(dims, x.shape))]
        }


def _shape(source: Source, rank: int) -> tuple[int, ...]:
    """Up to :data:`MOST` elements; of a few magnitudes, about the sizes at which sums, counts and loops end."""
    long = 1 << choose(source, [4, 14, 17, 12, 19, 13, 16, 20])
    long += source.integer(0, max(long // 8, 1))
    long = min(long, MOST)
    rows = choose(source, [size for size in (1, 32, 8, 64, 3) if size * long <= MOST])
    if rank == 4:
        side = max(int(np.sqrt(long)), 1)
        return (1, rows, side, max(long // side, 1))
    if rank == 3:
        return (1, rows, long)
    return (rows, long)


class _Chain:
    def __init__(self, source: Source, rank: int) -> None:
        self.source = source
        self.shape = _shape(source, rank)
        self.generator = np.random.default_rng(source.integer(0, 2**16))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.last = "x"

    def constant(self, shape: Sequence[int], low: float, high: float) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = self.generator.uniform(low, high, shape).astype(np.float16)
        return name

    def add(self, operator: str, *more: str, **attributes: Any) -> None:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *more], [name], **attributes))
        self.last = name

    def element(self, operator: str) -> None:
        operands = {"Add": (-8.0, 8.0), "Mul": (0.5, 0.5), "Sub": (-2.0, 2.0)}.get(operator)
        self.add(operator, *([] if operands is None else [self.constant((), *operands)]))

    def reduce(self, operator: str, attributes: dict[str, Any]) -> None:
        rank = len(self.shape)
        channels = self.shape[1]
        if operator == "MeanOfTokens":
            self.shape = (1, self.shape[2], channels)
            self.add("ReduceMean", axes=[1], keepdims=0)
            if self.source.integer(0, 2):
                self.add("MatMul", self.constant((channels, 8), -0.3, 0.3))
        elif operator == "GlobalAveragePool":
            self.add(operator)
            if self.source.integer(0, 2):
                self.add("Conv", self.constant((4, channels, 1, 1), -0.3, 0.3))
        elif operator.startswith("Reduce"):
            axes = list(range(2, rank)) if rank == 4 else [rank - 1]
            self.add(operator, axes=axes, keepdims=self.source.integer(0, 1), **attributes)
        elif operator == "InstanceNormalization":
            self.add(operator, self.constant((channels,), 0.5, 1.5), self.constant((channels,), -1, 1))
        elif operator == "LayerNormalization":
            self.add(operator, self.constant((1,), 0.5, 1.5), self.constant((1,), -1, 1))
        elif operator == "MatMul":
            size = self.shape[-1]
            self.add(operator, self.constant((size, 8), 0, 2 / size if size > 64 else 0.1))
        elif operator.startswith("Global"):
            self.add(operator)
        else:
            self.add(operator, axis=-1, **attributes)


def grow_long(source: Source) -> LongGraph:
    operator, attributes, rank = choose(source, REDUCTIONS)
    chain = _Chain(source, rank or choose(source, [2, 3, 4]))
    named = operator not in ("MatMul",)  # whose weights have the size
    for _ in range(source.integer(0, 2)):
        chain.element(choose(source, BEFORE))
    start = len(chain.nodes)
    chain.reduce(operator, attributes)
    for _ in range(source.integer(0, 2)):
        chain.element(choose(source, AFTER))
    centre, width = choose(source, [0.0, 8.0, 20.0, 60.0]), choose(source, [0.5, 2.0, 8.0])
    x = (chain.generator.standard_normal(chain.shape) * width + centre).astype(np.float16)
    dims: list[int | str] = list(chain.shape)
    if named:
        dims = [size if axis < 1 else f"d{axis}" for axis, size in enumerate(dims)]
        fixed = {"InstanceNormalization": 1, "GlobalAveragePool": 1, "MeanOfTokens": 2}.get(operator)
        if fixed is not None:  # weights have its size
            dims[fixed] = chain.shape[fixed]
    graph = helper.make_graph(
        chain.nodes,
        "long",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, dims)],
        [helper.make_tensor_value_info(chain.last, TensorProto.FLOAT16, None)],
        [numpy_helper.from_array(array, name) for name, array in chain.weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return LongGraph(proto, {"x": x}, [node.output[0] for node in chain.nodes[start:]])


@st.composite
def long_graphs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> LongGraph:
    try:
        return grow_long(Drawn(draw))
    except Unsuitable:
        reject()
