"""Models that are no single plan, and a session beside onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom

onnxruntime = pytest.importorskip("onnxruntime")

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'
WGPU, BOTH = ["wgpu"], ["wgpu", "cpu"]

#: A condition that is computed
BRANCHES = """g (float[n] x) => (float[m] y) <float zero = {0}> {
    m = ReduceSum<keepdims = 0>(x)  c = Greater(m, zero)  w = Exp(x)
    y = If (c) < then_branch = a () => (float[p] t) { r = Relu(w)  t = Add(r, m) },
                 else_branch = b () => (float[q] e) { e = Concat<axis = 0>(x, w) } > }"""

#: A count that is fed
COUNTED = """g (float[n] x, int64 k) => (float[n] y, float[s, n] ys) {
    y, ys = Loop (k, , x) < body = b (int64 i, bool go, float[n] v) => (bool on, float[n] w, float[n] o) {
        on = Identity(go)  w = Add(v, x)  f = Cast<to = 1>(i)  o = Mul(w, f) } > }"""


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sparse(*shape: int, keep: float = 0.3, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * (generator.random(shape) < keep)).astype(np.float32)


class Pair:
    """A session beside onnxruntime."""

    def __init__(self, model: onnx.ModelProto, device, providers=WGPU, **options):
        self.session = shaderloom.InferenceSession(model, providers=providers, device=device, cache=False, **options)
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        self.reference = onnxruntime.InferenceSession(model.SerializeToString(), settings)

    def check(self, **feeds: np.ndarray) -> list[np.ndarray]:
        """Run twice: when it is compiled, and again."""
        wanted = self.reference.run(None, feeds)
        for _ in range(2):
            given = self.session.run(None, feeds)
            for actual, expected in zip(given, wanted, strict=True):
                assert actual.dtype == expected.dtype
                assert actual.shape == expected.shape
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        return given

    @property
    def read_back(self) -> list[str]:
        return [crossing.tensor for crossing in self.session.stats.crossings]
