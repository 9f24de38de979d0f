"""Weights for the exporters' graphs in ``tests/data/models``, which are kept without them.

The graph of such a file is as torch wrote it, but float32 initializers of more than 64 elements have no data.  The
metadata says how to draw them: ``random_init`` is JSON that maps their names to [mean, standard deviation, smallest
element] of the weights that were there; ``conv_gain``, if present, scales the filters of convolutions by their fan-in
instead, so that activations neither vanish nor explode behind many layers.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

_STATISTICS, _GAIN = "random_init", "conv_gain"
_BIAS_DEVIATION = 0.1  #: of vectors, where filters are scaled by their fan-in


def fill_weights(model: onnx.ModelProto) -> None:
    """Draw the missing weights in place.  The name of a tensor seeds its elements: they are equal on every machine.

    Raises ValueError if the metadata does not describe the weights.
    """
    facts = {entry.key: entry.value for entry in model.metadata_props}
    if _STATISTICS not in facts:
        raise ValueError(f"the model has no metadata entry '{_STATISTICS}'")
    statistics: dict[str, Sequence[float]] = json.loads(facts[_STATISTICS])
    gain = float(facts.get(_GAIN, 0.0))
    for initializer in model.graph.initializer:
        if initializer.name in statistics:
            weight = _draw(initializer.name, tuple(initializer.dims), statistics[initializer.name], gain)
            initializer.CopyFrom(numpy_helper.from_array(weight, initializer.name))
    for entry in [entry for entry in model.metadata_props if entry.key == _STATISTICS]:
        model.metadata_props.remove(entry)


def _draw(name: str, shape: tuple[int, ...], statistics: Sequence[float], gain: float) -> np.ndarray:
    """Return float32 weights; those whose smallest element was positive (variances) stay above it."""
    mean, deviation, smallest = statistics
    if gain and len(shape) == 4:
        mean, deviation = 0.0, gain / math.sqrt(math.prod(shape[1:]))
    elif gain and len(shape) == 1:
        mean, deviation = 0.0, _BIAS_DEVIATION
    normal = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
    weights = normal * np.float32(deviation) + np.float32(mean)
    return np.maximum(np.abs(weights), np.float32(smallest)) if smallest > 0 else weights
