"""Converted decoders compute what their GGUF files say; what is not supported is refused by its name."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from shaderloom import InferenceSession, SessionOptions
from shaderloom.convert.gguf_decoder import convert_gguf
from shaderloom.convert.gguf_file import GgufFile
from shaderloom.generate.folder import ModelFolder
from shaderloom.runtime.plan.errors import InputError, ModelError, ShaderloomError, UnsupportedError

from ...support.hostile_settings import changed
from ...support.sessions import byte_products, leave_groups_out, multiplying_bytes
from ...support.tiny_gguf import HEAD, LAYERS, SHARED, TOKENS, write_tiny_gguf

IDS = np.random.default_rng(3).integers(3, len(TOKENS), 9).tolist()


def feeds(ids: list[int]) -> dict[str, np.ndarray]:
    names = [f"past_key_values.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    empty = np.zeros((1, SHARED, 0, HEAD), np.float32)
    return {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, len(ids)), np.int64),
        **dict.fromkeys(names, empty),
    }


CASES = [
    ("llama", "Q4_1", True, None),
    ("llama", "Q4_1", True, "Q8_0"),
    ("llama", "Q4_0", False, "F16"),
    ("qwen2", "Q8_0", True, None),
    ("qwen2", "F16", True, None),
    ("llama", "F32", False, "Q4_0"),
]


@pytest.mark.parametrize(("family", "kind", "tied", "embedding"), CASES)
def test_logits_are_those_of_the_file(
    tmp_path: Path, device: Any, family: str, kind: str, tied: bool, embedding: str | None
):
    """On the device, and under onnxruntime, against float64 with weights that the package gguf dequantised."""
    tiny = write_tiny_gguf(tmp_path / "t.gguf", family, kind, tied=tied, embedding=embedding)
    convert_gguf(tiny.path, tmp_path / "folder")
    model = tmp_path / "folder" / "model.onnx"
    wanted = tiny.logits(IDS)
    with InferenceSession(model, device=device, cache=False) as session:
        (logits,) = session.run(["logits"], feeds(IDS))
    np.testing.assert_allclose(logits[0], wanted, rtol=2e-4, atol=2e-4)
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(reference.run(["logits"], feeds(IDS))[0][0], wanted, rtol=2e-3, atol=2e-3)


def test_activations_of_8_bits(tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch):
    """What numpy computes that rounds them before every product, which is far from the logits of float activations."""
    leave_groups_out(monkeypatch)
    tiny = write_tiny_gguf(tmp_path / "t.gguf", kind="Q4_0")
    convert_gguf(tiny.path, tmp_path / "folder")
    options = SessionOptions()
    options.activations = "int8"
    model = tmp_path / "folder" / "model.onnx"
    with InferenceSession(model, options, device=multiplying_bytes(device), cache=False) as session:
        (logits,) = session.run(["logits"], feeds(IDS))
        assert byte_products(session) == 5 * LAYERS + 1
    wanted, exact = replace(tiny.reference, rounds=True).logits(IDS), tiny.logits(IDS)
    np.testing.assert_allclose(logits[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert 1e-2 < np.abs(logits[0] - exact).max() / np.abs(exact).max() < 0.15


def test_weights_keep_their_codes(tmp_path: Path):
    """A folder of 4-bit weights is as large as the file, but for scales of 32 bits, and holds one embedding."""
    tiny = write_tiny_gguf(tmp_path / "t.gguf")
    convert_gguf(tiny.path, tmp_path / "folder")
    model = onnx.load(tmp_path / "folder" / "model.onnx", load_external_data=False)
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert kinds["layers.0.q.codes"] == kinds["embedding.codes"] == onnx.TensorProto.UINT8
    assert not any(name.startswith("head") for name in kinds)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"general.architecture": "mamba"}, "mamba"),
        ({"llama.rope.scaling.type": "yarn"}, "yarn"),
        ({"tokenizer.ggml.pre": "deepseek-coder"}, "deepseek-coder"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer is 'llama'"),
        ({"llama.rope.dimension_count": 8}, "dimension_count"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, settings: dict[str, object], words: str):
    tiny = write_tiny_gguf(tmp_path / "t.gguf", settings=settings)
    with pytest.raises(UnsupportedError, match=words):
        convert_gguf(tiny.path, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["t.gguf"]


def test_types_and_tensors_that_are_not_supported_are_named(tmp_path: Path):
    tiny = write_tiny_gguf(tmp_path / "t.gguf", kind="Q5_0")
    with pytest.raises(UnsupportedError, match="Q5_0") as caught:
        convert_gguf(tiny.path, tmp_path / "folder")
    assert caught.value.tensor == "token_embd.weight"
    data = write_tiny_gguf(tmp_path / "u.gguf").path.read_bytes()
    (tmp_path / "v.gguf").write_bytes(data.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
    with pytest.raises(UnsupportedError) as caught:
        convert_gguf(tmp_path / "v.gguf", tmp_path / "folder")
    assert caught.value.tensor == "blk.1.ffn_xx.weight"


@pytest.mark.parametrize(
    "settings",
    [
        {"llama.context_length": 1 << 30},
        {"llama.attention.head_count": 3},
        {"llama.attention.head_count": 0},
        {"llama.block_count": 3},
        {"llama.embedding_length": 32},
        {"tokenizer.ggml.eos_token_id": 1 << 20},
        {"llama.feed_forward_length": "many"},
    ],
)
def test_sizes_that_do_not_fit_are_errors(tmp_path: Path, settings: dict[str, object]):
    tiny = write_tiny_gguf(tmp_path / "t.gguf", settings=settings)
    with pytest.raises(ModelError):
        convert_gguf(tiny.path, tmp_path / "folder")


def test_nothing_is_overwritten(tmp_path: Path):
    tiny = write_tiny_gguf(tmp_path / "t.gguf")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    with pytest.raises(InputError, match="there already"):
        convert_gguf(tiny.path, tmp_path / "folder")
    with pytest.raises(ShaderloomError, match="no file"):
        convert_gguf(tmp_path / "none.gguf", tmp_path / "other")


@pytest.mark.slow
def test_settings_of_strangers_are_refused_or_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every setting replaced by values of other types and ranges, one at a time: errors are the project's."""
    path = write_tiny_gguf(tmp_path / "t.gguf", "qwen2").path
    with GgufFile(path) as file:
        settings, tensors = dict(file.settings), file.tensors
    for case, (what, other) in enumerate(changed(settings)):
        monkeypatch.setattr(GgufFile, "_read", lambda self, other=other: (other, tensors))
        try:
            convert_gguf(path, tmp_path / str(case))
            assert ModelFolder.read(tmp_path / str(case)).context > 0
            shutil.rmtree(tmp_path / str(case))
        except ShaderloomError:
            continue
        except Exception as error:
            raise AssertionError(what) from error


def test_tables_of_angles_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A length and heads that are allowed each, but whose product is a table of gigabytes."""
    path = write_tiny_gguf(tmp_path / "t.gguf", settings={"llama.context_length": 1 << 18}).path
    with GgufFile(path) as file:
        settings, tensors = dict(file.settings), dict(file.tensors)
    head = 4096
    settings |= {"llama.attention.key_length": head, "llama.rope.dimension_count": head}
    monkeypatch.setattr(GgufFile, "_read", lambda self: (settings, tensors))
    with pytest.raises((ModelError, UnsupportedError), match=r"context_length|key_length"):
        convert_gguf(path, tmp_path / "folder")
