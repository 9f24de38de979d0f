"""Cases of the operators in ``compiler/ops/microsoft/skip_normalization.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_ROWS, _VECTOR = Tensor((2, 3, 7)), Tensor((7,))

CASES: Cases = {
    "Gelu": [Case((Tensor((3, 7), low=-4.0, high=4.0),)), Case((Tensor((17,)),))],
    "QuickGelu": [Case((Tensor((3, 7), low=-4.0, high=4.0),)), Case((Tensor((17,)),), {"alpha": 1.0})],
    "SkipLayerNormalization": (
        Case((_ROWS, _ROWS, _VECTOR)),
        Case((_ROWS, _ROWS, _VECTOR, _VECTOR), {"epsilon": 1e-5}),
        Case((_ROWS, _ROWS, _VECTOR, _VECTOR, _VECTOR), {"epsilon": 1e-5}),
    ),
    "SkipSimplifiedLayerNormalization": (
        Case((_ROWS, _ROWS, _VECTOR), {"epsilon": 1e-5}),
        Case((_ROWS, _ROWS, _VECTOR, _VECTOR), {"epsilon": 1e-5}),
    ),
    **dict.fromkeys(
        ("BiasGelu", "FastGelu"),
        (Case((Tensor((3, 7), low=-4.0, high=4.0), Tensor((7,)))), Case((Tensor((2, 3, 5)), Tensor((5,))))),
    ),
}
