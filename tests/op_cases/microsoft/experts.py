"""Cases of the operator in ``compiler/ops/microsoft/experts.py``."""

from __future__ import annotations

from typing import Any

from ..case import Case, Cases, Tensor

CASE_EXPERTS = 5


def _case(
    rows: tuple[int, ...],
    hidden: int,
    inner: int,
    *,
    bias: bool = True,
    dtype: str = "float32",
    tolerance: float = 1e-5,
    **attributes: Any,
) -> Case:
    """``rows``: the axes of the tokens."""
    count, tokens = CASE_EXPERTS, 1
    for size in rows:
        tokens *= size
    fused = attributes.get("swiglu_fusion", 0)
    first = inner * 2 if fused else inner

    def weight(*shape: int) -> Tensor:
        return Tensor((count, *shape), dtype, -0.5, 0.5, constant=True)

    inputs: list[Tensor | None] = [Tensor((*rows, hidden), dtype), Tensor((tokens, count), dtype)]
    sizes = [(first, hidden), (hidden, inner)]
    if attributes.get("activation_type") == "swiglu" and not fused:
        sizes.append((inner, hidden))
    for outer, columns in sizes:
        inputs += [weight(outer, columns), weight(outer) if bias else None]
    return Case(tuple(inputs), attributes, tolerance=tolerance)


CLAMPED = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.75}

CASES: Cases = {
    "MoE": (
        _case((3,), 7, 9),
        _case((2, 3), 8, 12, k=2, activation_type="gelu"),
        _case((1,), 33, 20, k=5, activation_type="silu", normalize_routing_weights=1, bias=False),
        _case((3,), 8, 5, k=3, activation_type="identity"),
        _case((5,), 7, 6, k=2, swiglu_fusion=1, **CLAMPED),
        _case((5,), 7, 6, k=2, swiglu_fusion=2, normalize_routing_weights=1, **CLAMPED),
        _case((5,), 7, 6, k=2, activation_type="swiglu"),
        _case((5,), 7, 6, k=2, **CLAMPED),
        _case((5,), 7, 6, k=2, swiglu_fusion=1, swiglu_limit_after_activation=1, **CLAMPED),
        _case((5,), 7, 6, k=2, swiglu_fusion=2, activation_type="geglu"),
        _case((5,), 7, 6, activation_type="relu2"),
        _case((4,), 8, 6, k=2, activation_type="silu", dtype="float16", tolerance=2e-3),
        _case((0,), 8, 6, k=2),
    ),
}
