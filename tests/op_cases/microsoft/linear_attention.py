"""Cases of the operator in ``compiler/ops/microsoft/linear_attention.py``."""

from __future__ import annotations

from typing import Any

from ..case import Case, Cases, Tensor


def _case(
    steps: int,
    rule: str,
    *,
    heads: tuple[int, int, int] = (2, 2, 2),
    sizes: tuple[int, int] = (5, 7),
    past: bool = True,
    each_key: bool = False,
    one_rate: bool = False,
    batch: int = 2,
    dtype: str = "float32",
    tolerance: float = 1e-5,
    **attributes: Any,
) -> Case:
    """``heads`` of queries, keys and values; ``sizes`` of a key and a value; ``each_key`` has a decay of its own."""
    (asking, having, holding), (keys, values) = heads, sizes

    def packed(size: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        return Tensor((batch, steps, size), dtype, low, high)

    inputs = (
        packed(asking * keys),
        packed(having * keys, -0.5, 0.5),
        packed(holding * values),
        Tensor((batch, holding, keys, values), dtype) if past else None,
        packed(holding * (keys if each_key else 1), -1.0, 0.0) if "gated" in rule else None,
        packed(1 if one_rate else holding, 0.0, 1.0) if "delta" in rule else None,
    )
    named = {"q_num_heads": asking, "kv_num_heads": holding, "update_rule": rule}
    return Case(inputs, {**named, **attributes}, 2, tolerance=tolerance)


CASES: Cases = {
    "LinearAttention": (
        _case(3, "linear", past=False, scale=0.5),
        _case(4, "gated", heads=(4, 2, 2)),
        _case(4, "delta", heads=(2, 2, 4)),
        _case(5, "gated_delta", heads=(2, 4, 4), each_key=True),
        _case(1, "gated_delta", one_rate=True),
        _case(6, "gated_delta", heads=(6, 2, 2), each_key=True, past=False, sizes=(8, 3)),
        _case(0, "linear"),
        _case(4, "gated_delta", dtype="float16", tolerance=4e-3),
    ),
}
