"""Folders of exporters are read as they are; others are errors that name what is wrong.

Covers: shaderloom/generate/folder, shaderloom/generate/config_files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shaderloom.generate.folder import ModelFolder
from shaderloom.runtime.plan.errors import (
    InputError,
    MissingFileError,
    ModelError,
    ShaderloomError,
    UnsupportedError,
)

from ...support.hostile_settings import FOLDERS, GENAI, changed


def written(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def genai(folder: Path, **changes: Any) -> Path:
    return written(folder, {"genai_config.json": {"model": GENAI | changes}, "model.onnx": ""})


def test_a_folder_of_onnxruntime_genai(tmp_path: Path):
    read = ModelFolder.read(genai(tmp_path))
    assert (read.model, read.context, read.ends) == (tmp_path / "model.onnx", 512, (2, 5))
    assert (read.past, read.present) == (("p.%d.k", "p.%d.v"), ("n.%d.k", "n.%d.v"))
    assert (read.heads, read.size, read.template) == (2, 16, None)


def test_a_folder_of_transformers(tmp_path: Path):
    config = {"max_position_embeddings": 64, "eos_token_id": 3, "num_attention_heads": 4, "hidden_size": 32}
    special = {
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "chat_template": [{"name": "default", "template": "t"}],
    }
    files = {"config.json": config, "tokenizer_config.json": special, "onnx/model_q4.onnx": ""}
    read = ModelFolder.read(written(tmp_path, files))
    assert (read.model.name, read.context, read.ends, read.heads, read.size) == ("model_q4.onnx", 64, (3,), 4, 8)
    assert (read.template, dict(read.special)) == ("t", {"bos_token": "<s>", "eos_token": "</s>"})
    written(
        tmp_path,
        {"onnx/model_fp16.onnx": "", "chat_template.jinja": "own", "generation_config.json": {"eos_token_id": [7]}},
    )
    with pytest.raises(ModelError, match="model_fp16"):
        ModelFolder.read(tmp_path)
    read = ModelFolder.read(tmp_path, "onnx/model_fp16.onnx")
    assert (read.model.name, read.template, read.ends) == ("model_fp16.onnx", "own", (7,))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"vision": {"filename": "v.onnx"}}, UnsupportedError, "vision"),
        ({"encoder": {"filename": "model.onnx"}}, UnsupportedError, "calls the cross_past caches .* 'None'"),
        ({"decoder": {"sliding_window": {"slide_inputs": False}}}, UnsupportedError, r"\(slide_key_value_cache\)"),
        (
            {"decoder": {"sliding_window": {"slide_inputs": True, "slide_key_value_cache": False}}},
            UnsupportedError,
            r"\(slide_inputs\)",
        ),
        ({"decoder": GENAI["decoder"] | {"pipeline": [{}]}}, UnsupportedError, "pipeline"),
        ({"decoder": {"inputs": {"input_ids": "tokens"}}}, UnsupportedError, "tokens"),
        ({"decoder": {"inputs": {"past_key_names": "p.%s.k"}}}, ModelError, "%s"),
        ({"decoder": {"filename": "../model.onnx"}}, ModelError, "not in the folder"),
        ({"decoder": {"filename": "/etc/passwd"}}, ModelError, "not in the folder"),
        ({"decoder": {"filename": "other.onnx"}}, ModelError, "no file"),
        ({"decoder": []}, ModelError, "object"),
        ({"context_length": "many"}, ModelError, "context_length"),
        ({"context_length": -1}, ModelError, "context_length"),
        ({"context_length": None}, ModelError, "context_length"),
        ({"eos_token_id": ["a"]}, ModelError, "eos_token_id"),
    ],
)
def test_settings_that_are_wrong_are_named(tmp_path: Path, changes: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        ModelFolder.read(genai(tmp_path, **changes))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "{" + " " * (5 << 20) + "}", "\ud800"])
def test_files_that_are_no_settings(tmp_path: Path, text: str):
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ModelError):
        ModelFolder.read(tmp_path)


def test_a_folder_of_onnxruntime_genai_with_an_encoder(tmp_path: Path):
    crossed = {f"cross_past_{part}_names": f"past_{part}_cross_%d" for part in ("key", "value")}
    returned = {f"cross_present_{part}_names": f"present_{part}_cross_%d" for part in ("key", "value")}
    encoder = {"filename": "model.onnx", "outputs": returned}
    path = genai(tmp_path, decoder={"filename": "model.onnx", "inputs": crossed}, encoder=encoder)
    read = ModelFolder.read(path)
    assert (read.encoder, read.later, read.starts) == (tmp_path / "model.onnx", None, ())
    assert (read.past[1:3], read.present[3]) == (
        ("past_key_values.%d.value", "past_key_cross_%d"),
        "present_value_cross_%d",
    )
    changes: dict[str, Any] = {"encoder": encoder | {"outputs": {}}, "decoder_start_token_id": 3}
    with pytest.raises(UnsupportedError, match="cross_present"):
        ModelFolder.read(genai(tmp_path, decoder={"inputs": crossed}, **changes))
    changes["encoder"] = encoder
    assert ModelFolder.read(genai(tmp_path, decoder={"inputs": crossed}, **changes)).starts == (3,)


def test_folders_with_an_encoder(tmp_path: Path):
    config = {"is_encoder_decoder": True, "n_positions": 64, "d_kv": 8, "num_heads": 4, "decoder_start_token_id": 3}
    pair = {f"{name}.onnx": "" for name in ("encoder_model", "decoder_model", "decoder_with_past_model")}
    read = ModelFolder.read(written(tmp_path / "pair", {"config.json": config, **pair}))
    assert read.encoder is not None and read.later is not None
    assert [each.name for each in (read.encoder, read.model, read.later)] == list(pair)
    assert (read.starts, read.heads, read.size) == ((3,), 4, 8)
    assert read.past[1:3] == ("past_key_values.%d.decoder.value", "past_key_values.%d.encoder.key")
    merged = {f"onnx/{name}.onnx": "" for name in ("encoder_model_q4", "encoder_model", "decoder_model_merged_q4")}
    forced = {"generation_config.json": {"forced_decoder_ids": [[1, 7], [2, None], [3, 9]], "eos_token_id": 2}}
    files = {"config.json": config, "onnx/decoder_model_merged.onnx": "", **merged, **forced}
    read = ModelFolder.read(written(tmp_path / "merged", files))
    assert read.encoder is not None
    assert (read.model.name, read.encoder.name) == ("decoder_model_merged.onnx", "encoder_model.onnx")
    assert (read.later, read.starts, read.ends) == (None, (3, 7), (2,))
    read = ModelFolder.read(tmp_path / "merged", "onnx/decoder_model_merged_q4.onnx")
    assert read.encoder is not None and read.encoder.name == "encoder_model_q4.onnx"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "decoder_model_merged.onnx"),
        ({"decoder_model.onnx": "", "encoder_model.onnx": ""}, "decoder_with_past_model.onnx"),
        ({"decoder_model_merged.onnx": ""}, "encoder_model.onnx"),
    ],
)
def test_missing_parts_of_a_model_with_an_encoder_are_named(tmp_path: Path, changes: dict[str, Any], words: str):
    config = {"is_encoder_decoder": True, "n_positions": 64, "decoder_start_token_id": 3}
    with pytest.raises(MissingFileError, match=words):
        ModelFolder.read(written(tmp_path, {"config.json": config, **changes}))
    whole = {"decoder_model_merged.onnx": "", "encoder_model.onnx": ""}
    with pytest.raises(ModelError, match="decoder_start_token_id"):
        ModelFolder.read(written(tmp_path, {"config.json": config | {"decoder_start_token_id": None}, **whole}))


@pytest.mark.parametrize(
    "config",
    [{"relative_attention_num_buckets": 32}, {"model_type": "bloom"}, {"model_type": "bloom", "seq_length": 64}],
)
def test_models_of_distances_have_no_length(tmp_path: Path, config: dict[str, Any]):
    read = ModelFolder.read(written(tmp_path, {"config.json": {"n_head": 4, **config}, "model.onnx": ""}))
    assert read.context == config.get("seq_length", 1 << 20)
    with pytest.raises(ModelError, match="max_position_embeddings"):
        ModelFolder.read(written(tmp_path, {"config.json": {"n_head": 4}}))


def test_other_folders(tmp_path: Path):
    with pytest.raises(ModelError, match="neither"):
        ModelFolder.read(tmp_path)
    written(tmp_path, {"config.json": {}})
    with pytest.raises(InputError, match="not a folder"):
        ModelFolder.read(tmp_path / "config.json")
    with pytest.raises(ModelError, match="no file"):
        ModelFolder.read(tmp_path / "nothing")


PARTS = {f"{name}.onnx": "" for name in ("model", "encoder_model", "decoder_model_merged")}


@pytest.mark.parametrize("files", FOLDERS)
def test_settings_of_strangers_are_refused_or_read(tmp_path: Path, files: dict[str, Any]):
    """Every value of the last file replaced by others of other types and ranges, one at a time."""
    file = list(files)[-1]
    written(tmp_path, PARTS | files)
    count = 0
    for what, other in changed(files[file]):
        (tmp_path / file).write_text(json.dumps(other))
        try:
            read = ModelFolder.read(tmp_path)
            assert all(isinstance(name % 3, str) for name in (*read.past, *read.present))
            assert 0 < read.context < 1 << 31
            assert all(each is None or each.is_relative_to(tmp_path) for each in (read.model, read.encoder, read.later))
            count += 1
        except ShaderloomError:
            continue
        except Exception as error:
            raise AssertionError(what) from error
    assert count > 20
