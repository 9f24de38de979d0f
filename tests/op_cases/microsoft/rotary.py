"""Cases of the operators in ``compiler/ops/microsoft/rotary.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_CACHE = (Tensor((9, 4), low=-1.0, high=1.0), Tensor((9, 4), low=-1.0, high=1.0))

_POSITIONS = Tensor((2, 3), "int64", data=[[0, 1, 8], [5, 2, 3]])

_HEADS = Tensor((2, 3, 5, 8))

CASES: Cases = {
    "RotaryEmbedding": (
        Case((Tensor((2, 3, 16)), _POSITIONS, *_CACHE)),
        Case((Tensor((2, 3, 16)), Tensor((1,), "int64", data=[4]), *_CACHE), {"interleaved": 1}),
        Case((Tensor((2, 2, 3, 8)), _POSITIONS, *_CACHE)),
        Case((Tensor((2, 3, 24)), _POSITIONS, *_CACHE), {"num_heads": 2, "rotary_embedding_dim": 8}),
        Case((Tensor((2, 3, 16)), _POSITIONS, *_CACHE), {"is_packed_batching": 1, "scale": 2.0}),
    ),
    "GemmaRotaryEmbedding": (Case((Tensor((2, 5, 8)), _HEADS, _HEADS, _HEADS, _HEADS), outputs=2),),
}
