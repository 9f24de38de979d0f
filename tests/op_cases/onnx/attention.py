"""Cases of the operators in ``compiler/ops/onnx/attention.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

Sizes = tuple[int, ...]


def _qkv(query: Sizes, key: Sizes, value: Sizes | None = None, dtype: str = "float32") -> tuple[Tensor, ...]:
    return Tensor(query, dtype), Tensor(key, dtype), Tensor(value or key, dtype)


_FOUR = _qkv((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 10))

_THREE = _qkv((2, 4, 24), (2, 6, 24), (2, 6, 30))

_HEADS = {"q_num_heads": 3, "kv_num_heads": 3}

_CACHE = (Tensor((9, 4), low=-1.0, high=1.0), Tensor((9, 4), low=-1.0, high=1.0))

_POSITIONS = Tensor((2, 3), "int64", data=[[0, 1, 8], [5, 2, 3]])

_DIRECT = (Tensor((2, 3, 4), low=-1.0, high=1.0), Tensor((2, 3, 4), low=-1.0, high=1.0))

CASES: Cases = {
    "Attention": (
        Case(_FOUR),
        Case(_THREE, _HEADS),
        Case(_qkv((2, 6, 4, 8), (2, 2, 6, 8)), {"scale": 0.3}),
        Case(_qkv((2, 4, 24), (2, 6, 8)), {"q_num_heads": 3, "kv_num_heads": 1}),
        Case(_FOUR, {"is_causal": 1}),
        Case((*_FOUR, Tensor((4, 6)))),
        Case((*_FOUR, Tensor((2, 1, 4, 6), "bool"))),
        Case((*_FOUR, Tensor((4, 6))), {"softcap": 2.0, "qk_matmul_output_mode": 2}, outputs=4),
        Case((*_FOUR, None, Tensor((2, 3, 5, 8)), Tensor((2, 3, 5, 10))), {"is_causal": 1}, outputs=3),
        Case((*_FOUR, Tensor((4, 4)))),
        Case(_FOUR, {"qk_matmul_output_mode": 3}, outputs=4),
        Case((*_FOUR, None, None, None, Tensor((2,), "int64", data=[4, 6])), {"is_causal": 1}, opset=24),
        Case(_qkv((1, 2, 4, 8), (1, 2, 6, 8), dtype="float16"), tolerance=3e-3),
        Case(_FOUR, {"is_causal": 1}, opset=23),
    ),
    "RotaryEmbedding": (
        Case((Tensor((2, 2, 3, 8)), *_CACHE, _POSITIONS)),
        Case((Tensor((2, 2, 3, 8)), *_CACHE, _POSITIONS), {"interleaved": 1}),
        Case((Tensor((2, 3, 16)), *_CACHE, _POSITIONS), {"num_heads": 2}),
        Case((Tensor((2, 2, 3, 12)), *_CACHE, _POSITIONS), {"rotary_embedding_dim": 8}),
        Case((Tensor((2, 2, 3, 12)), *_CACHE, _POSITIONS), {"rotary_embedding_dim": 8, "interleaved": 1}),
        Case((Tensor((2, 2, 3, 8)), *_DIRECT)),
    ),
}
