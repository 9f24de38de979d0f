"""Headers of models as JSON: they come back equal, and anything else is refused."""

from __future__ import annotations

import json

import onnx.parser
import pytest

from shaderloom.compiler.frontend import load_model
from shaderloom.model.header import ModelHeader

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x, float[1] b) => (float[n, 3] y) <float[1] b = {1}> { y = Add(x, b) }"""


def header(path) -> ModelHeader:
    path.write_bytes(onnx.parser.parse_model(TEXT).SerializeToString())
    return ModelHeader.of(load_model(path))


def test_a_header_survives_json(tmp_path):
    before = header(tmp_path / "model.onnx")
    after = ModelHeader.from_json(json.loads(json.dumps(before.to_json())))
    assert after == before
    assert [port.dims for port in after.inputs] == [("n", 3)]
    assert [*after.feedable] == ["x", "b"]


def test_outputs_that_only_move_elements(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x, bool c) => (float[2, 3] a, float[3, 2] b, float[6] d, float[4, 3] e, float[2, 3] f, float[2, 3] h)
    <float[2, 3] k = {1, 2, 3, 4, 5, 6}, int64[1] all = {-1}> {
        a = Identity(x)  b = Transpose(a)  d = Reshape(b, all)  e = Concat<axis = 0>(x, k)  n = Neg(x)
        f = Identity(n)
        h = If (c) <then_branch = p () => (q) { q = Identity(x) }, else_branch = r () => (s) { s = Neg(x) }>
    }"""
    (tmp_path / "model.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert ModelHeader.of(load_model(tmp_path / "model.onnx")).moved == ("a", "b", "d", "e")


@pytest.mark.parametrize("change", [{"inputs": 3}, {"metadata": {"maker": "x"}}, {"files": {"": {"bytes": 1}}}])
def test_what_is_no_header(tmp_path, change):
    data = header(tmp_path / "model.onnx").to_json()
    for wrong in ({**data, **change}, {name: data[name] for name in data if name not in change}, []):
        with pytest.raises(ValueError, match="not a model header"):
            ModelHeader.from_json(wrong)


def test_a_header_knows_its_file(tmp_path):
    path = tmp_path / "model.onnx"
    found = header(path)
    assert found.is_current(path)
    assert found.is_current(None), "a model in memory without data files has none that could change"
    path.write_bytes(path.read_bytes() + b" ")
    assert not found.is_current(path)
