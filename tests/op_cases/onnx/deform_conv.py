"""Cases of the operators in ``compiler/ops/onnx/deform_conv.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _deform_case(*, group: int = 1, offsets: int = 1, mask: bool = False, bias: bool = False, **fields: object) -> Case:
    operands: list[Tensor | None] = [
        Tensor((1, 4, 6, 7)),
        Tensor((6, 4 // group, 3, 3), constant=True),
        Tensor((1, 18 * offsets, 6, 7), low=-1.5, high=1.5),
        Tensor((6,), constant=True) if bias else None,
        Tensor((1, 9 * offsets, 6, 7), low=0.0, high=1.0) if mask else None,
    ]
    while operands[-1] is None:
        operands.pop()
    return Case(
        tuple(operands), {"pads": [1, 1, 1, 1], "group": group, "offset_group": offsets, **fields}, tolerance=2e-5
    )


CASES: Cases = {
    "DeformConv": (
        _deform_case(),
        _deform_case(mask=True, bias=True),
        _deform_case(group=2, offsets=2),
    ),
}
