"""Graphs of onnxruntime-genai's builder and of optimum, in folders as these write them: the logits of onnxruntime.

Covers: shaderloom/generate/decoder, shaderloom/generate/encoded_decoder, compiler/frontend/next_token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from shaderloom import Generator
from shaderloom.generate.bundling import compile_generator

from ...support.models import filled_model

GENAI: dict[str, Any] = {"model": {"context_length": 512, "decoder": {"head_size": 32, "num_key_value_heads": 2}}}
WINDOW = {"window_size": 16, "slide_key_value_cache": False, "slide_inputs": False, "layers": [0], "cache_slack": 0}
WINDOWED = {"model": {"context_length": 512, "decoder": {**GENAI["model"]["decoder"], "sliding_window": WINDOW}}}
WHISPER = {
    "model": {
        "context_length": 64,
        "decoder": {
            "filename": "decoder.onnx",
            "inputs": {
                "past_key_names": "past_key_self_%d",
                "past_value_names": "past_value_self_%d",
                "cross_past_key_names": "past_key_cross_%d",
                "cross_past_value_names": "past_value_cross_%d",
            },
            "outputs": {"present_key_names": "present_key_self_%d", "present_value_names": "present_value_self_%d"},
        },
        "encoder": {
            "filename": "encoder.onnx",
            "inputs": {"audio_features": "audio_features"},
            "outputs": {
                "encoder_hidden_states": "hidden_states",
                "cross_present_key_names": "present_key_cross_%d",
                "cross_present_value_names": "present_value_cross_%d",
            },
        },
    }
}
GPT2 = {"n_positions": 512, "n_head": 4, "n_embd": 64}
T5 = {"is_encoder_decoder": True, "n_positions": 512, "d_kv": 16, "num_heads": 4, "decoder_start_token_id": 0}
TOKENS = 300
#: Greatest difference of logits, of their greatest magnitude
TOLERANCE = 1e-4

Logits = Callable[[list[int]], np.ndarray]


def folder(path: Path, settings: str, content: Any, **models: str) -> Path:
    """Write a folder of graphs of ``tests/data/models`` by their names in it."""
    (path / settings).write_text(json.dumps(content))
    for name, graph in models.items():
        (path / f"{name}.onnx").symlink_to(filled_model(graph))
    return path


def opened(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def whole_texts(path: Path) -> Logits:
    """Return a function that computes the logits of a text's last token without caches."""
    session = opened(path)

    def logits(text: list[int]) -> np.ndarray:
        count = len(text)
        feeds = {"input_ids": [text], "attention_mask": [[1] * count], "position_ids": [list(range(count))]}
        arrays = {port.name: np.array(feeds[port.name]) for port in session.get_inputs() if port.name in feeds}
        for port in session.get_inputs():
            if port.name.startswith("past"):
                size = port.shape[3] if isinstance(port.shape[3], int) else 32
                rows = WINDOW["window_size"] if port.shape[2] == "past_sliding_length" else 0
                arrays[port.name] = np.zeros((1, port.shape[1], rows, size), np.float32)
        return session.run(["logits"], arrays)[0][0, -1]

    return logits


def comparing(wanted: Logits, seen: list[int]) -> Callable[[Any, np.ndarray], np.ndarray]:
    def processor(text: Any, logits: np.ndarray) -> np.ndarray:
        expected = wanted(list(text))
        assert np.abs(logits - expected).max() <= TOLERANCE * np.abs(expected).max()
        seen.append(int(expected.argmax()))
        return logits

    return processor


def drawn(count: int) -> list[int]:
    return np.random.default_rng(count).integers(3, TOKENS, count).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "content", "graph"),
    [
        ("genai_config.json", GENAI, "gemma2_genai"),
        ("genai_config.json", WINDOWED, "gemma2_genai_cpu"),
        ("config.json", GPT2, "gpt2_with_past"),
    ],
)
def test_decoders(tmp_path: Path, each_device: Any, settings: str, content: Any, graph: str):
    """Prompts of one run and of several, then a batch; windows of 16 positions in Gemma's second layer."""
    path = folder(tmp_path, settings, content, model=graph)
    wanted = whole_texts(path / "model.onnx")
    with Generator(path, device=each_device, cache=False) as generator:
        single: list[list[int]] = []
        for length in (1, 7, 45):
            seen: list[int] = []
            generator.rewind()
            generator.generate(drawn(length), max_new_tokens=6, stream=False, processors=[comparing(wanted, seen)])
            generator.rewind()
            single.append(generator.generate(drawn(length), max_new_tokens=6, stream=False).tokens)
            assert single[-1] == seen
        batch = generator.generate_batch([drawn(length) for length in (1, 7, 45)], max_new_tokens=6)
        assert [each.tokens for each in batch] == single


@pytest.mark.slow
def test_two_decoders_behind_an_encoder(tmp_path: Path, each_device: Any):
    """T5's pair: relative positions, and a mask of what was encoded that is added to scores of caches."""
    parts = {"encoder_model": "t5_encoder", "decoder_model": "t5_decoder"}
    path = folder(tmp_path, "config.json", T5, **parts, decoder_with_past_model="t5_decoder_with_past")
    encoder, decoder = opened(path / "encoder_model.onnx"), opened(path / "decoder_model.onnx")
    with Generator(path, device=each_device, cache=False) as generator:
        for length, valid in ((3, 3), (17, 17), (9, 6)):
            mask = np.array([[1] * valid + [0] * (length - valid)])
            feeds = {"input_ids": np.array([drawn(length)]), "attention_mask": mask}
            (hidden,) = encoder.run(None, feeds)
            inputs = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}

            def wanted(text: list[int], inputs: dict[str, np.ndarray] = inputs) -> np.ndarray:
                return decoder.run(["logits"], {"input_ids": np.array([text]), **inputs})[0][0, -1]

            for start in ([0], [0, *drawn(20)]):
                seen: list[int] = []
                options: dict[str, Any] = {"encoder_inputs": feeds, "max_new_tokens": 5, "stream": False}
                generator.generate(start, processors=[comparing(wanted, seen)], **options)
                assert generator.generate(start, **options).tokens == seen


def sound(seed: int) -> np.ndarray:
    """Return noise whose bands have means of their own."""
    draw = np.random.default_rng(seed)
    means, noise = draw.normal(scale=20, size=(1, 16, 1)), draw.standard_normal((1, 16, 3000))
    return (means + noise).astype(np.float32)


def heard_by(path: Path, features: np.ndarray) -> Logits:
    """Return a function that computes the logits of a text's last token behind a sound, without its own caches."""
    encoder, decoder = opened(path / "encoder.onnx"), opened(path / "decoder.onnx")
    results = dict(zip([port.name for port in encoder.get_outputs()], encoder.run(None, {"audio_features": features})))

    def logits(text: list[int]) -> np.ndarray:
        arrays = {"input_ids": np.array([text], np.int32)}
        for port in decoder.get_inputs()[1:]:
            empty = np.zeros((1, 4, 0, 16), np.float32)
            arrays[port.name] = results.get(port.name.replace("past", "present"), empty)
        return decoder.run(["logits"], arrays)[0][0, -1]

    return logits


@pytest.mark.parametrize("lengths", [(3,), pytest.param((1, 20), marks=pytest.mark.slow)])
def test_an_encoder_that_returns_caches(tmp_path: Path, each_device: Any, lengths: tuple[int, ...]):
    """Whisper's pair of onnxruntime-genai: what was heard counts on, in forks, and until something else is heard."""
    path = folder(
        tmp_path, "genai_config.json", WHISPER, encoder="whisper_genai_encoder", decoder="whisper_genai_decoder"
    )
    with Generator(path, device=each_device, cache=False) as generator:
        seen: list[int] = []
        for length in lengths:
            ids, wanted = drawn(length), heard_by(path, sound(length))
            options: dict[str, Any] = {"max_new_tokens": 4, "stream": False, "processors": [comparing(wanted, seen)]}
            generator.generate(ids, encoder_inputs={"audio_features": sound(length)}, **options)
            with generator.fork() as fork:
                fork.generate([*ids, 7], **options)
            assert generator.generate(ids, max_new_tokens=4, stream=False).tokens == seen[-8:-4]
        first, other = (heard_by(path, sound(seed))(drawn(3)) for seed in (1, 2))
        assert np.abs(first - other).max() > 0.05 * np.abs(first).max(), "the sounds make a difference"
        assert generator.plans == 2 + len(lengths)


@pytest.mark.slow
def test_a_bundle_of_an_encoder_that_returns_caches(tmp_path: Path, device: Any):
    path = folder(
        tmp_path, "genai_config.json", WHISPER, encoder="whisper_genai_encoder", decoder="whisper_genai_decoder"
    )
    compile_generator(path, tmp_path / "b.shaderbundle")
    seen: list[int] = []
    with Generator(tmp_path / "b.shaderbundle", device=device) as generator:
        for length in (1, 20):
            options: dict[str, Any] = {"processors": [comparing(heard_by(path, sound(length)), seen)], "stream": False}
            inputs = {"audio_features": sound(length)}
            generator.generate(drawn(length), encoder_inputs=inputs, max_new_tokens=3, **options)
    assert len(seen) == 6
