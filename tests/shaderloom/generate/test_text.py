"""Texts come piece by piece, whole characters at a time, up to what ends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaderloom.generate.text import StopTexts, TextStream, Tokenizer
from shaderloom.runtime.plan.errors import InputError, ModelError


def test_pieces_are_whole_characters(folder: Path):
    tokenizer = Tokenizer(folder / "tokenizer.json")
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
