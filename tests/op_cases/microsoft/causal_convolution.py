"""Cases of the operator in ``compiler/ops/microsoft/causal_convolution.py``."""

from __future__ import annotations

from typing import Any

from ..case import Case, Cases, Tensor


def _case(
    batch: int,
    channels: tuple[int, ...],
    length: int,
    taps: int,
    *,
    bias: bool = True,
    past: bool = True,
    dtype: str = "float32",
    tolerance: float = 1e-5,
    **attributes: Any,
) -> Case:
    count, state = 1, (taps - 1) * attributes.get("dilation", 1)
    for size in channels:
        count *= size

    def shape(positions: int) -> tuple[int, ...]:
        return (batch, positions, *channels) if attributes.get("channels_last") else (batch, *channels, positions)

    inputs = (
        Tensor(shape(length), dtype),
        Tensor((count, 1, taps), dtype, constant=True),
        Tensor((count,), dtype, constant=True) if bias else None,
        Tensor(shape(state), dtype) if past else None,
    )
    return Case(inputs, attributes, 2, tolerance=tolerance)


CASES: Cases = {
    "CausalConvWithState": (
        _case(2, (3,), 5, 4),
        _case(1, (5,), 1, 4, activation="silu"),
        _case(2, (3,), 2, 4, past=False, activation="swish"),
        _case(2, (7,), 6, 3, bias=False, dilation=3),
        _case(2, (7,), 3, 4, channels_last=1, activation="silu"),
        _case(2, (3, 4), 5, 3, past=False, channels_last=1, dilation=2),
        _case(2, (3,), 4, 1),
        _case(1, (5,), 6, 18),
        _case(1, (5,), 30, 19, channels_last=1, past=False),
        _case(2, (3,), 0, 4),
        _case(2, (6,), 5, 4, dtype="float16", tolerance=2e-3),
    ),
}
