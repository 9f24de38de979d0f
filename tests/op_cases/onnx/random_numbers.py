"""Cases of the operators in ``compiler/ops/onnx/random_numbers.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

#: distributions of a single number: with others no two runtimes agree
_SINGLE_NUMBER = {"Normal": {"mean": 1.5, "scale": 1e-30}, "Uniform": {"low": 2.5, "high": 2.5}}

CASES: Cases = {
    "Bernoulli": (
        Case((Tensor((2, 3), data=[[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]),)),
        Case((Tensor((2, 2), data=[[0.0, 1.0], [1.0, 0.0]]),), {"dtype": 6, "seed": 1.0}),
    ),
    "Multinomial": (
        Case((Tensor((2, 3), data=[[-900.0, 0.0, -900.0], [-900.0, -900.0, 1.0]]),), {"sample_size": 4}, opset=15),
        Case((Tensor((1, 2), data=[[0.0, -900.0]]),), {"sample_size": 3, "dtype": 7, "seed": 2.0}, opset=15),
    ),
    **{
        f"Random{name}{like}": (
            Case(inputs, {**single, **shape}),
            Case(inputs, {**single, "dtype": 10, "seed": 3.0, **shape}),
        )
        for name, single in _SINGLE_NUMBER.items()
        for like, inputs, shape in (("", (), {"shape": [3, 5]}), ("Like", (Tensor((3, 5)),), {}))
    },
}
