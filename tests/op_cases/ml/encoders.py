"""Cases of the operators in ``compiler/ops/ml/encoders.py``."""

from __future__ import annotations

import numpy as np

from ..case import Case, Cases, Tensor

_NAN = float("nan")
_FEW = Tensor((2, 5), "int64", -2, 3)

CASES: Cases = {
    "LabelEncoder": (
        Case((_FEW,), {"keys_int64s": [-1, 0, 2], "values_int64s": [10, 1 << 40, 30], "default_int64": -5}, version=2),
        Case((_FEW,), {"keys_int64s": [3, 0, 2, 0], "values_floats": [0.5, 1.5, 2.5, 9.0]}, version=2),
        Case(
            (Tensor((7,), data=[0.5, 1, 2, -0.0, 3, 0.25, 0.5]),),
            {"keys_floats": [0.5, 3.0, 0.0], "values_int64s": [4, 5, 6], "default_int64": 7},
            version=2,
        ),
        Case(
            (Tensor((5,), data=[0.5, _NAN, 2, -1, 3]),),
            {"keys_floats": [0.5, _NAN, 3.0], "values_floats": [1.0, 2.0, 3.0], "default_float": 0.125},
            version=4,
        ),
        Case(
            (_FEW,),
            {
                "keys_tensor": np.array([-2, 1, 3]),
                "values_tensor": np.array([5, -6, 7], np.int16),
                "default_tensor": np.array([9], np.int16),
            },
            version=4,
        ),
        Case((Tensor((0, 3), "int64"),), {"keys_int64s": [1], "values_int64s": [2]}, version=4),
    ),
    "OneHotEncoder": (
        Case((_FEW,), {"cats_int64s": [3, -1, 0, 2]}),
        Case((Tensor((3, 1), low=-4.0, high=4.0),), {"cats_int64s": [-2, -1, 0, 1, 2], "zeros": 1}),
        Case((Tensor((6,), "int64", 0, 2),), {"cats_int64s": [0, 1, 0]}),
        Case((Tensor((4,), "int32", 0, 2),), {"cats_int64s": [0, 1]}),
    ),
}
