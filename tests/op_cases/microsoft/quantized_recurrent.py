"""Cases of the operators in ``compiler/ops/microsoft/quantized_recurrent.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _case(
    weight: str, zero: int, *, columns: bool = False, steps: int = 3, length: int | None = None, **attributes: object
) -> Case:
    """Signed weights of 7 bits: onnxruntime's sums saturate at 16 bits on some processors."""
    inputs, units, batch = 6, 5, 1
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    low, high = (0, 127) if weight == "uint8" else (-64, 63)
    parameters = (directions, 4 * units) if columns else (directions,)
    scale = Tensor(parameters, low=0.005, high=0.01, constant=True)
    zeros = Tensor(parameters, weight, zero, zero, constant=True)
    operands = (
        Tensor((steps, batch, inputs)),
        Tensor((directions, inputs, 4 * units), weight, low, high, constant=True),
        Tensor((directions, units, 4 * units), weight, low, high, constant=True),
        Tensor((directions, 8 * units), constant=True),
        None if length is None else Tensor((batch,), "int32", data=[length]),
        Tensor((directions, batch, units), low=-0.5, high=0.5),
        Tensor((directions, batch, units)),
        None,
        *(scale, zeros, scale, zeros),
    )
    return Case(operands, {"hidden_size": units, **attributes}, 3, tolerance=1e-4)


CASES: Cases = {
    "DynamicQuantizeLSTM": (
        _case("int8", 0),
        _case("uint8", 60, direction="bidirectional"),
        _case("int8", 0, columns=True, direction="reverse", steps=5),
        _case("int8", 0, direction="bidirectional", steps=6, length=2),
    ),
}
