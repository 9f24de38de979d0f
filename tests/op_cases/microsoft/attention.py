"""Cases of the operators in ``compiler/ops/microsoft/attention.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_QKV = (Tensor((2, 4, 24)), Tensor((2, 6, 24)), Tensor((2, 6, 30)))

_HEADS = {"num_heads": 3}

_JOINED = (Tensor((2, 4, 12)), Tensor((12, 72)), Tensor((72,)))

CASES: Cases = {
    "MultiHeadAttention": (
        Case(_QKV, _HEADS),
        Case((*_QKV, Tensor((78,))), {**_HEADS, "scale": 0.4}),
        Case((*_QKV, None, Tensor((8,), "int32", data=[3, 5, 0, 4, 8, 0, 6, 12])), _HEADS),
        Case(
            (*_QKV, None, Tensor((2, 4, 6), "int32", 0, 1), Tensor((2, 1, 4, 6))), {**_HEADS, "mask_filter_value": -9.0}
        ),
        Case(
            (*((Tensor((2, 2, 24)),) * 3), None, None, None, *((Tensor((2, 3, 9, 8)),) * 2))
            + (Tensor((1,), "int32", data=[5]),),
            {**_HEADS, "unidirectional": 1},
            outputs=3,
        ),
        Case((*_QKV, None, Tensor((2, 6), "int32", data=[[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])), _HEADS),
        Case((*_QKV, None, Tensor((2,), "int32", data=[4, 6])), _HEADS),
        Case((*_QKV, None, None, Tensor((1, 3, 4, 6))), _HEADS),
        Case((Tensor((2, 4, 24)),) * 3, {**_HEADS, "unidirectional": 1}),
        Case((Tensor((2, 4, 24)), Tensor((2, 3, 6, 8)), Tensor((2, 3, 6, 8))), _HEADS),
        Case(
            (*((Tensor((2, 4, 24)),) * 3), None, None, None, Tensor((2, 3, 5, 8)), Tensor((2, 3, 5, 8))),
            _HEADS,
            outputs=3,
        ),
    ),
    "Attention": (
        Case(_JOINED, _HEADS),
        Case(_JOINED, {**_HEADS, "unidirectional": 1}),
        Case((*_JOINED, Tensor((2, 4), "int32", data=[[1, 1, 1, 0], [1, 1, 1, 1]])), _HEADS),
        Case((*_JOINED, Tensor((2,), "int32", data=[2, 4])), _HEADS),
        Case((*_JOINED, Tensor((4,), "int32", data=[4, 3, 0, 1])), {**_HEADS, "mask_filter_value": -9.0}),
        Case(
            (*_JOINED, Tensor((4,), "int32", data=[9, 8, 3, 1]), Tensor((2, 2, 3, 5, 8))),
            {**_HEADS, "unidirectional": 1},
            outputs=2,
        ),
        Case((*_JOINED, Tensor((2, 4, 4), "int32", 0, 1)), {**_HEADS, "mask_filter_value": -9.0}),
        Case((*_JOINED[:2],), _HEADS, outputs=2),
        Case((*_JOINED, None, Tensor((2, 2, 3, 5, 8))), _HEADS, outputs=2),
        Case((*_JOINED, None, None, Tensor((2, 3, 4, 4))), {**_HEADS, "scale": 0.3}),
        Case((Tensor((2, 4, 12)), Tensor((12, 78)), Tensor((78,))), {**_HEADS, "qkv_hidden_sizes": [24, 24, 30]}),
    ),
}
