"""Cases of the operators in ``compiler/ops/microsoft/fused.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_PICTURE, _FILTERS, _BIAS = Tensor((1, 3, 7, 5)), Tensor((4, 3, 3, 3), constant=True), Tensor((4,), constant=True)

CASES: Cases = {
    "FusedConv": (
        Case((_PICTURE, _FILTERS, _BIAS), {"activation": "Relu", "pads": [1, 1, 1, 1]}),
        Case((_PICTURE, _FILTERS), {"activation": "LeakyRelu", "activation_params": [0.2]}),
        Case((_PICTURE, _FILTERS, _BIAS), {"activation": "Clip", "activation_params": [-0.5, 1.5]}),
        Case((_PICTURE, _FILTERS), {"activation": "HardSigmoid", "activation_params": [0.1, 0.4]}),
        Case((_PICTURE, _FILTERS, _BIAS, Tensor((1, 4, 5, 3))), {"activation": "Relu"}),
        Case((_PICTURE, _FILTERS), {"activation": "HardSwish"}),
    ),
    "FusedMatMul": (
        Case((Tensor((3, 7)), Tensor((7, 5))), {"alpha": 0.5}),
        Case((Tensor((2, 7, 3)), Tensor((2, 5, 7))), {"transA": 1, "transB": 1}),
        Case((Tensor((2, 3, 4, 5)), Tensor((2, 3, 6, 5))), {"transB": 1, "alpha": 0.125}),
    ),
    "FusedGemm": (
        Case((Tensor((3, 7)), Tensor((7, 5)), Tensor((5,))), {"activation": "Relu"}),
        Case((Tensor((3, 7)), Tensor((5, 7))), {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1}),
        Case(
            (Tensor((7, 3)), Tensor((7, 5)), Tensor((3, 1))),
            {"activation": "Elu", "activation_alpha": 0.3, "transA": 1},
        ),
        Case((Tensor((3, 7)), Tensor((7, 5))), {"activation": "Softplus", "alpha": 0.5}),
        Case((Tensor((3, 7)), Tensor((7, 5))), {"activation": "Softsign"}),
        Case(
            (Tensor((3, 7)), Tensor((7, 5))),
            {"activation": "ScaledTanh", "activation_alpha": 0.5, "activation_beta": 1.5},
        ),
        Case(
            (Tensor((3, 7)), Tensor((7, 5))),
            {"activation": "ParametricSoftplus", "activation_alpha": 0.5, "activation_beta": 1.5},
        ),
        Case((Tensor((3, 7)), Tensor((7, 5))), {"activation": "Celu", "activation_alpha": 0.7}),
        Case((Tensor((3, 7)), Tensor((7, 5))), {"activation": "ThresholdedRelu", "activation_alpha": 0.5}),
    ),
}
