"""A model of two nodes with a session, for programs that are written for onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x, float[3] b) => (float[batch, 3] y, float[batch, 3] z) <float[3] b = {1, 2, 3}> {
    y = Add(x, b)
    z = Relu(y)
}
"""


@pytest.fixture(scope="module")
def model() -> bytes:
    parsed = onnx.parser.parse_model(MODEL)
    parsed.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    return parsed.SerializeToString()


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


@pytest.fixture
def session(device, model):
    with shaderloom.InferenceSession(model, device=device, cache=False) as opened:
        yield opened
