"""Settings of strangers: every value of a file replaced by others, one at a time."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

#: Values of other types and out of every range
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 3, 1 << 31, (1 << 64) - 1, 1e300, float("nan"), "", "x", "%d%d", "../x", "a\x00b",
    [], [0], [-1], ["x", "x"], [[]], [None], {}, {"x": 1}, {"content": []},
)  # fmt: skip

GENAI: dict[str, Any] = {
    "context_length": 512,
    "eos_token_id": [2, 5],
    "decoder": {
        "filename": "model.onnx",
        "head_size": 16,
        "num_key_value_heads": 2,
        "inputs": {"input_ids": "input_ids", "past_key_names": "p.%d.k", "past_value_names": "p.%d.v"},
        "outputs": {"logits": "logits", "present_key_names": "n.%d.k", "present_value_names": "n.%d.v"},
    },
}
GENAI_ENCODED: dict[str, Any] = GENAI | {
    "encoder": {
        "filename": "encoder_model.onnx",
        "outputs": {f"cross_present_{part}_names": f"n_cross_%d.{part}" for part in ("key", "value")},
    },
    "decoder": GENAI["decoder"]
    | {
        "inputs": {f"cross_past_{part}_names": f"p_cross_%d.{part}" for part in ("key", "value")},
        "sliding_window": {"slide_inputs": False, "slide_key_value_cache": False},
    },
}
TRANSFORMERS: dict[str, Any] = {
    "max_position_embeddings": 64, "eos_token_id": [3], "num_attention_heads": 4, "hidden_size": 32,
    "is_encoder_decoder": False, "model_type": "llama", "text_config": None, "decoder_start_token_id": 3,
    "relative_attention_num_buckets": None,
}  # fmt: skip
TRANSLATOR = TRANSFORMERS | {"is_encoder_decoder": True}
GENERATION = {"eos_token_id": [3], "forced_decoder_ids": [[1, 7], [2, None]], "decoder_start_token_id": 3}
TOKENS = {"bos_token": {"content": "x"}, "chat_template": [{"name": "default", "template": "t"}]}
#: Settings of folders, by the names of the files
FOLDERS: list[dict[str, Any]] = [
    {"genai_config.json": {"model": GENAI}},
    {"genai_config.json": {"model": GENAI_ENCODED}},
    {"config.json": TRANSFORMERS},
    {"config.json": TRANSLATOR},
    {"config.json": TRANSLATOR, "generation_config.json": GENERATION},
    {"config.json": TRANSFORMERS, "tokenizer_config.json": TOKENS},
]


def changed(settings: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return what was replaced, and the settings with it; values inside of objects and lists, too."""
    for place in _places(settings):
        for value in VALUES:
            other: Any = copy.deepcopy(dict(settings))
            holder = other
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = value
            yield f"{'.'.join(map(str, place))} = {json.dumps(value)}", other


def _places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = range(min(len(value), 2)) if isinstance(value, list) else value if isinstance(value, Mapping) else ()
    for key in keys:
        yield (*before, key)
        yield from _places(value[key], (*before, key))
