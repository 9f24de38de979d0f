"""Cases of the operators in ``compiler/ops/ml/features.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_NAN = float("nan")
_GAPS = Tensor((3, 4), data=[_NAN, 1, 0, -2, 0, _NAN, 5, 0.5, 3, 0, _NAN, 7])

CASES: Cases = {
    "Scaler": (
        Case((Tensor((7, 3)),), {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 0.25, -1.0]}),
        Case((Tensor((5, 3), "int64", -9, 9),), {"offset": [0.5], "scale": [0.1]}),
        Case((Tensor((4,), "int32", -9, 9),), {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [1.0, 2.0, 3.0, 4.0]}),
        Case((Tensor((0, 3)),), {"offset": [0.5], "scale": [0.1]}),
    ),
    "Normalizer": (
        Case((Tensor((5, 7)),), {"norm": "MAX"}),
        Case((Tensor((5, 7)),), {"norm": "L1"}),
        Case((Tensor((5, 7)),), {"norm": "L2"}),
        Case((Tensor((3, 2), data=[0, 0, -3, 0, 0, 1]),), {"norm": "L2"}),
        Case((Tensor((3, 2), data=[0, 0, -3, -4, 0, 1]),), {"norm": "MAX"}),
        Case((Tensor((6,), "int64", -9, 9),), {"norm": "L1"}),
        Case((Tensor((3, 5), "int32", -9, 9),), {"norm": "L2"}),
    ),
    "Imputer": (
        Case((_GAPS,), {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": _NAN}),
        Case((_GAPS,), {"imputed_value_floats": [-1.5], "replaced_value_float": 0.0}),
        Case((Tensor((5, 2), "int64", -1, 1),), {"imputed_value_int64s": [7, 1 << 40], "replaced_value_int64": -1}),
        Case((Tensor((5,), "int64", -1, 1),), {"imputed_value_int64s": [7], "replaced_value_int64": 0}),
    ),
    "Binarizer": (
        Case((Tensor((5, 3)),), {"threshold": 0.25}),
        Case((Tensor((2, 3, 4)),)),
    ),
    "ArrayFeatureExtractor": (
        Case((Tensor((5, 4)), Tensor((1, 2), "int64", data=[3, 0]))),
        Case((Tensor((4,), "int64", -9, 9), Tensor((3,), "int64", data=[2, 2, 1]))),
        Case((Tensor((2, 3, 4), "int32", -9, 9), Tensor((1,), "int64", data=[1], constant=True))),
    ),
    "FeatureVectorizer": (
        Case((Tensor((5, 2)), Tensor((5, 3)), Tensor((5, 1))), {"inputdimensions": [2, 3, 1]}),
        Case((Tensor((3, 2), "int64", -9, 9), Tensor((3, 2), "int64", -9, 9)), {"inputdimensions": [2, 2]}),
    ),
}
