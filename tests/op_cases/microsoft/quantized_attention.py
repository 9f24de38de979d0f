"""Cases of the operators in ``compiler/ops/microsoft/quantized_attention.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _case(
    mask: Tensor | None = None,
    past: Tensor | None = None,
    *,
    weight: str = "int8",
    columns: bool = False,
    outputs: int = 1,
    **attributes: object,
) -> Case:
    """Weights of 6 bits: onnxruntime's sums of pairs saturate at 16 bits on some processors."""
    parameters = (72,) if columns else ()
    low, high = (0, 63) if weight == "uint8" else (-32, 31)
    operands = (
        Tensor((2, 4, 12), "uint8", 0, 255),
        Tensor((12, 72), weight, low, high, constant=True),
        Tensor((72,), constant=True),
        Tensor((), data=0.01, constant=True),
        Tensor(parameters, low=0.01, high=0.02, constant=True),
        mask,
        Tensor((), "uint8", data=120, constant=True),
        Tensor(parameters, weight, 3, 3, constant=True),
        past,
    )
    return Case(operands, {"num_heads": 3, **attributes}, outputs)


CASES: Cases = {
    "QAttention": (
        _case(),
        _case(Tensor((2, 4), "int32", data=[[1, 1, 1, 0], [1, 1, 1, 1]]), weight="uint8"),
        _case(Tensor((2,), "int32", data=[2, 4]), columns=True, scale=0.4),
        _case(past=Tensor((2, 2, 3, 5, 8)), unidirectional=1, outputs=2),
        Case(
            (Tensor((1, 3, 6), "uint8", 0, 255), Tensor((6, 12), "int8", -32, 31, constant=True), Tensor((12,)))
            + (Tensor((1,), data=[0.01], constant=True), Tensor((1,), data=[0.02], constant=True)),
            {"num_heads": 2},
        ),
    ),
}
