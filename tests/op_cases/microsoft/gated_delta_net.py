"""Cases of the operator in ``compiler/ops/microsoft/gated_delta_net.py``."""

from __future__ import annotations

from typing import Any

from ..case import Case, Cases, Tensor

BATCH, STEPS, KEYS, VALUES = 2, 3, 5, 6


def _case(
    rule: str = "gated_delta",
    *,
    heads: tuple[int, int] = (2, 4),
    joined: bool = False,
    split: bool = False,
    past: bool = True,
    each_key: bool = False,
    bias: tuple[int, ...] | None = None,
    dtype: str = "float32",
    tolerance: float = 1e-5,
    **attributes: Any,
) -> Case:
    """``heads`` of keys and values; ``joined``: one operand for query, key and value; ``split``: batch and steps are
    axes; ``each_key`` has a decay of its own; ``bias``: axes of that of the gate.
    """
    having, holding = heads
    tokens = (BATCH, STEPS) if split else (BATCH * STEPS,)
    gate = attributes.get("gate_activation", "none") != "none"
    if joined:
        packed = [Tensor((*tokens, 2 * having * KEYS + holding * VALUES), dtype, -0.5, 0.5), None, None]
    else:
        keys = [Tensor((*tokens, having, KEYS), dtype, -bound, bound) for bound in (1.0, 0.5)]
        packed = [*keys, Tensor((*tokens, holding, VALUES), dtype)]
    own = (KEYS,) if each_key else ()
    inputs = [
        *packed,
        None,
        Tensor((*tokens, holding, *own), low=-1.0, high=1.0 if gate else 0.0) if "gated" in rule else None,
        Tensor((*tokens, holding), low=0.0, high=1.0) if "delta" in rule else None,
        Tensor((BATCH, holding, VALUES, KEYS)) if past else None,
        Tensor((holding,), low=-1.0, high=1.0) if gate else None,
        Tensor(bias) if bias else None,
    ]
    return Case(tuple(inputs), {"update_rule": rule, **attributes}, 2, tolerance=tolerance)


CASES: Cases = {
    "GatedDeltaNet": (
        _case("linear"),
        _case("gated", each_key=True, scale=0.5),
        _case("delta", heads=(3, 3)),
        _case(joined=True, qk_l2_norm=1),
        _case(split=True, past=False, gate_activation="softplus", bias=(4,), beta_activation="sigmoid"),
        _case(each_key=True, gate_activation="sigmoid", bias=(4, 5), gate_lower_bound=-2.0),
        _case(each_key=True, gate_activation="kda", bias=(20,), split=True),
        _case(gate_activation="qwen", qk_l2_norm=1, bias=(4,)),
        _case(dtype="float16", tolerance=4e-3),
    ),
}
