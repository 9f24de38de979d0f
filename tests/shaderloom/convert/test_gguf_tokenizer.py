"""Tokenizers of GGUF files split and join texts as their pre-tokenizers say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from shaderloom.convert.gguf_tokenizer import write_tokenizer
from shaderloom.runtime.plan.errors import ModelError

from ...support.tiny_gguf import MERGES, SPECIAL, TEMPLATE, TOKENS

TEXT = "The cat, in 12345 days:  naïve ☃ they're\n\n  in"


def settings(pre: str = "smollm", **more: Any) -> dict[str, Any]:
    own = {
        "model": "gpt2", "pre": pre, "tokens": TOKENS, "merges": MERGES, "bos_token_id": 0, "eos_token_id": 1,
        "token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
    }  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in (own | more).items()} | {
        "tokenizer.chat_template": TEMPLATE
    }


def written(folder: Path, **changes: Any) -> tokenizers.Tokenizer:
    write_tokenizer(folder, settings(**changes))
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("pre", ["smollm", "llama-bpe", "qwen2"])
def test_texts_come_back(tmp_path: Path, pre: str):
    tokenizer = written(tmp_path, pre=pre)
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == TEXT
    assert TOKENS.index("the") in ids
    assert tokenizer.encode("<|turn|>the", add_special_tokens=False).ids == [2, TOKENS.index("the")]


@pytest.mark.parametrize(("pre", "pieces"), [("smollm", 5), ("llama-bpe", 2), ("qwen2", 5)])
def test_numbers_are_split_as_the_name_says(tmp_path: Path, pre: str, pieces: int):
    tokenizer = written(tmp_path, pre=pre)
    assert len(tokenizer.pre_tokenizer.pre_tokenize_str("12345")) == pieces


def test_tokens_that_begin_and_end_texts(tmp_path: Path):
    assert write_tokenizer(tmp_path, settings("llama-bpe", eot_token_id=2)) == ((1, 2), 0)
    assert write_tokenizer(tmp_path, settings("smollm", add_bos_token=False)) == ((1,), None)
    assert written(tmp_path, pre="llama-bpe").encode("the").ids == [0, TOKENS.index("the")]
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"], config["chat_template"]) == ("<s>", "</s>", TEMPLATE)


@pytest.mark.parametrize(
    "changes", [{"tokens": ["a", "a"]}, {"tokens": 3}, {"merges": ["ab"]}, {"token_type": [1]}, {"bos_token_id": -1}]
)
def test_settings_that_are_wrong(tmp_path: Path, changes: dict[str, Any]):
    with pytest.raises(ModelError):
        write_tokenizer(tmp_path, settings(**changes))
