"""Models of 8 and of 16 bits: what onnxruntime's tools make of a model with float32 weights.

*static* is a graph of QuantizeLinear and DequantizeLinear whose scales come from calibration, with scales of weights
for each channel, and *operators* the same as QLinearConv, QLinearMatMul and their like; *dynamic* is one of
DynamicQuantizeLinear, MatMulInteger and ConvInteger.  *float16* has halves between inputs and outputs of float32.
*weights* is what tools besides onnxruntime's write: bytes with a scale a column, which Cast and Mul dequantise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Feeds = Mapping[str, np.ndarray]


def quantise_statically(source: Path, target: Path, feeds: Iterable[Feeds], form: str = "QDQ") -> None:
    """Write the model at ``source`` to ``target`` with quantised tensors; ``feeds`` calibrate their scales.

    ``form`` is the name of a ``QuantFormat``.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class _Calibration(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        def __init__(self) -> None:
            self._feeds = iter(feeds)

        def get_next(self) -> Feeds | None:
            return next(self._feeds, None)

    quantize_static(
        source,
        target,
        _Calibration(),
        quant_format=QuantFormat[form],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def quantise_dynamically(source: Path, target: Path, feeds: Iterable[Feeds]) -> None:
    """Write the model at ``source`` to ``target`` with quantised weights; activations are quantised in each run.

    Weights of convolutions are unsigned, as onnxruntime's CPU takes no others.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(source, load_external_data=False).graph
    convolves = any(node.op_type == "Conv" for node in graph.node)
    quantize_dynamic(source, target, weight_type=QuantType.QUInt8 if convolves else QuantType.QInt8)


def convert_to_halves(source: Path, target: Path, _: Iterable[Feeds]) -> None:
    """Write the model at ``source`` to ``target`` with weights and activations in float16."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


#: Elements of a matrix that is quantised, at least
_LEAST_MATRIX = 1024


def quantise_weights(source: Path, target: Path, _: Iterable[Feeds]) -> None:
    """Write the model at ``source`` to ``target`` with weights of products and tables as int8, which Cast and Mul
    make floats again: with a scale for each column of a product, and for each row of a table."""
    import onnx

    model = onnx.load(source)
    graph, nodes = model.graph, []
    axes = {node.input[1]: 0 for node in graph.node if node.op_type == "MatMul"}  # that share a scale
    axes |= {node.input[0]: 1 for node in graph.node if node.op_type == "Gather"}
    for tensor in [each for each in graph.initializer if each.name in axes]:
        array, name = onnx.numpy_helper.to_array(tensor), tensor.name
        if array.ndim != 2 or array.size < _LEAST_MATRIX or array.dtype != np.float32:
            continue
        scale = np.abs(array).max(axis=axes[name], keepdims=True) / np.float32(127)
        parts = {f"{name}_codes": np.rint(array / scale).astype(np.int8), f"{name}_scale": scale}
        graph.initializer.remove(tensor)
        graph.initializer.extend(onnx.numpy_helper.from_array(part, key) for key, part in parts.items())
        nodes.append(onnx.helper.make_node("Cast", [f"{name}_codes"], [f"{name}_floats"], to=onnx.TensorProto.FLOAT))
        nodes.append(onnx.helper.make_node("Mul", [f"{name}_floats", f"{name}_scale"], [name]))
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, target)


#: How a model is quantised -> the function that does so
QUANTISERS: dict[str, Callable[[Path, Path, Iterable[Feeds]], Any]] = {
    "static": quantise_statically,
    "operators": partial(quantise_statically, form="QOperator"),
    "float16": convert_to_halves,
    "dynamic": quantise_dynamically,
    "weights": quantise_weights,
}
