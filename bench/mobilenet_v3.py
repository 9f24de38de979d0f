"""MobileNetV3-Small as an ONNX model with random weights: inverted residuals, squeeze and excitation, hard swish."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: kernel, expanded channels, channels, squeeze and excitation, activation, stride
_BLOCKS = (
    (3, 16, 16, True, "Relu", 2),
    (3, 72, 24, False, "Relu", 2),
    (3, 88, 24, False, "Relu", 1),
    (5, 96, 40, True, "HardSwish", 2),
    (5, 240, 40, True, "HardSwish", 1),
    (5, 240, 40, True, "HardSwish", 1),
    (5, 120, 48, True, "HardSwish", 1),
    (5, 144, 48, True, "HardSwish", 1),
    (5, 288, 96, True, "HardSwish", 2),
    (5, 576, 96, True, "HardSwish", 1),
    (5, 576, 96, True, "HardSwish", 1),
)


class _Network:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._generator = np.random.default_rng(3)

    def op(self, op: str, *inputs: str, **attributes: object) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def weight(self, *shape: int) -> str:
        scale = (2.0 / max(int(np.prod(shape[1:])), 1)) ** 0.5 if len(shape) > 1 else 0.01
        name = f"w{len(self.weights)}"
        array = (self._generator.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, before: int, after: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        weights = self.weight(after, before // group, kernel, kernel), self.weight(after)
        pads = [kernel // 2] * 4
        return self.op("Conv", x, *weights, group=group, pads=pads, strides=[stride] * 2, kernel_shape=[kernel] * 2)

    def block(self, x: str, before: int, row: tuple[int, int, int, bool, str, int]) -> str:
        kernel, expanded, after, squeezes, activation, stride = row
        y = x if expanded == before else self.op(activation, self.conv(x, before, expanded))
        y = self.op(activation, self.conv(y, expanded, expanded, kernel, stride, expanded))
        if squeezes:
            inner = max(8, (expanded // 4 + 4) // 8 * 8)
            mean = self.op("Relu", self.conv(self.op("GlobalAveragePool", y), expanded, inner))
            y = self.op("Mul", y, self.op("HardSigmoid", self.conv(mean, inner, expanded), alpha=1 / 6))
        y = self.conv(y, expanded, after)
        return self.op("Add", x, y) if stride == 1 and before == after else y


def mobilenet_v3(size: int) -> onnx.ModelProto:
    """Return the model for pictures float32 [batch, 3, size, size]; it gives scores float32 [batch, 1000]."""
    network = _Network()
    x, channels = network.op("HardSwish", network.conv("input", 3, 16, 3, 2)), 16
    for row in _BLOCKS:
        x, channels = network.block(x, channels, row), row[2]
    x = network.op("GlobalAveragePool", network.op("HardSwish", network.conv(x, channels, 576)))
    x = network.op("Gemm", network.op("Flatten", x), network.weight(576, 1024), network.weight(1024))
    network.op("Gemm", network.op("HardSwish", x), network.weight(1024, 1000), network.weight(1000))
    network.nodes[-1].output[0] = "output"
    graph = helper.make_graph(
        network.nodes,
        "mobilenet_v3_small",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, size, size])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 1000])],
        network.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
