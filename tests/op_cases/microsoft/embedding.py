"""Cases of the operators in ``compiler/ops/microsoft/embedding.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _indices(rows: list[list[int]]) -> Tensor:
    return Tensor((2, 3), "int32", data=rows)


_TOKENS, _SEGMENTS = _indices([[0, 5, 8], [2, 2, 7]]), _indices([[0, 0, 1], [1, 0, 1]])

_TABLES = (Tensor((9, 8)), Tensor((5, 8)), Tensor((2, 8)), Tensor((8,)), Tensor((8,)))


def _quantised_case(*, segments: bool = True, mask: Tensor | None = None) -> Case:
    shapes = ((9, 8), (5, 8), (2, 8), (8,), (8,))
    numbers = [Tensor(shape, "uint8", 0, 255, constant=True) for shape in shapes]
    scales = [Tensor((), data=0.01 * (1 + at), constant=True) for at in range(5)]
    zeros = [Tensor((), "uint8", data=120 + at, constant=True) for at in range(5)]
    operands: list[Tensor | None] = [_TOKENS, _SEGMENTS, *numbers, mask, *scales, *zeros]
    if not segments:
        for position in (1, 4, 10, 15):
            operands[position] = None
    return Case(tuple(operands), {"epsilon": 1e-5}, outputs=2)


CASES: Cases = {
    "EmbedLayerNormalization": (
        Case((_TOKENS, _SEGMENTS, *_TABLES), {"epsilon": 1e-5}, outputs=2),
        Case((_TOKENS, _SEGMENTS, *_TABLES, _indices([[1, 1, 0], [1, 1, 1]])), {"epsilon": 1e-5}, outputs=2),
        Case((_TOKENS, None, *_TABLES[:2], None, *_TABLES[3:]), {"epsilon": 1e-5}, outputs=2),
        Case((_TOKENS, _SEGMENTS, *_TABLES, None, _indices([[0, 1, 2], [4, 3, 0]])), {"epsilon": 1e-5}, outputs=2),
    ),
    "QEmbedLayerNormalization": (
        _quantised_case(),
        _quantised_case(segments=False),
        _quantised_case(mask=_indices([[1, 1, 0], [1, 1, 1]])),
    ),
}
