"""Cases of the operators in ``compiler/ops/onnx/activations.py``."""

from __future__ import annotations

import math

from ..case import Case, Cases, Tensor
from .elementwise import exactly, unary_cases

_WIDE = [Case((exactly(-100.0, -20.0, -1e-4, 0.0, 1e-4, 20.0, 100.0),)), Case((exactly(math.nan, 1.0),))]

CASES: Cases = {
    "Relu": unary_cases(extra=[*_WIDE, Case((Tensor((7,), "int32", -9, 9),)), Case((Tensor((7,), "int8", -9, 9),))]),
    "Sigmoid": unary_cases(-6.0, 6.0, _WIDE),
    "Softplus": unary_cases(-6.0, 6.0, _WIDE[:1]),
    "Softsign": unary_cases(extra=_WIDE),
    "HardSwish": unary_cases(-5.0, 5.0, _WIDE),
    "Mish": unary_cases(-5.0, 5.0, _WIDE[:1]),
    "LeakyRelu": unary_cases(extra=[*_WIDE, Case((Tensor((7,)),), {"alpha": 0.3})]),
    "Selu": unary_cases(extra=[*_WIDE, Case((Tensor((7,)),), {"alpha": 2.0, "gamma": 3.0})]),
    "HardSigmoid": unary_cases(-5.0, 5.0, extra=[*_WIDE, Case((Tensor((7,)),), {"alpha": 1 / 6, "beta": 0.4})]),
    "Gelu": unary_cases(-4.0, 4.0, [*_WIDE, Case((Tensor((3, 7), low=-4.0, high=4.0),), {"approximate": "tanh"})]),
    "Shrink": [
        Case((Tensor((3, 7)),)),
        Case((Tensor((17,)),), {"bias": 0.4, "lambd": 1.0}),
        Case((Tensor((7,), "int32", -9, 9),), {"bias": 1.0, "lambd": 2.0}),
    ],
    "PRelu": [
        Case((Tensor((2, 3, 5, 1)), Tensor((3, 1, 1)))),
        Case((Tensor((3, 7)), Tensor((7,)))),
        Case((Tensor((3, 7)), Tensor((1,)))),
        Case((Tensor((7,), "int32", -9, 9), Tensor((7,), "int32", -9, 9))),
    ],
    **{name: unary_cases(extra=[*_WIDE, Case((Tensor((3, 5)),), {"alpha": 0.7})]) for name in ("Elu", "Celu", "Swish")},
    "ThresholdedRelu": unary_cases(extra=[*_WIDE[:1], Case((Tensor((3, 5)),), {"alpha": 0.7})]),
}
