"""Models of 8 bits: what onnxruntime's quantiser makes of a model with float32 weights.

*static* is a graph of QuantizeLinear and DequantizeLinear whose scales come from calibration, with scales of weights
for each channel; *dynamic* one of DynamicQuantizeLinear, MatMulInteger and ConvInteger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Feeds = Mapping[str, np.ndarray]


def quantise_statically(source: Path, target: Path, feeds: Iterable[Feeds]) -> None:
    """Write the model at ``source`` to ``target`` with quantised tensors; ``feeds`` calibrate their scales."""
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
        quant_format=QuantFormat.QDQ,
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


#: How a model is quantised -> the function that does so
QUANTISERS: dict[str, Callable[[Path, Path, Iterable[Feeds]], Any]] = {
    "static": quantise_statically,
    "dynamic": quantise_dynamically,
}
