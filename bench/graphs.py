"""Synthetic ONNX models of any size: how the compiler's time grows with the number of nodes.

Each function of ``SHAPES`` takes a number of nodes and gives a model with at most that many and at least nine tenths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class _Writer:
    """Appends nodes and initializers to a model under construction; names are numbered."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._generator = np.random.default_rng(0)

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def weight(self, *shape: int) -> str:
        """Random numbers of a scale that keeps activations finite."""
        scale = 1.0 / max(int(np.prod(shape[1:])), 1) ** 0.5
        return self.constant((self._generator.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def model(self, shape: Sequence[int], output: str, output_shape: Sequence[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "synthetic",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, output_shape)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def chain(nodes: int) -> onnx.ModelProto:
    """Elementwise operators one after the other, some with a constant operand."""
    writer, value, shape = _Writer(), "input", (1, 64, 32)
    for number in range(nodes):
        match number % 5:
            case 0:
                value = writer.node("Add", value, writer.weight(32))
            case 1:
                value = writer.node("Sigmoid", value)
            case 2:
                value = writer.node("Mul", value, writer.weight(64, 1))
            case 3:
                value = writer.node("Relu", value)
            case _:
                value = writer.node("Sub", value, writer.weight(64, 32))
    return writer.model(shape, value, shape)


def residual(nodes: int) -> onnx.ModelProto:
    """Blocks of two convolutions with batch normalisation, and a sum: seven nodes a block."""
    writer, value, channels = _Writer(), "input", 16

    def convolution(source: str, gain: float = 1.0) -> str:
        result = writer.node("Conv", source, writer.weight(channels, channels, 3, 3), kernel_shape=[3, 3], pads=[1] * 4)
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        scale, bias, mean, variance = (writer.constant(array) for array in (gain * ones, 0.1 * ones, zeros, ones))
        return writer.node("BatchNormalization", result, scale, bias, mean, variance)

    for _ in range(nodes // 7):
        inner = convolution(writer.node("Relu", convolution(value)), 0.1)
        value = writer.node("Relu", writer.node("Add", inner, value))
    shape = (1, channels, 16, 16)
    return writer.model(shape, value, shape)


def transformer(nodes: int) -> onnx.ModelProto:
    """Encoder layers as exporters write them, with the heads split by Reshape and Transpose: 33 nodes a layer."""
    writer, value = _Writer(), "input"
    length, heads, width = 16, 4, 64
    split = writer.constant(np.array([1, length, heads, width // heads]))
    joined = writer.constant(np.array([1, length, width]))
    scale = writer.constant(np.array((width // heads) ** -0.5, np.float32))
    root, half, one = (writer.constant(np.array(number, np.float32)) for number in (2.0**0.5, 0.5, 1.0))

    def normalised(source: str) -> str:
        return writer.node("LayerNormalization", source, writer.weight(width), writer.weight(width), axis=-1)

    def linear(source: str, rows: int, columns: int) -> str:
        return writer.node("Add", writer.node("MatMul", source, writer.weight(rows, columns)), writer.weight(columns))

    def head(source: str, order: list[int]) -> str:
        return writer.node("Transpose", writer.node("Reshape", linear(source, width, width), split), perm=order)

    for _ in range(nodes // 33):
        start = normalised(value)
        query, key, content = head(start, [0, 2, 1, 3]), head(start, [0, 2, 3, 1]), head(start, [0, 2, 1, 3])
        scores = writer.node("Softmax", writer.node("Mul", writer.node("MatMul", query, key), scale), axis=-1)
        mixed = writer.node("Transpose", writer.node("MatMul", scores, content), perm=[0, 2, 1, 3])
        value = writer.node("Add", value, linear(writer.node("Reshape", mixed, joined), width, width))
        hidden = linear(normalised(value), width, 2 * width)
        gate = writer.node("Add", writer.node("Erf", writer.node("Div", hidden, root)), one)
        hidden = writer.node("Mul", writer.node("Mul", hidden, gate), half)
        value = writer.node("Add", value, linear(hidden, 2 * width, width))
    shape = (1, length, width)
    return writer.model(shape, value, shape)


def fan_out(nodes: int) -> onnx.ModelProto:
    """One reduced value with many readers, whose results are summed pairwise: nothing is deep, one use list is long."""
    writer, shape = _Writer(), (1, 64, 32)
    mean = writer.node("ReduceMean", "input", axes=[2], keepdims=1)
    values = [
        writer.node("Mul", writer.node("Sub", "input", mean), writer.weight(64, 32)) for _ in range((nodes - 1) // 3)
    ]
    while len(values) > 1:
        pairs = [writer.node("Add", *values[start : start + 2]) for start in range(0, len(values) - 1, 2)]
        values = pairs + values[2 * len(pairs) :]
    return writer.model(shape, values[0], shape)


SHAPES: dict[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain,
    "residual": residual,
    "transformer": transformer,
    "fan_out": fan_out,
}
