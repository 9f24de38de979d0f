"""The comparison of tokens a second: medians, ratios of rounds, and tokens that agree."""

from __future__ import annotations

from pathlib import Path

from bench.page_tokens import settings_of
from bench.tokens import GENAI, OURS, summary
from shaderloom.convert.gguf_decoder import convert_gguf

from .support.tiny_gguf import HEAD, LAYERS, SHARED, TOKENS, write_tiny_gguf


def text(first: float, others: float, tokens: list[int]) -> dict[str, object]:
    return {"first_s": first, "others_s": others, "tokens": tokens}


def test_medians_and_ratios_are_of_rounds():
    """A round in which the machine was busy counts in both; the ratio is of its own round."""
    rounds = [(1.0, 2.0, 2.0, 4.0), (10.0, 40.0, 10.0, 20.0), (1.0, 1.0, 2.0, 2.0)]
    texts = [
        {OURS.name: text(a, b, [5, 6, 7]), GENAI.name: text(c, d, [5, 6, 8])} for a, b, c, d in rounds
    ]  # fmt: skip
    opened = {OURS.name: {"version": "1"}, GENAI.name: {"version": "2"}}
    result = summary({"prompt": 10, "count": 3, "rounds": 3, "opened": opened, "texts": texts})
    assert result[OURS.name] == {"version": "1", "prefill_tokens_per_second": 10, "decode_tokens_per_second": 1}
    assert result[GENAI.name] == {"version": "2", "prefill_tokens_per_second": 5, "decode_tokens_per_second": 0.5}
    assert (result["prefill_ratio"], result["decode_ratio"], result["equal_tokens"]) == (2, 2, 2)


def test_what_transformers_js_has_to_know_of_a_folder(tmp_path: Path):
    convert_gguf(write_tiny_gguf(tmp_path / "t.gguf").path, tmp_path / "folder")
    settings = settings_of(tmp_path / "folder")
    assert (settings["num_hidden_layers"], settings["num_key_value_heads"], settings["head_dim"]) == (
        LAYERS,
        SHARED,
        HEAD,
    )
    assert (settings["vocab_size"], settings["hidden_size"]) == (len(TOKENS), SHARED * HEAD)
