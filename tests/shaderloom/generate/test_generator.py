"""Texts of a tiny decoder: the tokens of a float64 reference, whatever the cache has and however it is used.

Covers: shaderloom/generate/generator, shaderloom/generate/answer,
shaderloom/generate/decoder, shaderloom/generate/cache, shaderloom/generate/text_row, shaderloom/generate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shaderloom
from shaderloom import Generator
from shaderloom.convert.gguf_decoder import convert_gguf
from shaderloom.generate.decoder import CachedDecoder
from shaderloom.runtime.plan.errors import ClosedError, InputError, UnsupportedError

from ...support.tiny_gguf import CONTEXT, END, TOKENS, TinyGguf, write_tiny_gguf


def drawn(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, len(TOKENS), count).tolist()


def greedy(generator: Generator, ids: list[int], count: int, **options: Any) -> list[int]:
    return generator.generate(ids, max_new_tokens=count, stream=False, **options).tokens


def until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


@pytest.mark.parametrize("length", [1, 3, 16, 50, 150])
def test_greedy_tokens_are_those_of_the_reference(generator: Generator, tiny: TinyGguf, length: int):
    generator.rewind()
    ids = drawn(length, length)
    assert greedy(generator, ids, 12) == until_end(tiny.greedy(ids, 12))


@pytest.mark.slow
def test_drivers_give_the_same_tokens(folder: Path, each_device: Any, tiny: TinyGguf):
    ids = drawn(21, 16)
    with Generator(folder, device=each_device, cache=False) as generator:
        assert greedy(generator, ids, 6) == until_end(tiny.greedy(ids, 6))
        sampled = greedy(generator, ids, 6, temperature=1.0, top_k=30, seed=2)
        assert greedy(generator, ids, 6, temperature=1.0, top_k=30, seed=2) == sampled


def test_three_plans_serve_any_length(folder: Path, device: Any, tiny: TinyGguf):
    """A text that passes capacities of 256 and 512 rows, whose last padded runs do not fit."""
    with Generator(folder, device=device, cache=False, max_length=CONTEXT) as generator:
        ids = drawn(CONTEXT - 3, 9)
        assert greedy(generator, ids, 3) == until_end(tiny.greedy(ids, 3))
        generator.rewind(200)
        assert greedy(generator, ids[:250], 10) == until_end(tiny.greedy(ids[:250], 10))
        for length in (2, 6, 20, 40, 100):
            generator.rewind()
            greedy(generator, ids[:length], 2)
        assert generator.plans == 3


@pytest.mark.slow
def test_a_long_conversation(tmp_path: Path, device: Any):
    """Ten turns over a cache that doubles three times, a fork and a way back: three plans compute what is new."""
    long = write_tiny_gguf(tmp_path / "t.gguf", kind="Q8_0", tied=False, settings={"llama.context_length": 1500})
    convert_gguf(long.path, tmp_path / "folder")
    with Generator(tmp_path / "folder", device=device, cache=False) as generator:
        text: list[int] = []
        for turn, length in enumerate((240, 20, 240, 20, 200, 20, 200, 3, 240, 20)):
            before = len(text)
            text += drawn(length, turn)
            result = generator.generate(text, max_new_tokens=4, stream=False)
            assert result.tokens == until_end(long.greedy(text, 4))
            assert result.statistics.reused_tokens == max(before - 1, 0)
            text += result.tokens
        rows = next(iter(generator._cache.tensors.values())).shape[2]
        assert (rows, generator.plans) == (1536, 3)
        with generator.fork() as fork:
            other = [*text[:700], 5]
            result = fork.generate(other, max_new_tokens=3, stream=False)
            assert (result.tokens, result.statistics.reused_tokens) == (until_end(long.greedy(other, 3)), 700)
        generator.rewind(100)
        again = [*text[:100], 9]
        assert greedy(generator, again, 3) == until_end(long.greedy(again, 3))
        assert generator.plans == 3


def test_runs_are_padded_where_that_takes_less(generator: Generator):
    decoder = generator._shared.decoder
    on_processor = decoder.session.device.profile.is_software
    sizes = [decoder.chunk(wanted, 0) for wanted in (1, 5, 6, 16, 42, 43, 96, 97, 300)]
    assert sizes == [1, 1, 16, 16, 16, *([16, 16] if on_processor else [128, 128]), 128, 128]
    assert [decoder.chunk(300, decoder.form.limit - room) for room in (128, 127, 15)] == [128, 16, 1]


def test_what_both_prompts_begin_with_is_not_computed_again(generator: Generator, tiny: TinyGguf):
    generator.rewind()
    ids = drawn(40, 2)
    first = generator.generate(ids, max_new_tokens=5, stream=False)
    again = [*ids, *first.tokens, *drawn(7, 3)]
    second = generator.generate(again, max_new_tokens=5, stream=False)
    assert (first.statistics.reused_tokens, second.statistics.reused_tokens) == (0, len(ids) + len(first.tokens) - 1)
    assert second.tokens == until_end(tiny.greedy(again, 5))
    other = [*ids[:10], *drawn(5, 4)]
    third = generator.generate(other, max_new_tokens=5, stream=False)
    assert third.statistics.reused_tokens == 10
    assert third.tokens == until_end(tiny.greedy(other, 5))


def test_forks_have_caches_of_their_own(generator: Generator, tiny: TinyGguf):
    generator.rewind()
    ids = drawn(20, 5)
    greedy(generator, ids, 1)
    with generator.fork() as fork:
        assert fork.tokens == generator.tokens
        ways = [[*ids, *drawn(3, seed)] for seed in (6, 7)]
        for turn in range(2):
            for one, way in zip((fork, generator), ways):
                result = one.generate(way, max_new_tokens=4, stream=False)
                assert result.tokens == until_end(tiny.greedy(way, 4))
                assert result.statistics.reused_tokens >= len(ids) + turn * 2
    with pytest.raises(ClosedError):
        fork.generate(ids)
    assert greedy(generator, ids, 1)


def test_draws_depend_on_the_seed_alone(generator: Generator):
    options = {"max_new_tokens": 30, "temperature": 1.5, "top_k": 40, "stream": False}
    ids = drawn(10, 8)
    once = generator.generate(ids, seed=5, **options).tokens
    generator.rewind()
    assert generator.generate(ids, seed=5, **options).tokens == once
    assert generator.generate(ids, seed=6, **options).tokens != once
    unseeded = generator.generate(ids, **options)
    assert generator.generate(ids, seed=unseeded.statistics.seed, **options).tokens == unseeded.tokens
    on_host = generator.generate(ids, seed=5, processors=[lambda ids, logits: logits], **options)
    assert on_host.tokens == once


def test_repeated_tokens_are_punished(generator: Generator, tiny: TinyGguf):
    ids, text = drawn(12, 11), drawn(12, 11)
    for _ in range(8):
        logits = tiny.logits(text)[-1]
        seen = np.unique(text)
        logits[seen] = np.where(logits[seen] < 0, logits[seen] * 1.8, logits[seen] / 1.8)
        text.append(int(logits.argmax()))
    assert greedy(generator, ids, 8, repetition_penalty=1.8) == until_end(text[len(ids) :])


def test_processors_see_and_change_logits(generator: Generator, tiny: TinyGguf):
    ids, lengths = drawn(6, 12), []

    def forbid(ids: Any, logits: np.ndarray) -> np.ndarray:
        lengths.append(len(ids))
        np.testing.assert_allclose(logits, tiny.logits(list(ids))[-1], rtol=1e-3, atol=1e-3)
        return np.where(np.arange(logits.size) == 77, 0, -np.inf)

    assert greedy(generator, ids, 3, processors=[forbid]) == [77, 77, 77]
    assert lengths == [6, 7, 8]
    with pytest.raises(InputError, match="no token is left"):
        greedy(generator, ids, 1, processors=[lambda ids, logits: logits * np.nan])


def test_texts_and_chats(generator: Generator):
    result = generator.generate("the cat", max_new_tokens=12)
    pieces = list(result)
    assert "".join(pieces) == result.text
    assert result.statistics.ended_by in ("length", "end")
    assert result.statistics.prompt_tokens == len(generator.encode("the cat"))
    messages = [{"role": "user", "content": "the cat"}]
    assert generator.encode(messages) == generator.encode("<|turn|>user: the cat\n<|turn|>")


def test_a_text_ends_before_a_stop(generator: Generator):
    whole = generator.generate("the", max_new_tokens=20, temperature=1.0, seed=3, stream=False).text
    stop = whole[4:6]
    result = generator.generate("the", max_new_tokens=20, temperature=1.0, seed=3, stop=stop, stream=False)
    assert result.text == whole[: whole.index(stop)]
    assert result.statistics.ended_by == "stop"


def test_a_generation_that_is_left_ends(generator: Generator, tiny: TinyGguf):
    ids = drawn(9, 14)
    left = generator.generate(ids, max_new_tokens=30)
    next(left)
    assert greedy(generator, ids, 3) == until_end(tiny.greedy(ids, 3))
    assert list(left) == []


def test_an_interrupt_forgets_what_it_may_have_left_halfway(
    generator: Generator, tiny: TinyGguf, monkeypatch: pytest.MonkeyPatch
):
    ids, submit = drawn(9, 15), CachedDecoder.submit

    def interrupted(*arguments: Any) -> None:
        if len(generator.tokens) > 10:
            raise KeyboardInterrupt
        submit(*arguments)

    monkeypatch.setattr(CachedDecoder, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generator.generate(ids, max_new_tokens=30, stream=False)
    assert generator.tokens == ()
    monkeypatch.undo()
    assert greedy(generator, ids, 3) == until_end(tiny.greedy(ids, 3))


def test_lengths_are_checked_before_anything_runs(generator: Generator, folder: Path, device: Any):
    length = generator.max_length
    before = generator.tokens
    for ids, count in ((drawn(length), None), (drawn(length - 3), 4), (drawn(3), 0)):
        with pytest.raises(InputError):
            generator.generate(ids, max_new_tokens=count)
    prompts: list[tuple[Any, str]] = [
        ([], "no tokens"), ([len(TOKENS)], f"0 to {len(TOKENS) - 1}, not {len(TOKENS)}"), ([-1], "not -1"),
        ([{"role": 3}], "a message is"), (["3"], "'3' is no token"), ([3.7], "3.7 is no token"), ([True], "True is no"),
        (np.array([3.5]), "3.5"), (b"abc", "a prompt is"), (3.5, "a prompt is"), (None, "a prompt is"),
        ({3: 4}, "a prompt is"),
    ]  # fmt: skip
    for wrong, message in prompts:
        with pytest.raises(InputError, match=message):
            generator.generate(wrong)
    assert generator.tokens == before
    with pytest.raises(InputError, match="max_length"):
        Generator(folder, device=device, max_length=CONTEXT + 1)
    for number in (True, 300.0, "300"):
        with pytest.raises(InputError, match="max_length is an integer"):
            Generator(folder, device=device, max_length=number)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rewound"):
        generator.rewind(len(before) + 1)
    with pytest.raises(InputError, match="length is an integer"):
        generator.rewind(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_new_tokens", (3.0, "3", True)), ("temperature", (True, "1", None, float("nan"))), ("top_k", (True, 2.0)),
        ("seed", (True, 1.5)), ("stop", (None, 5, b"a", [5], [""])), ("prompt_lookup_num_tokens", (True, 2.0, None)),
        ("processors", (None, len, [3])),
    ],
)  # fmt: skip
def test_arguments_of_other_types_are_errors(generator: Generator, name: str, values: tuple[Any, ...]):
    for value in values:
        options = {"max_new_tokens": 2, name: value}
        with pytest.raises(InputError, match=name):
            generator.generate([3], **options)
        if name != "prompt_lookup_num_tokens":
            with pytest.raises(InputError, match=name):
                generator.generate_batch([[3]], **options)


def test_numbers_of_numpy_are_numbers(generator: Generator):
    plain = greedy(generator, [3, 4], 3, temperature=0.5, top_k=9, seed=7)
    options: dict[str, Any] = {"temperature": np.float32(0.5), "top_k": np.int64(9), "seed": np.uint32(7)}
    answer = generator.generate(np.array([3, 4]), max_new_tokens=np.int32(3), stream=False, **options)  # type: ignore[arg-type]
    assert answer.tokens == plain and type(answer.statistics.seed) is int
    (row,) = generator.generate_batch([[3, 4]], max_new_tokens=3, **options)
    assert row.tokens == plain


def test_what_processors_return_and_call_is_checked(generator: Generator, tiny: TinyGguf):
    """They cannot change the text either, whose tokens they are passed."""

    def again(ids: Any, logits: np.ndarray) -> np.ndarray:
        generator.generate([3])
        return logits

    def append(ids: Any, logits: np.ndarray) -> np.ndarray:
        ids.append(5)
        return logits

    wrong: list[Any] = [lambda ids, logits: None, lambda ids, logits: logits[:5], lambda ids, logits: logits + 0j]
    for processor in wrong:
        with pytest.raises(InputError, match=f"returns float32.{len(TOKENS)}., not"):
            greedy(generator, [3], 1, processors=[processor])
    with pytest.raises(InputError, match="is being computed"):
        greedy(generator, [3], 1, processors=[again])
    assert greedy(generator, [3], 4, processors=[append]) == until_end(tiny.greedy([3], 4))


def test_prompts_of_a_batch_are_a_list(generator: Generator):
    for wrong in ("the cat", None, 5, {"role": "user", "content": "a"}):
        with pytest.raises(InputError, match="prompts are a list"):
            generator.generate_batch(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a prompt is"):
        generator.generate_batch([3, 4])  # type: ignore[list-item]
    with pytest.raises(InputError, match="seed"):
        generator.generate_batch([[3], [4]], seed=1.5)  # type: ignore[arg-type]


def test_a_closed_generator(folder: Path, device: Any):
    generator = Generator(folder, device=device, cache=False)
    generator.close()
    generator.close()
    with pytest.raises(ClosedError):
        generator.generate([1])


def test_a_folder_without_a_template(folder: Path, tmp_path: Path, device: Any):
    for name in ("model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json"):
        (tmp_path / name).symlink_to(folder / name)
    generator = shaderloom.Generator(tmp_path, device=device, cache=False)
    with generator, pytest.raises(UnsupportedError, match="no chat template"):
        generator.encode([{"role": "user", "content": "the"}])
