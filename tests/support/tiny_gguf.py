"""Tiny GGUF files of random weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from .llama_reference import LlamaReference

HIDDEN, INNER, LAYERS, HEADS, SHARED, HEAD, CONTEXT = 64, 96, 2, 4, 2, 16, 600
EPSILON, THETA = 1e-5, 1e4
#: Tokens: a start, an end, marks of turns, then bytes, then pairs of them
SPECIAL = ["<s>", "</s>", "<|turn|>"]
MERGES = ["t h", "th e", "Ġ a", "i n"]
TEMPLATE = "{% for m in messages %}<|turn|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}<|turn|>"


def byte_tokens() -> list[str]:
    """The characters that stand for the 256 bytes in byte-level pairs."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


TOKENS = [*SPECIAL, *byte_tokens(), *(merge.replace(" ", "") for merge in MERGES)]
END = 1


@dataclass
class TinyGguf:
    """A file, and the decoder that it holds."""

    path: Path
    reference: LlamaReference

    def logits(self, ids: list[int]) -> np.ndarray:
        """The logits [tokens, vocabulary] of one sequence, float64."""
        return self.reference.logits(ids)

    def greedy(self, ids: list[int], count: int) -> list[int]:
        """The ``count`` most probable tokens behind ``ids``."""
        return self.reference.greedy(ids, count)


def shapes(family: str, *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a file by name."""
    queries, keys = HEADS * HEAD, SHARED * HEAD
    sizes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        sizes["output.weight"] = (len(TOKENS), HIDDEN)
    for layer in range(LAYERS):
        parts = {
            "attn_norm": (HIDDEN,), "attn_q": (queries, HIDDEN), "attn_k": (keys, HIDDEN), "attn_v": (keys, HIDDEN),
            "attn_output": (HIDDEN, queries), "ffn_norm": (HIDDEN,), "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER),
        }  # fmt: skip
        sizes |= {f"blk.{layer}.{part}.weight": shape for part, shape in parts.items()}
        if family == "qwen2":
            sizes |= {f"blk.{layer}.attn_{part}.bias": parts[f"attn_{part}"][:1] for part in "qkv"}
    return sizes


def write_tiny_gguf(
    path: Path,
    family: str = "llama",
    kind: str = "Q4_1",
    *,
    tied: bool = True,
    pre: str = "smollm",
    embedding: str | None = None,
    settings: dict[str, object] | None = None,
) -> TinyGguf:
    """Write a file whose matrices are ``kind``; ``settings`` are added, or replace those of their names."""
    writer = gguf.GGUFWriter(path, family)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(THETA)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(END)
    writer.add_chat_template(TEMPLATE)
    for name, value in (settings or {}).items():
        writer.kv_data[0].pop(name, None)
        writer.add_string(name, value) if isinstance(value, str) else writer.add_uint32(name, value)
    tiny = TinyGguf(path, LlamaReference(family, LAYERS, HEADS, SHARED, HEAD, EPSILON, THETA))
    rng = np.random.default_rng(7)
    for name, shape in shapes(family, tied=tied).items():
        spread = 1.0 if len(shape) == 1 or "embd" in name else 1.6 / np.sqrt(shape[1])
        array = (rng.standard_normal(shape) * spread + (1 if "norm" in name else 0)).astype(np.float32)
        own = embedding if name == "token_embd.weight" and embedding else kind
        dtype = gguf.GGMLQuantizationType["F32" if len(shape) == 1 else own]
        data = gguf.quants.quantize(array, dtype)
        writer.add_tensor(name, data, raw_dtype=dtype)
        tiny.reference.weights[name] = gguf.quants.dequantize(data, dtype).astype(np.float64).reshape(shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tiny
