"""Tokens that the device computes ahead: those of single runs, whoever uses the decoder or the cache meanwhile.

Covers: shaderloom/generate/text_tokens, shaderloom/generate/opened_model.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pytest

from shaderloom import Generator
from shaderloom.generate.decoder import CachedDecoder
from shaderloom.generate.text import Tokenizer

from ...support.tiny_gguf import END, TOKENS

RULES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "top_k": 30, "seed": 3, "repetition_penalty": 0.6},
    {"temperature": 2.0, "top_p": 0.9, "seed": 4},
]


def drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, len(TOKENS), count).tolist()


def one_by_one(generator: Generator, ids: list[int], count: int, **options: Any) -> list[int]:
    """Return the tokens of which the host chooses each before the next run."""
    generator.rewind()
    return generator.generate(
        ids, max_new_tokens=count, processors=[lambda ids, logits: logits], stream=False, **options
    ).tokens


@pytest.mark.parametrize("rule", range(len(RULES)))
def test_tokens_are_those_of_the_host(generator: Generator, rule: int):
    """Also where the host must choose some, and across a capacity of the cache."""
    ids = drawn(246, rule)
    wanted = one_by_one(generator, ids, 24, **RULES[rule])
    generator.rewind()
    result = generator.generate(ids, max_new_tokens=24, stream=False, **RULES[rule])
    assert (result.tokens, generator.tokens) == (wanted, (*ids, *wanted[:-1]))


def test_a_run_is_submitted_before_its_token_is_read(generator: Generator, monkeypatch: pytest.MonkeyPatch):
    """One run for each token, each but the first two submitted before the host has the token that it reads."""
    events: list[str] = []
    for name in ("run", "follow"):
        original = getattr(CachedDecoder, name)

        def noted(self: CachedDecoder, *arguments: Any, _name: str = name, _do: Any = original, **options: Any) -> None:
            events.append(_name)
            _do(self, *arguments, **options)

        monkeypatch.setattr(CachedDecoder, name, noted)
    generator.rewind()
    answer = generator.generate(drawn(9, 1), max_new_tokens=6)
    for _ in answer:
        events.append("piece")
    assert len(answer.tokens) == 6, "none of them ends the answer"
    assert [event for event in events if event != "piece"] == ["run", "run", *["follow"] * 4]
    assert events[-1] == "piece" and events.index("follow") < len(events) - 5


def test_a_run_is_submitted_while_words_are_made(generator: Generator, monkeypatch: pytest.MonkeyPatch):
    events: list[str] = []
    follow, decode = CachedDecoder.follow, Tokenizer.decode_each

    def noted_follow(self: CachedDecoder, *arguments: Any, **options: Any) -> None:
        events.append("follow")
        follow(self, *arguments, **options)

    def noted_decode(self: Tokenizer, *arguments: Any) -> list[str]:
        events.append("words begin")
        texts = decode(self, *arguments)
        events.append("words end")
        return texts

    monkeypatch.setattr(CachedDecoder, "follow", noted_follow)
    monkeypatch.setattr(Tokenizer, "decode_each", noted_decode)
    generator.rewind()
    answer = generator.generate(drawn(9, 1), max_new_tokens=6)
    for _ in answer:
        pass
    assert len(answer.tokens) == 6, "none of them ends the answer"
    words = ["words begin", "words end"]
    assert events == [*words, "follow", *["words begin", "follow", "words end"] * 3, *words, *words]


@pytest.mark.parametrize("rule", range(len(RULES)))
def test_forks_take_turns_between_tokens(generator: Generator, rule: int):
    prompts, options = [drawn(12, 5), drawn(14, 6)], RULES[rule]
    wanted = [one_by_one(generator, ids, 10, **options) for ids in prompts]
    generator.rewind()
    with generator.fork() as fork:
        answers = [one.generate(ids, max_new_tokens=10, **options) for one, ids in zip((generator, fork), prompts)]
        for _ in chain.from_iterable(zip_longest(*answers)):
            pass
        assert [answer.tokens for answer in answers] == wanted
        assert fork.tokens == (*prompts[1], *wanted[1][:-1])


@pytest.mark.parametrize("rest", [3, -1])
def test_an_answer_goes_on_from_a_cache_that_was_rewound(generator: Generator, rest: int):
    """Also by its last token alone, whose row another run has overwritten then."""
    ids = drawn(12, 7)
    wanted = one_by_one(generator, ids, 12)
    generator.rewind()
    answer = generator.generate(ids, max_new_tokens=12)
    for _ in range(4):
        next(answer)
    generator.rewind(rest % len(generator.tokens))
    generator._shared.decoder.run([5], generator._cache, len(generator.tokens), is_greedy=True)
    for _ in answer:
        pass
    assert (answer.tokens, generator.tokens) == (wanted, (*ids, *wanted[:-1]))


def test_what_was_computed_ahead_of_an_answer_that_ended_counts_for_nothing(generator: Generator):
    ids = drawn(12, 8)
    wanted = one_by_one(generator, ids, 12)
    assert END not in wanted
    generator.rewind()
    answer = generator.generate(ids, max_new_tokens=12)
    for _ in range(4):
        next(answer)
    answer.close()
    kept = len(answer.tokens)
    assert generator.tokens == (*ids, *wanted[:kept])  # its run was submitted while its words were made
    result = generator.generate([*ids, *wanted[:kept]], max_new_tokens=12 - kept, stream=False)
    assert (result.tokens, result.statistics.reused_tokens) == (wanted[kept:], len(ids) + kept - 1)
