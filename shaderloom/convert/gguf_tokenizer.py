"""The tokenizer of a GGUF file as ``tokenizer.json`` and ``tokenizer_config.json``.

A file has tokens, merges and the *name* of a pre-tokenizer.  What the names mean are regular expressions of the models
that they are called after; a name without one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime.plan.errors import ModelError, UnsupportedError

#: Types of tokens
_CONTROL, _USER_DEFINED = 3, 4
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _splits(pattern: str) -> list[dict[str, Any]]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return [split, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]


#: Pre-tokenizers by name: those of SmolLM, Llama 3 and Qwen 2
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
    "llama-bpe": _splits(_QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")),
    "qwen2": _splits(_QWEN2),
}


def write_tokenizer(folder: Path, settings: Mapping[str, Any]) -> tuple[tuple[int, ...], int | None]:
    """Write the files; return the tokens that end an answer, and the one that begins a text, if texts begin with it.

    Raises :class:`UnsupportedError` for another kind of tokenizer, :class:`ModelError` for settings that are wrong.
    """
    kind, name = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.pre")
    if kind != "gpt2":
        raise UnsupportedError(f"the tokenizer is '{kind}'", hint="supported is 'gpt2', byte-level pairs")
    if not isinstance(name, str) or name not in _PRE_TOKENIZERS:
        raise UnsupportedError(
            f"the pre-tokenizer is called '{name}'", hint=f"supported are {', '.join(_PRE_TOKENIZERS)}"
        )
    tokens, merges = _texts(settings, "tokens"), _texts(settings, "merges")
    types = settings.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if len(set(tokens)) != len(tokens) or not isinstance(types, list) or len(types) != len(tokens):
        raise ModelError("the tokens of the file are not distinct, or not each has a type", hint="download it again")
    begin, end = (_token(settings, f"{each}_token_id", len(tokens)) for each in ("bos", "eos"))
    turn = _token(settings, "eot_token_id", len(tokens))
    added = [
        {
            "id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": types[index] == _CONTROL,
        }
        for index, token in enumerate(tokens) if types[index] in (_CONTROL, _USER_DEFINED)
    ]  # fmt: skip
    adds_begin = bool(settings.get("tokenizer.ggml.add_bos_token", name == "llama-bpe")) and begin is not None
    contents = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if name == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[name]},
        "post_processor": _beginning(tokens[begin], begin) if adds_begin and begin is not None else None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": name == "llama-bpe",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [_pair(merge) for merge in merges],
        },
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(contents, ensure_ascii=False), encoding="utf-8")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for key, token in (("bos_token", begin), ("eos_token", end)):
        if token is not None:
            config[key] = tokens[token]
    template = settings.get("tokenizer.chat_template")
    if isinstance(template, str):
        config["chat_template"] = template
    text = json.dumps(config, ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    return tuple(token for token in dict.fromkeys((end, turn)) if token is not None), begin if adds_begin else None


def _texts(settings: Mapping[str, Any], what: str) -> list[str]:
    texts = settings.get(f"tokenizer.ggml.{what}")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ModelError(f"the file has no list of {what}", hint="download it again")
    return texts


def _token(settings: Mapping[str, Any], key: str, count: int) -> int | None:
    token = settings.get(f"tokenizer.ggml.{key}")
    if token is not None and (not isinstance(token, int) or not 0 <= token < count):
        raise ModelError(f"{key} is {token!r}, and there are {count:,} tokens", hint="download it again")
    return token


def _pair(merge: str) -> list[str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise ModelError(f"the merge {merge!r:.40} is no pair", hint="download the file again")
    return [left, right]


def _beginning(token: str, index: int) -> dict[str, Any]:
    """Return the post-processor that puts a token before a text."""
    first, text = {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }
