"""Batches of unequal prompts: the answers of the prompts one by one.

Covers: shaderloom/generate/batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shaderloom import Generator
from shaderloom.runtime.plan.errors import InputError

from ...support.tiny_gguf import END, TOKENS, TinyGguf


def drawn(count: int) -> list[int]:
    return np.random.default_rng(count).integers(3, len(TOKENS), count).tolist()


@pytest.mark.parametrize("lengths", [(1, 17, 3), pytest.param((1, 17, 250, 3), marks=pytest.mark.slow)])
def test_greedy_answers_are_those_of_the_reference(generator: Generator, tiny: TinyGguf, lengths: tuple[int, ...]):
    """Prompts of one and of several runs, and over a cache that grows."""
    prompts = [drawn(count) for count in lengths]
    before = generator.tokens
    answers = generator.generate_batch(prompts, max_new_tokens=10)
    for prompt, answer in zip(prompts, answers):
        wanted = tiny.greedy(prompt, 10)
        wanted = wanted[: wanted.index(END) + 1] if END in wanted else wanted
        assert answer.tokens == wanted
        assert (answer.statistics.prompt_tokens, answer.statistics.new_tokens) == (len(prompt), len(wanted))
        assert answer.statistics.ended_by == ("end" if END in wanted else "length")
    assert generator.tokens == before


@pytest.mark.slow
def test_drawn_answers_and_texts_are_those_of_single_prompts(generator: Generator):
    prompts = ["the cat", "the", "in the theatre of the absurd"]
    options: dict[str, Any] = {"max_new_tokens": 12, "temperature": 1.2, "top_k": 30, "seed": 5}
    single = [generator.generate(prompt, stream=False, **options) for prompt in prompts]
    stop = single[0].text[3:5]
    single = [generator.generate(prompt, stream=False, stop=stop, **options) for prompt in prompts]
    batch = generator.generate_batch(prompts, stop=stop, **options)
    assert [each.tokens for each in batch] == [each.tokens for each in single]
    assert [each.text for each in batch] == [each.text for each in single]
    assert [each.statistics.ended_by for each in batch] == [each.statistics.ended_by for each in single]
    assert batch[0].statistics.ended_by == "stop"
    batch[0].close()


def test_prompts_are_checked_before_anything_runs(generator: Generator):
    assert generator.generate_batch([]) == []
    for wrong in ([[3], []], [[3], drawn(generator.max_length)], [[3], [len(TOKENS)]]):
        with pytest.raises(InputError):
            generator.generate_batch(wrong)
