"""Cases of the operators in ``compiler/ops/microsoft/relative_positions.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _lengths(queries: int, keys: int) -> tuple[Tensor, Tensor]:
    first, second = (Tensor((1,), "int64", data=[number], constant=True) for number in (queries, keys))
    return first, second


CASES: Cases = {
    "RelativePositionBias": (
        Case((Tensor((32, 3)), *_lengths(7, 7)), {"max_distance": 128, "is_bidirectional": 1}),
        Case((Tensor((32, 2)), *_lengths(200, 200)), {"max_distance": 128}),
        Case((Tensor((8, 2)), *_lengths(33, 17)), {"max_distance": 20, "is_bidirectional": 1}),
    ),
    "GatedRelativePositionBias": (
        Case(
            (
                *(Tensor((2, 5, 24)), Tensor((24,)), Tensor((1, 3, 5, 5)), Tensor((8, 8), low=-0.5, high=0.5)),
                *(Tensor((8,)), Tensor((1, 3, 1, 1))),
            ),
            {"num_heads": 3},
        ),
    ),
}
