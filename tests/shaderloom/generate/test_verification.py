"""Drafts that are verified: the tokens of single runs, whatever the draft says.

Covers: shaderloom/generate/verification.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shaderloom import Generator
from shaderloom.generate.prompt_lookup import PromptLookup
from shaderloom.runtime.plan.errors import InputError, UnsupportedError

from ...support.tiny_gguf import TOKENS
from .test_encoded_decoder import whisper
from .test_genai_decoders import written
from .test_growing import growing, optimum_folder

__all__ = ["growing", "optimum_folder", "whisper"]  # fixtures

FEATURES = np.zeros((1, 8, 40), np.float32)
RULES = [
    {},
    {"temperature": 0.8, "top_k": 30, "seed": 3},
    {"temperature": 0.5, "seed": 3, "repetition_penalty": 0.6},
    {"processors": [lambda ids, logits: np.where(np.arange(logits.size) % 7 == 0, -np.inf, logits)]},
]


def drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, len(TOKENS), count).tolist()


def answered(generator: Generator, ids: list[int], count: int, **options: Any) -> Any:
    return generator.generate(ids, max_new_tokens=count, stream=False, **options)


def drafts_of(answer: list[int], start: int, right: Callable[[int], int]) -> Callable[..., list[int]]:
    """Return drafts that say what comes, with the first ``right(place)`` tokens alone right."""

    def draft(_: PromptLookup, text: list[int], most: int) -> list[int]:
        place = len(text) - start
        tokens = answer[place : place + most]
        return [token if at < right(place) else (token + 1) % 100 for at, token in enumerate(tokens)]

    return draft


@pytest.mark.parametrize(
    "rule", [0, 2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_tokens_are_those_of_single_runs(generator: Generator, monkeypatch: pytest.MonkeyPatch, rule: int):
    """Of drafts that are right to any number of tokens, in texts that pass the first capacity of the cache."""
    ids, options = drawn(240, rule), RULES[rule]
    generator.rewind()
    wanted = answered(generator, ids, 40, **options).tokens
    monkeypatch.setattr(PromptLookup, "draft", drafts_of(wanted, len(ids), lambda place: place % 5))
    generator.rewind()
    result = answered(generator, ids, 40, prompt_lookup_num_tokens=6, **options)
    facts = result.statistics
    assert (result.tokens, generator.tokens) == (wanted, (*ids, *wanted[:-1]))
    assert facts.accepted_tokens > 8 and facts.drafted_tokens > 2 * facts.accepted_tokens
    generator.rewind(len(ids) + 20)  # what refused drafts left in the cache counts for nothing
    assert answered(generator, [*ids, *wanted[:21]], 9).tokens == answered_anew(generator, [*ids, *wanted[:21]], 9)


def answered_anew(generator: Generator, ids: list[int], count: int) -> list[int]:
    generator.rewind()
    return answered(generator, ids, count).tokens


@pytest.mark.slow
def test_twenty_prompts(folder: Path, device: Any):
    """Greedy texts of 64 tokens, and ones that repeat themselves: one plan more, and runs that are spared."""
    with Generator(folder, device=device, cache=False) as generator:
        accepted = 0
        for seed in range(20):
            ids = drawn(8, seed) * 2
            options = {"repetition_penalty": 0.5} if seed % 2 else {}
            generator.rewind()
            wanted = answered(generator, ids, 64, **options).tokens
            generator.rewind()
            result = answered(generator, ids, 64, prompt_lookup_num_tokens=15, **options)
            assert result.tokens == wanted
            accepted += result.statistics.accepted_tokens
        assert accepted > 100
        assert generator.plans == 3  # 1 and 16 tokens, and 16 of which all logits are wanted


def test_a_growing_cache_forgets_refused_drafts(growing: Generator, monkeypatch: pytest.MonkeyPatch):
    ids = np.random.default_rng(1).integers(0, 40, 20).tolist()
    growing.rewind()
    wanted = answered(growing, ids, 24).tokens
    monkeypatch.setattr(PromptLookup, "draft", drafts_of(wanted, len(ids), lambda place: place % 4))
    growing.rewind()
    result = answered(growing, ids, 24, prompt_lookup_num_tokens=5)
    assert result.tokens == wanted and result.statistics.accepted_tokens
    assert answered(growing, [*ids, *wanted], 4).tokens == answered_anew(growing, [*ids, *wanted], 4)


def test_an_answer_that_ends_inside_of_a_draft(generator: Generator, monkeypatch: pytest.MonkeyPatch):
    ids = drawn(20, 5)
    generator.rewind()
    wanted = answered(generator, ids, 20)
    monkeypatch.setattr(PromptLookup, "draft", drafts_of(wanted.tokens, len(ids), lambda place: 15))
    stop = wanted.text[3:6]
    generator.rewind()
    result = answered(generator, ids, 20, prompt_lookup_num_tokens=15, stop=stop)
    assert (result.text, result.statistics.ended_by) == (wanted.text[: wanted.text.index(stop)], "stop")
    assert generator.tokens == (*ids, *result.tokens[:-1])


@pytest.mark.slow
def test_the_end_of_the_context_leaves_no_room_for_a_draft(folder: Path, device: Any):
    with Generator(folder, device=device, cache=False, max_length=250) as generator:
        ids = [5, 6] * 110
        wanted = answered(generator, ids, 30, repetition_penalty=0.5).tokens
        generator.rewind()
        assert answered(generator, ids, 30, repetition_penalty=0.5, prompt_lookup_num_tokens=15).tokens == wanted


def test_what_verifies_no_drafts(generator: Generator, whisper: Path, tmp_path: Path, device: Any):
    for wrong in (-1, 16, "8", 1.5):
        with pytest.raises(InputError, match="from 0 to 15"):
            generator.generate([5], prompt_lookup_num_tokens=wrong)  # type: ignore[arg-type]  # what is tested
    for refused in (
        lambda: generator.generate_batch([[5], [6]], prompt_lookup_num_tokens=4),
        lambda: generator.request([5], print, prompt_lookup_num_tokens=4),
    ):
        with pytest.raises(UnsupportedError, match="one text at a time"):
            refused()
    with (
        Generator(whisper, device=device, cache=False) as speaker,
        pytest.raises(UnsupportedError, match="has an encoder"),
    ):
        speaker.generate(encoder_inputs={"input_features": FEATURES}, prompt_lookup_num_tokens=4)
    with (
        Generator(written(tmp_path, -1, True), device=device, cache=False) as pruned,
        pytest.raises(UnsupportedError, match="one row alone"),
    ):
        pruned.generate([5], prompt_lookup_num_tokens=4)
