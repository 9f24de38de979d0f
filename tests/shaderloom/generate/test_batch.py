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


def test_rows_are_drawn_by_seeds_of_their_own_on_the_device(generator: Generator, monkeypatch: pytest.MonkeyPatch):
    """No logits are read: a host that had to choose would fail."""
    monkeypatch.setattr("shaderloom.generate.chooser.choose", None)
    options: dict[str, Any] = {"max_new_tokens": 6, "temperature": 1.5, "top_k": 40}
    batch = generator.generate_batch([drawn(9)] * 3, seed=[1, 2, 1], **options)
    single = [generator.generate(drawn(9), seed=seed, stream=False, **options) for seed in (1, 2)]
    assert [each.tokens for each in batch] == [single[0].tokens, single[1].tokens, single[0].tokens]
    assert batch[0].tokens != batch[1].tokens
    assert [each.statistics.seed for each in batch] == [1, 2, 1]
    batch = generator.generate_batch([drawn(9)] * 3, **options)
    again = generator.generate_batch([drawn(9)] * 3, seed=[each.statistics.seed for each in batch], **options)
    assert len({each.statistics.seed for each in batch}) == 3
    assert [each.tokens for each in again] == [each.tokens for each in batch]


def test_padding_on_either_side_is_no_part_of_a_prompt(generator: Generator):
    rows = [drawn(4), drawn(9)]
    single = [each.tokens for each in generator.generate_batch(rows, max_new_tokens=4)]
    valid, padding = [1] * 4, [0] * 5
    for ids, mask in ((rows[0] + padding, valid + padding), (padding + rows[0], padding + valid)):
        padded = np.array([ids, rows[1]])
        batch = generator.generate_batch(padded, attention_mask=np.array([mask, [1] * 9]), max_new_tokens=4)
        assert [each.tokens for each in batch] == single
        assert [each.statistics.prompt_tokens for each in batch] == [4, 9]


def test_prompts_are_checked_before_anything_runs(generator: Generator):
    assert generator.generate_batch([]) == []
    for wrong in ([[3], []], [[3], drawn(generator.max_length)], [[3], [len(TOKENS)]]):
        with pytest.raises(InputError):
            generator.generate_batch(wrong)
    for options in ({"seed": [1]}, {"attention_mask": [[1, 1], [1]]}, {"attention_mask": [[0], [1]]}):
        with pytest.raises(InputError):
            generator.generate_batch([[3], [4]], **options)
    with pytest.raises(InputError, match="no argument 'nope'"):
        generator.generate_batch([[3]], nope=1)
    with pytest.raises(InputError):
        generator.generate_batch(["the"], attention_mask=[[1, 1, 1]])
