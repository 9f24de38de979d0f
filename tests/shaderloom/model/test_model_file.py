"""The file of a model: a path, bytes or a message; its identity and what is none."""

from __future__ import annotations

import hashlib
import os

import onnx.parser
import pytest

from shaderloom.model.model_file import ModelFile, locate
from shaderloom.runtime.plan.errors import InputError, ModelError

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
)
CONTENT = MODEL.SerializeToString()


def test_a_model_is_a_path_bytes_or_a_message(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(CONTENT)
    monkeypatch.chdir(tmp_path)
    for given in (path, str(path), "model.onnx"):
        assert locate(given) == ModelFile(path, None) and locate(given).content == path
    for given in (CONTENT, bytearray(CONTENT), memoryview(CONTENT), MODEL):
        assert locate(given) == ModelFile(None, CONTENT) and locate(given).content == CONTENT
    assert {locate(given).digest() for given in (path, MODEL)} == {hashlib.sha256(CONTENT).hexdigest()}


def test_the_identity_of_a_file_is_its_state_and_of_bytes_their_digest(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(CONTENT)
    before = locate(path).identify()
    assert before == locate(path).identify() and before["path"] == str(path)
    os.utime(path, ns=(1, 1))
    assert locate(path).identify() != before
    assert locate(CONTENT).identify() == locate(MODEL).identify() != locate(CONTENT + b" ").identify()
    path.unlink()
    with pytest.raises(ModelError, match="cannot read"):
        ModelFile(path, None).identify()


def test_what_is_no_model(tmp_path):
    with pytest.raises(InputError, match="not int"):
        locate(3)
    with pytest.raises(ModelError, match="there is no file"):
        locate(tmp_path / "absent.onnx")
    (tmp_path / "bundle").mkdir()
    with pytest.raises(ModelError, match="not a file"):
        locate(tmp_path / "bundle")
