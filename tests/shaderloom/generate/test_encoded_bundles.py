"""Bundles of a decoder with an encoder: the tokens of onnxruntime's steps, without the compiler.

Covers: shaderloom/generate/bundling, shaderloom/generate/encoded_decoder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shaderloom import Generator
from shaderloom.generate.bundling import compile_generator
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.plan.errors import ModelError, ShaderloomError, UnsupportedError

from ...support.bundles import copy_bundle, seal
from .test_encoded_decoder import (
    START,
    Reference,
    drawn,
    sound,
    spoken,
    translated,
    write_translator_folder,
    write_whisper_folder,
)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, with its bundle beside it."""
    folder = write_translator_folder(tmp_path_factory.mktemp("translator"))
    compile_generator(folder, folder / "b", target="web-software")
    return folder


@pytest.fixture(scope="module")
def bundled(translator: Path, device: Any) -> Iterator[Generator]:
    with Generator(translator / "b", device=device) as opened:
        yield opened


def test_texts_into_texts(translator: Path, bundled: Generator):
    """Texts of other lengths, answers that begin with one token, with some and with more than the first run takes."""
    for ids, start in (([9, 8, 7, 6, 5], [START]), (drawn(40), [START, 7, 9]), ([300, 20], [START, *drawn(20)])):
        inputs: dict[str, Any] = {"input_ids": [ids]}
        answer = bundled.generate(start, encoder_inputs=inputs, max_new_tokens=6, stream=False)
        assert answer.tokens == translated(translator, ids, start, 6)
    assert bundled.generate(ids, max_new_tokens=3, stream=False).tokens == translated(translator, ids, [START], 3)
    assert bundled.plans == 4, "of the encoder, of two sizes of first runs and of later ones"


def test_draws_are_those_of_the_folder(translator: Path, bundled: Generator, device: Any):
    sampled: dict[str, Any] = {"max_new_tokens": 5, "temperature": 1.4, "top_k": 30, "seed": 11, "stream": False}
    with Generator(translator, device=device, cache=False) as generator:
        assert bundled.generate([4, 5, 6], **sampled).tokens == generator.generate([4, 5, 6], **sampled).tokens


def test_what_a_bundle_has_of_a_folder(translator: Path, bundled: Generator):
    with Bundle(translator / "b") as opened:
        opened.check_all()
        assert sorted(opened.models) == ["choice", "encoder", "first"]
        assert json.loads(opened.asset("generation.json", 1 << 20))["starts"] == [START]
    with pytest.raises(ShaderloomError, match=r"64|range"):
        bundled.generate(drawn(65), max_new_tokens=1, stream=False)
    with pytest.raises(UnsupportedError, match="encoder"):
        bundled.generate([4, 5], prompt_lookup_num_tokens=3)
    with pytest.raises(UnsupportedError, match="encoder"):
        bundled.generate_batch([[START]])


def test_what_is_not_compiled_is_refused(translator: Path, tmp_path: Path):
    for options, reason in (({"drafts": True}, "no draft"), ({"options": {"precision": "float16"}}, "full precision")):
        with pytest.raises(UnsupportedError, match=reason):
            compile_generator(translator, tmp_path / "b", **options)


@pytest.mark.slow
def test_speech(tmp_path: Path, each_device: Any):
    """A merged decoder: both sides of it, with forks and rewound tokens between them."""
    folder = write_whisper_folder(tmp_path)
    reference = Reference(folder)
    compile_generator(folder, tmp_path / "b")
    with Generator(tmp_path / "b", device=each_device) as speaker:
        for length in (1, 4, 19):
            wanted = reference.greedy(sound(length), drawn(length), 8)
            assert spoken(speaker, drawn(length), length, 8) == wanted
        with speaker.fork() as fork:
            assert spoken(speaker, drawn(5), 2, 4) == reference.greedy(sound(2), drawn(5), 4)
            assert spoken(fork, drawn(19), None, 8) == wanted


def drop_starts(settings: dict[str, Any]) -> None:
    del settings["starts"]


def name_other_caches(settings: dict[str, Any]) -> None:
    settings["present"] = ["none.%d", "nothing.%d"]


@pytest.mark.parametrize("change", [drop_starts, name_other_caches])
def test_settings_are_not_trusted(
    translator: Path, tmp_path: Path, device: Any, change: Callable[[dict[str, Any]], None]
):
    path = copy_bundle(translator / "b", tmp_path / "b")
    file = path / "assets" / "generation.json"
    settings = json.loads(file.read_text())
    change(settings)
    file.write_text(json.dumps(settings))
    seal(path)
    with pytest.raises(ModelError):
        Generator(path, device=device)
