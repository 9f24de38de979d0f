"""Answers that follow grammars, whatever the model would say.

Covers: shaderloom/generate/grammar, shaderloom/generate/grammar_matchers.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shaderloom import Generator
from shaderloom.generate.grammar import CHARACTERS, GrammarProcess, TextConstraint, mask_words, masked
from shaderloom.generate.grammar_matchers import allowed_tokens
from shaderloom.generate.limited_process import LimitedProcess
from shaderloom.generate.text import Tokenizer
from shaderloom.runtime.plan.errors import InputError, UnsupportedError

from ...support.tiny_gguf import END, TOKENS

SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["age", "kind"],
    "additionalProperties": False,
}
LARK = 'start: "<" (/[a-c]/ | start)~1..2 ">"'
#: Rules whose depth overflows the stack of the package
DEEP = "\n".join(["start: r0", *(f'r{rule}: r{rule + 1} r{rule + 1} | "a"' for rule in range(9000)), 'r9000: "a"'])
PROMPT = [40, 7, 90, 12]


def answered(generator: Generator, ids: list[int] = PROMPT, **options: Any) -> Any:
    generator.rewind()
    return generator.generate(ids, **{"max_new_tokens": 60, "stream": False, **options})


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 1.0, "seed": 2}, {"temperature": 1.0, "seed": 3, "top_k": 5, "top_p": 0.9, "min_p": 0.01}],
)
def test_answers_are_what_the_grammar_says(generator: Generator, sampling: dict[str, Any]):
    answer = answered(generator, json_schema=SCHEMA, **sampling)
    value = json.loads(answer.text)
    assert 0 <= value["age"] <= 99 and value["kind"] in ("cat", "dog") and answer.statistics.ended_by == "end"
    assert answer.text == json.dumps(value)  # in this form
    expression = r"[0-9]{3}-(ab|ä)+x{2}!?"
    answer = answered(generator, regex=expression, **sampling)
    ending = answer.statistics.ended_by
    assert re.fullmatch(expression, answer.text) or (ending == "length" and re.match(r"[0-9]{3}-(ab|ä)+", answer.text))
    assert re.match(r"<[<>a-c]+", answered(generator, grammar=LARK, **sampling).text)


def test_device_and_host_choose_alike(generator: Generator):
    """A processor that changes nothing lets the host choose; drafts are chosen for with the masks of their places."""
    for sampling in ({}, {"temperature": 0.7, "seed": 1}):
        wanted = answered(generator, json_schema=SCHEMA, **sampling).tokens
        assert (
            answered(generator, json_schema=SCHEMA, processors=[lambda ids, logits: logits], **sampling).tokens
            == wanted
        )
    repeating = [*PROMPT, *wanted, *PROMPT]
    wanted = answered(generator, repeating, json_schema=SCHEMA).tokens
    assert answered(generator, repeating, json_schema=SCHEMA, prompt_lookup_num_tokens=6).tokens == wanted


def test_rows_of_a_batch_follow_it_each_on_its_own(generator: Generator):
    prompts = [PROMPT, PROMPT[:2], [*PROMPT, 5, 6]]
    batch = generator.generate_batch(prompts, json_schema=SCHEMA, max_new_tokens=60, seed=4, temperature=1.0)
    single = [answered(generator, ids, json_schema=SCHEMA, seed=4, temperature=1.0) for ids in prompts]
    assert [row.tokens for row in batch] == [row.tokens for row in single]


def test_an_answer_without_a_grammar_behind_one_with_it(generator: Generator):
    wanted = answered(generator, temperature=1.0, seed=1).tokens
    answered(generator, json_schema=SCHEMA, temperature=1.0, seed=1)
    assert answered(generator, temperature=1.0, seed=1).tokens == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regex": "[a"}, "unclosed"),
        ({"json_schema": {"type": "objct"}}, "objct"),
        ({"json_schema": "{"}, "the grammar"),
        ({"json_schema": {"a": object()}}, "JSON's values"),
        ({"grammar": "start: other"}, "other"),
        ({"grammar": 5}, "a text, not int"),
        ({"regex": "a" * (CHARACTERS + 1)}, "more than"),
        ({"regex": "a", "grammar": LARK}, "not regex and grammar"),
        ({"json_schema": {"$ref": "https://example.com/schema.json"}}, "not present"),
        ({"grammar": DEEP}, "ended its process"),
    ],
)
def test_what_is_no_grammar_is_refused_before_anything_runs(generator: Generator, options: dict[str, Any], words: str):
    with pytest.raises(InputError, match=words):
        generator.generate(PROMPT, **options)


@pytest.fixture
def tokenizer(folder: Path) -> Iterator[Tokenizer]:
    tokenizer = Tokenizer(folder / "tokenizer.json")
    yield tokenizer
    tokenizer.close()


def test_what_grammars_need(tokenizer: Tokenizer, generator: Generator, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UnsupportedError, match="no token that ends"):
        GrammarProcess(tokenizer, len(TOKENS), ())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="llguidance"):
        GrammarProcess(tokenizer, len(TOKENS), (END,))


def test_time_is_limited(generator: Generator, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generator._shared.grammars, "_process", LimitedProcess("the grammar", 0.0))
    with pytest.raises(InputError, match="took more than 0 s"):
        generator.generate(PROMPT, regex="a+")


def test_an_error_in_the_middle_is_that_of_the_answer(generator: Generator, monkeypatch: pytest.MonkeyPatch):
    allowed = TextConstraint.allowed

    def fail(self: TextConstraint, ids: Any) -> Any:
        if len(ids) > len(PROMPT) + 1:
            raise InputError("the grammar asks for too much")
        return allowed(self, ids)

    monkeypatch.setattr(TextConstraint, "allowed", fail)
    generator.rewind()
    answer = generator.generate(PROMPT, regex="[a-f]{5}", max_new_tokens=9)
    with pytest.raises(InputError, match="too much"):
        list(answer)
    assert len(answer.tokens) == 2 and answer.statistics.ended_by == ""


def bits(folder: Path, text: int, answer: str | list[int]) -> set[int]:
    """The tokens that may follow."""
    tokens = [TOKENS.index(character) for character in answer] if isinstance(answer, str) else answer
    request = {"tokenizer": str(folder / "tokenizer.json"), "vocabulary": len(TOKENS), "ends": [END]}
    request |= {"grammar": ["regex", "(ab|ba)+c?"], "text": text, "tokens": tokens}
    words = np.frombuffer(base64.b64decode(allowed_tokens(request)), "<u4", mask_words(len(TOKENS)))
    return set(np.flatnonzero(masked(np.zeros(len(TOKENS), np.float32), words) == 0).tolist())


def test_masks_depend_on_the_answer_alone(folder: Path):
    """Whatever the text's matcher has taken before: forward, back, and to another end."""
    a, b, c = (TOKENS.index(character) for character in "abc")
    assert bits(folder, 1, "") == {a, b}
    assert bits(folder, 1, "abba") == {a, b, c, END}
    assert bits(folder, 1, "ab") == {a, b, c, END}
    assert bits(folder, 1, "aba") == {b}
    assert bits(folder, 1, "bab") == {a}
    assert bits(folder, 1, "abc") == {END}
    assert bits(folder, 1, [a, b, c, END]) <= {END}
    assert bits(folder, 1, "b") == {a}
    assert bits(folder, 2, "a") == {b}
    assert bits(folder, 1, "") == {a, b}
    assert bits(folder, 1, "aa") == bits(folder, 1, "aab") == set()  # nothing follows what is not allowed
    assert bits(folder, 1, "ab") == {a, b, c, END}


def test_masks_have_a_bit_for_each_token():
    words = np.array([0b101, 1 << 31, 1], np.uint32)
    logits = np.arange(65, dtype=np.float32)
    assert np.flatnonzero(np.isfinite(masked(logits, words))).tolist() == [0, 2, 63, 64]
    assert [mask_words(count) for count in (1, 32, 33)] == [1, 1, 2]
