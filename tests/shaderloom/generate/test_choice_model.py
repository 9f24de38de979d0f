"""The choice on the device is that on the host, which has the probabilities that its parameters say.

Covers: shaderloom/generate/choice_model, shaderloom/generate/chooser, shaderloom/generate/sampling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shaderloom import InferenceSession, Tensor
from shaderloom.generate.choice_model import build_choice
from shaderloom.generate.chooser import DeviceChoice
from shaderloom.generate.grammar import mask_words, masked
from shaderloom.generate.sampling import Sampling, choose, uniform
from shaderloom.runtime.plan.errors import InputError

#: Parameters, and whether the device can always choose by them
CASES: list[tuple[dict[str, Any], bool]] = [
    ({"temperature": 1.0}, True),
    ({"temperature": 0.8, "top_k": 5}, True),
    ({"temperature": 1.0, "top_k": 64, "top_p": 0.9}, True),
    ({"temperature": 0.5, "top_p": 0.5}, True),
    ({"temperature": 1.0, "min_p": 0.1, "repetition_penalty": 0.7}, True),
    ({"repetition_penalty": 1.3}, True),
    ({"repetition_penalty": 1.3, "top_p": 0.1, "top_k": 500}, True),
    ({"temperature": 1e-40, "top_p": 0.9}, True),
    ({"temperature": 5e-324, "min_p": 0.1, "repetition_penalty": 1.3}, True),
    ({"temperature": 9.0, "top_p": 0.99}, False),
    ({"temperature": 1.0, "top_k": 65}, False),
]


def device_choice(logits: Tensor) -> DeviceChoice:
    batch, _, vocabulary = logits.shape
    model = build_choice(vocabulary, logits.element_type, batch)
    return DeviceChoice(InferenceSession(model, device=logits.device, cache=False, dynamic="off"), logits)


@pytest.mark.parametrize(("vocabulary", "dtype"), [(300, "float32"), (33001, "float16"), (50, "float32")])
def test_device_and_host_choose_alike(each_device: Any, vocabulary: int, dtype: str):
    rng = np.random.default_rng(vocabulary)
    logits = Tensor.empty((1, 1, vocabulary), dtype, each_device)
    choice = device_choice(logits)
    for parameters, always in CASES:
        for seed in range(3):
            row = (rng.standard_normal(vocabulary) * 3).astype(dtype)
            logits.update(row[None, None])
            ids = rng.integers(0, vocabulary, 20).tolist()
            sampling = Sampling(**parameters, seed=seed << 33)
            choice.begin([ids[:-1]], [sampling], ids)
            (chosen,) = choice.choose([ids], [sampling])
            seen = np.isin(np.arange(vocabulary), ids)
            if always or vocabulary <= 64:
                assert chosen == choose(row, seen, sampling, 20)
            else:
                assert chosen == -1
    choice.close()


@pytest.mark.parametrize("vocabulary", [300, pytest.param(33001, marks=pytest.mark.slow)])
def test_rows_are_chosen_by_parameters_of_their_own(each_device: Any, vocabulary: int):
    """All cases in one batch, over texts of other lengths, twice: the second time with what the device remembers."""
    rng = np.random.default_rng(vocabulary + 1)
    numbers = (rng.standard_normal((len(CASES), 1, vocabulary)) * 3).astype(np.float32)
    logits = Tensor.from_numpy(numbers, each_device)
    choice = device_choice(logits)
    samplings = [Sampling(**parameters, seed=row) for row, (parameters, _) in enumerate(CASES)]
    texts = [rng.integers(0, vocabulary, 3 + row).tolist() for row in range(len(CASES))]
    choice.begin([ids[:-1] for ids in texts], samplings, texts)
    for _ in range(2):
        chosen = choice.choose(texts, samplings)
        for row, (_, always) in enumerate(CASES):
            seen = np.isin(np.arange(vocabulary), texts[row])
            wanted = choose(numbers[row, 0], seen, samplings[row], len(texts[row]))
            assert chosen[row] == (wanted if always else -1)
            texts[row].append(wanted)
    choice.close()


def test_tokens_that_are_not_allowed_are_not_chosen(each_device: Any):
    """Masks of some tokens, of fewer than there are candidates, of one; and none, behind these."""
    vocabulary, rng = 301, np.random.default_rng(7)
    numbers = (rng.standard_normal((len(CASES), 1, vocabulary)) * 3).astype(np.float32)
    choice = device_choice(Tensor.from_numpy(numbers, each_device))
    samplings = [Sampling(**parameters, seed=row) for row, (parameters, _) in enumerate(CASES)]
    texts = [rng.integers(0, vocabulary, 5).tolist() for _ in CASES]
    choice.begin([ids[:-1] for ids in texts], samplings, texts)
    for count in (200, 20, 1, vocabulary):
        masks = []
        for _ in CASES:
            allowed = rng.permutation(vocabulary)[:count]
            bits = np.isin(np.arange(mask_words(vocabulary) * 32), allowed)
            masks.append(np.packbits(bits, bitorder="little").view("<u4"))
        chosen = choice.choose(texts, samplings, None if count == vocabulary else masks)
        for row, (_, always) in enumerate(CASES):
            seen = np.isin(np.arange(vocabulary), texts[row])
            wanted = choose(masked(numbers[row, 0], masks[row]), seen, samplings[row], 5)
            assert chosen[row] == wanted or (chosen[row] == -1 and not always)
    choice.close()


def test_tokens_are_drawn_with_their_probabilities():
    """4,000 draws of six tokens: no share is five standard deviations off."""
    logits = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01], np.float32))
    count, nothing = 4_000, np.zeros(6, bool)
    for parameters, wanted in (
        ({}, [0.4, 0.3, 0.15, 0.1, 0.04, 0.01]),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0, 0, 0]),
        ({"top_p": 0.75}, [0.4 / 0.85, 0.3 / 0.85, 0.15 / 0.85, 0, 0, 0]),
        ({"min_p": 0.2}, [0.4 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0.1 / 0.95, 0, 0]),
        ({"top_k": 3, "top_p": 0.5}, [4 / 7, 3 / 7, 0, 0, 0, 0]),
    ):
        sampling = Sampling(temperature=1.0, seed=11, **parameters)
        drawn = np.bincount([choose(logits, nothing, sampling, place) for place in range(count)], minlength=6) / count
        spread = np.sqrt(np.array(wanted) * (1 - np.array(wanted)) / count)
        assert (np.abs(drawn - wanted) <= 5 * spread).all(), parameters


@pytest.mark.parametrize("temperature", [1e-10, 1e-40, 5e-324])
def test_draws_of_low_temperatures_are_the_most_probable_tokens(temperature: float):
    logits = (np.random.default_rng(3).standard_normal(300) * 1e3).astype(np.float32)
    for seed in range(20):
        sampling = Sampling(temperature=temperature, top_p=0.9, min_p=0.1, seed=seed)
        assert choose(logits, np.zeros(300, bool), sampling, 0) == logits.argmax()


def test_noise_is_uniform_and_differs_by_key():
    numbers = np.stack([uniform(Sampling(seed=seed).key(place), 1000) for seed in range(5) for place in range(20)])
    assert 0 < numbers.min() < numbers.max() < 1
    counts = np.histogram(numbers, 64, (0, 1))[0]
    expected = numbers.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 63 + 5 * np.sqrt(2 * 63)
    together = np.corrcoef(numbers)
    assert np.abs(together - np.eye(len(numbers))).max() < 0.16
    assert np.abs(np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]) < 0.016


@pytest.mark.parametrize(
    ("wrong", "meaning"),
    [
        ({"temperature": -1}, "a number from 0 to 10,000, not -1"),
        ({"temperature": float("nan")}, "a number from 0 to 10,000, not nan"),
        ({"top_p": 0}, "a number from 1e-06 to 1, not 0"),
        ({"top_k": 1.5}, "an integer from 0 to 2,147,483,648, not 1.5"),
        ({"min_p": 2}, "a number from 0 to 1, not 2"),
        ({"seed": -1}, "an integer from 0 to 18,446,744,073,709,551,615, not -1"),
        ({"repetition_penalty": "1"}, "a number from 0.001 to 1,000, not '1'"),
    ],
)
def test_parameters_are_checked(wrong: dict[str, Any], meaning: str):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is {meaning}"):
        Sampling(**wrong)
