"""Cases of the operators in ``compiler/ops/onnx/recurrent.py``."""

from __future__ import annotations

from typing import Any

from shaderloom.compiler.ops.onnx.recurrent import GATES

from ..case import Case, Cases, Tensor


def _case(
    kind: str,
    *,
    steps: int = 4,
    batch: int = 2,
    inputs: int = 3,
    units: int = 5,
    given: str = "",
    outputs: int = 0,
    opset: int | None = None,
    dtype: str = "float32",
    **attributes: object,
) -> Case:
    """``given`` names the optional operands: B, lengths, h, c, P."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    layout, rows = attributes.get("layout", 0), GATES[kind] * units
    state = (batch, directions, units) if layout else (directions, batch, units)
    wanted = given.split()
    operands: list[Tensor | None] = [
        Tensor((batch, steps, inputs) if layout else (steps, batch, inputs), dtype),
        Tensor((directions, rows, inputs), dtype, -0.7, 0.7, constant=True),
        Tensor((directions, rows, units), dtype, -0.7, 0.7, constant=True),
        Tensor((directions, 2 * rows), dtype, constant=True) if "B" in wanted else None,
        Tensor((batch,), "int32", data=[steps - row % 3 for row in range(batch)]) if "lengths" in wanted else None,
        Tensor(state, dtype) if "h" in wanted else None,
        Tensor(state, dtype) if "c" in wanted else None,
        Tensor((directions, 3 * units), dtype, constant=True) if "P" in wanted else None,
    ]
    while operands[-1] is None:
        operands.pop()
    count = outputs or (3 if kind == "lstm" else 2)
    return Case(
        tuple(operands), {"hidden_size": units, **attributes}, count, opset, 3e-3 if dtype == "float16" else 2e-5
    )


def _cases(kind: str) -> tuple[Case, ...]:
    cases = [
        _case(kind),
        _case(kind, given="B"),
        _case(kind, given="B h", direction="reverse"),
        _case(kind, given="B lengths h", direction="bidirectional", batch=3, steps=5),
        _case(kind, given="B lengths", direction="reverse", batch=3),
        _case(kind, given="B h", layout=1),
        _case(kind, given="B", layout=1, direction="bidirectional"),
        _case(kind, given="B", clip=0.6),
        _case(kind, steps=1, batch=1, units=70, given="B h"),
        _case(kind, given="B", opset=7),
        _case(kind, given="B", dtype="float16"),
    ]
    return tuple(cases)


def _named(kind: str, *names: str, **fields: Any) -> Case:
    return _case(kind, given="B", activations=list(names), **fields)


_LSTM_CASES = (
    *_cases("lstm"),
    _case("lstm", given="B h c"),
    _case("lstm", given="B lengths h c P"),
    _case("lstm", given="B h c P", direction="bidirectional", outputs=1),
    _case("lstm", given="B", input_forget=1),
    _named("lstm", "HardSigmoid", "Softsign", "Relu", activation_alpha=[0.3], activation_beta=[0.4]),
)

_GRU_CASES = (
    *_cases("gru"),
    _case("gru", given="B h", linear_before_reset=1),
    _case("gru", given="B lengths h", linear_before_reset=1, direction="bidirectional"),
    _named("gru", "Sigmoid", "ScaledTanh", activation_alpha=[1.5], activation_beta=[0.6]),
)

_RNN_CASES = (
    *_cases("rnn"),
    _named("rnn", "Relu"),
    _named("rnn", "Tanh", "LeakyRelu", direction="bidirectional", activation_alpha=[0.2]),
    _named("rnn", "Affine", activation_alpha=[0.5], activation_beta=[0.1]),
    _named("rnn", "ThresholdedRelu", activation_alpha=[0.3]),
    _named("rnn", "Elu", activation_alpha=[0.5]),
    _named("rnn", "Softplus"),
)

CASES: Cases = {
    "RNN": _RNN_CASES,
    "GRU": _GRU_CASES,
    "LSTM": _LSTM_CASES,
}
