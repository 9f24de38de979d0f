"""Operands of attention and of rotary positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .node import NodeDraw, rule

Found = dict[str, Any]


@rule("Attention")
def attention(d: NodeDraw) -> Found:
    """Four axes, or three with the numbers of heads; groups of queries; masks of numbers or of bools; a past."""
    batch, heads, groups, size = d.integer(1, 2), d.integer(1, 3), d.choose(1, 2), d.choose(2, 4, 3)
    rows, past = d.integer(1, 4), d.choose(0, 0, 2)
    keys = rows if past else d.integer(1, 5)
    flat = d.flip()
    queries = heads * groups

    def shape(count: int, length: int) -> tuple[int, ...]:
        return (batch, length, count * size) if flat else (batch, count, length, size)

    found: Found = {
        "Q": d.leaf("Q", shape(queries, rows)),
        "K": d.leaf("K", shape(heads, keys)),
        "V": d.leaf("V", shape(heads, keys)),
        "scale": d.choose(None, 0.5),
        "softcap": d.choose(0.0, 0.0, 2.0),
        "is_causal": int(d.rarely(3)),
        "qk_matmul_output_mode": None,
        "_outputs": 1,
    }
    for name, count in (("q_num_heads", queries), ("kv_num_heads", heads)):
        found[name] = count if flat else None
    if past:
        for name in ("past_key", "past_value"):
            found[name] = d.leaf(name, (batch, heads, past, size))
        found["_outputs"] = 3
    if d.flip():
        d.bind("attn_mask", d.choose(found["Q"].dtype, "bool"))
        found["attn_mask"] = d.leaf("attn_mask", (rows, keys + past))
        if found["attn_mask"].dtype == "bool":
            found["attn_mask"] = np.tril(np.ones((rows, keys + past), np.bool_), keys + past - rows)
            found["attn_mask"][:, :1] = True
    if "left_window_size" in d.form.attributes:
        found["left_window_size"] = found["right_window_size"] = None
    return found


@rule("RotaryEmbedding")
@rule("RotaryEmbedding", domain="com.microsoft")
def rotary(d: NodeDraw) -> Found:
    batch, heads, length, half = d.integer(1, 2), d.integer(1, 3), d.integer(1, 4), d.integer(1, 3)
    data = d.form.inputs[0].name
    flat = d.flip()
    shape = (batch, length, heads * 2 * half) if flat else (batch, heads, length, 2 * half)
    places = d.growth.generator.integers(0, 6, (batch, length)).astype(np.int64)
    found: Found = {
        data: d.leaf(data, shape),
        "cos_cache": d.leaf("cos_cache", (6, half), -1, 1),
        "sin_cache": d.leaf("sin_cache", (6, half), -1, 1),
        "position_ids": d.growth.add(places, d.flip() and not d.growth.inputs_only),
        "num_heads": heads if flat else None,
        "rotary_embedding_dim": None,
        "interleaved": d.integer(0, 1),
    }
    if d.form.domain:
        found.update(is_packed_batching=None, scale=None)
    return found


@rule("MultiHeadAttention", domain="com.microsoft")
def multi_head(d: NodeDraw) -> Found:
    batch, heads, size, rows, keys = d.integer(1, 2), d.choose(1, 2), d.choose(2, 4), d.integer(1, 4), d.integer(1, 5)
    width = heads * size
    found: Found = {
        "query": d.leaf("query", (batch, rows, width)),
        "key": d.leaf("key", (batch, keys, width)),
        "value": d.leaf("value", (batch, keys, width)),
        "bias": d.leaf("bias", (3 * width,)) if d.flip() else None,
        "attention_bias": d.leaf("attention_bias", (batch, heads, rows, keys)) if d.flip() else None,
        "num_heads": heads,
        "scale": d.choose(None, 0.5),
        "mask_filter_value": None,
        "unidirectional": 0,
        "_outputs": 1,
    }
    if d.rarely():
        found["key_padding_mask"] = d.growth.generator.integers(1, keys + 1, (batch,)).astype(np.int32)
    return found


@rule("Attention", domain="com.microsoft")
def packed_attention(d: NodeDraw) -> Found:
    batch, heads, size, rows, inner = d.integer(1, 2), d.choose(1, 2), d.choose(2, 4), d.integer(1, 4), d.choose(3, 4)
    width = heads * size
    found: Found = {
        "input": d.leaf("input", (batch, rows, inner)),
        "weights": d.leaf("weights", (inner, 3 * width), -0.5, 0.5),
        "bias": d.leaf("bias", (3 * width,), -0.5, 0.5) if d.flip() else None,
        "num_heads": heads,
        "unidirectional": d.integer(0, 1),
        "_outputs": 1,
    }
    for name in ("do_rotary", "past_present_share_buffer", "qkv_hidden_sizes", "rotary_embedding_dim"):
        found[name] = None
    found.update(scale=d.choose(None, 0.5), mask_filter_value=None)
    return found


@rule("QAttention", domain="com.microsoft")
def quantised_attention(d: NodeDraw) -> Found:
    batch, heads, size, rows, inner = d.integer(1, 2), d.choose(1, 2), d.choose(2, 4), d.integer(1, 4), d.choose(3, 4)
    width = 3 * heads * size
    found: Found = {
        "input": d.leaf("input", (batch, rows, inner)),
        "weight": d.leaf("weight", (inner, width)),
        "bias": d.leaf("bias", (width,), -0.5, 0.5),
        "num_heads": heads,
        "unidirectional": d.integer(0, 1),
        "mask_index": None,
        "past": None,
        "_outputs": 1,
    }
    for name in ("do_rotary", "past_present_share_buffer", "scale", "mask_filter_value"):
        found[name] = None
    for name in ("input", "weight"):
        found[f"{name}_scale"] = d.given(f"{name}_scale", np.array(0.125, np.float32), constant=True)
        zero = np.array(3, d.type(f"{name}_zero_point"))
        found[f"{name}_zero_point"] = d.given(f"{name}_zero_point", zero, constant=True)
    return found


@rule("GroupQueryAttention", domain="com.microsoft")
def grouped_queries(d: NodeDraw) -> Found:
    """One prompt without a past: every sequence has all its rows."""
    batch, heads, groups, size, rows = d.integer(1, 2), d.choose(1, 2), d.choose(1, 2), 8, d.integer(1, 4)
    found: Found = dict.fromkeys(d.form.attributes)
    return {
        **found,
        "query": d.leaf("query", (batch, rows, heads * groups * size)),
        "key": d.leaf("key", (batch, rows, heads * size)),
        "value": d.leaf("value", (batch, rows, heads * size)),
        "seqlens_k": np.full((batch,), rows - 1, np.int32),
        "total_sequence_length": d.given("total_sequence_length", np.array(rows, np.int32), constant=True),
        "num_heads": heads * groups,
        "kv_num_heads": heads,
        "scale": d.choose(None, 0.5),
        "softcap": d.choose(None, 2.0),
        "local_window_size": d.choose(None, 2),
        "_outputs": 3,
    }
