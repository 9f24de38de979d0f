"""Texts come piece by piece, whole characters at a time, up to what ends them; tokenizers cannot ask for everything.

Covers: shaderloom/generate/text, shaderloom/generate/limited_process, shaderloom/generate/text_worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shaderloom.generate.text import StopTexts, TextStream, Tokenizer
from shaderloom.runtime.plan.errors import InputError, ModelError


@pytest.fixture
def tokenizer(folder: Path) -> Iterator[Tokenizer]:
    opened = Tokenizer(folder / "tokenizer.json")
    yield opened
    opened.close()


def test_pieces_are_whole_characters(tokenizer: Tokenizer):
    text = "the ☃ naïve\n in 𝄞"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    stream = TextStream(tokenizer)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert TextStream(tokenizer).push(ids[-4], last=True) == "\ufffd"


def test_what_may_become_a_stop_is_held_back():
    stops = StopTexts(["END", "\n\n"])
    assert [stops.push(piece) for piece in ("aE", "N", "b\n", "c\n", "\nd")] == [
        ("a", False), ("", False), ("ENb", False), ("\nc", False), ("", True),
    ]  # fmt: skip
    held = StopTexts("stop")
    assert held.push("a sto") == ("a ", False)
    assert held.rest() == "sto"
    for wrong in ([""], [3]):
        with pytest.raises(InputError):
            StopTexts(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": {"type": "BPE"}}'])
def test_a_file_that_is_no_tokenizer(tmp_path: Path, content: str):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError):
        Tokenizer(tmp_path / "tokenizer.json")


#: A tokenizer of two letters, and parts that make it one of no good end
LETTERS: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
}
DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


def letters(folder: Path, seconds: float = 60.0, **parts: Any) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(LETTERS | parts))
    return Tokenizer(folder / "tokenizer.json", seconds)


def test_a_regular_expression_that_never_ends(tmp_path: Path):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = letters(tmp_path, pre_tokenizer=split)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        tokenizer.encode("a" * 60 + "b")
    assert tokenizer.encode("aa") == [0, 0]
    tokenizer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Sequence", "normalizers": [DOUBLING] * 60}},
        {"decoder": {"type": "Sequence", "decoders": [DOUBLING] * 60}},
    ],
)
def test_rules_that_grow_a_text_without_end(tmp_path: Path, parts: dict[str, Any]):
    def decoded() -> str:
        tokenizer = letters(tmp_path, 3.0, **parts)
        return tokenizer.decode(tokenizer.encode("a"))

    with pytest.raises(ModelError, match=r"took more than 3 s|needs more memory"):
        decoded()


def test_what_a_file_says_of_lengths_has_no_effect(tmp_path: Path):
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}
    fill = {"strategy": {"Fixed": 1 << 40}, "direction": "Right", "pad_to_multiple_of": None}
    tokenizer = letters(tmp_path, truncation=cut, padding={**fill, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"})
    assert tokenizer.encode("aba") == [0, 1, 0]
    tokenizer.close()
    assert tokenizer.decode([1]) == "b"  # the process starts again
    tokenizer.close()


def test_a_half_of_a_surrogate_pair(tokenizer: Tokenizer):
    with pytest.raises(InputError, match="surrogate"):
        tokenizer.encode("a\ud800")
