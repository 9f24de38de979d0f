"""Seeds for damaged models: small files with every kind of content that the loader reads.

They are files in ``tests/data/fuzz``, so that a failure names bytes that stay; ``python -m tests.fuzz.model_seeds``
writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).resolve().parent.parent / "data" / "fuzz"
DATA_FILE = "weights.bin"

_RNG = np.random.default_rng(7)
_WEIGHT = _RNG.standard_normal((8, 4)).astype(np.float32)
_DEFAULT = '<ir_version: 8, opset_import: ["" : 18]> '
_TEXTS = {
    "if": _DEFAULT
    + """g (float[2, 3] x) => (float[2, 3] y) <bool c = {1}> {
        y = If (c) <
            then_branch = t () => (float[2, 3] a) { a = Relu(x) },
            else_branch = e () => (float[2, 3] b) { b = Neg(x) }
        > }""",
    "loop": _DEFAULT
    + """g (float[2, 3] x) => (float[2, 3] y, float[4, 2, 3] all) <int64 n = {4}, bool go = {1}> {
        y, all = Loop (n, go, x) <
            body = b (int64 i, bool cond, float[2, 3] a) => (bool again, float[2, 3] s, float[2, 3] out) {
                again = Identity(cond) s = Add(a, x) out = Mul(s, s) }
        > }""",
    "scan": _DEFAULT
    + """g (float[3] start, float[5, 3] xs) => (float[3] last, float[5, 3] ys) {
        last, ys = Scan (start, xs) <
            num_scan_inputs = 1,
            body = b (float[3] a, float[3] x) => (float[3] s, float[3] out) { s = Add(a, x) out = Identity(s) }
        > }""",
    "quantised": _DEFAULT
    + """g (float[2, 8] x) => (float[2, 4] y) <float s = {0.05}, uint8 z = {128}, float t = {0.02}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = QuantizeLinear(w, t)
        u = DequantizeLinear(v, t)
        y = MatMul(d, u) }""",
    "external": _DEFAULT + "g (float[n, 8] x) => (float[n, 4] y) { m = MatMul(x, w) y = Softmax<axis = -1>(m) }",
    "function": """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[2, 8] x) => (float[2, 4] y) { m = local.twice<factor = 2.0>(x, w) y = Relu(m) }
        <domain: "local", opset_import: ["" : 18]>
        twice <factor> (a, b) => (r) { f = Constant<value_float: float = @factor>() p = MatMul(a, b) r = Mul(p, f) }""",
    "sparse": _DEFAULT + "g (float[2, 6] x) => (float[2, 2] y) { y = Gemm<alpha = 0.5>(x, w) }",
    "microsoft": """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float[1, 4, 8] x) => (float[1, 4, 8] y) <float[8] gamma = {1, 1, 1, 1, 1, 1, 1, 1}> {
            a = com.microsoft.BiasGelu(x, gamma)
            y, unused, more, sum = com.microsoft.SkipLayerNormalization<epsilon = 0.001>(a, x, gamma) }""",
}


def _make(name: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_TEXTS[name])
    if name in ("quantised", "function"):
        model.graph.initializer.append(numpy_helper.from_array(_WEIGHT, "w"))
    if name == "external":
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=_WEIGHT.shape)
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", DATA_FILE), ("offset", "0"), ("length", str(_WEIGHT.nbytes))):
            weight.external_data.add(key=key, value=value)
        model.graph.initializer.append(weight)
    if name == "sparse":
        values = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
        indices = helper.make_tensor("indices", TensorProto.INT64, [3], [0, 5, 11])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [6, 2]))
    return model


def seeds() -> dict[str, bytes]:
    """Return the files by name."""
    return {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.onnx"))}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / DATA_FILE).write_bytes(_WEIGHT.tobytes())
    for name in _TEXTS:
        (FOLDER / f"{name}.onnx").write_bytes(_make(name).SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
