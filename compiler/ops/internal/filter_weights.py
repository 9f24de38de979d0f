"""The weights of a filter by distance, for filters that a run stretches (:mod:`..math.resize_antialias`)."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from .. import checks
from ..registry import register
from .sampling import far_weight, near_weight


@record
class FilterWeightAttributes:
    kernel: str  #: "linear", or "cubic" (the convolution kernel of Keys)
    coefficient: float  #: Keys' ``a``


def _weight(node: Node, args: Sequence[Expr]) -> Expr:
    attributes: FilterWeightAttributes = node.attributes
    distance = ex.unary("abs", args[0])
    zero, one, two = (ex.const(number, "f32") for number in (0.0, 1.0, 2.0))
    if attributes.kernel == "linear":
        return ex.binary("max", one - distance, zero)
    near, far = (weight(distance, attributes.coefficient) for weight in (near_weight, far_weight))
    beyond = ex.select(ex.compare("lt", distance, two), far, zero)
    return ex.select(ex.compare("le", distance, one), near, beyond)


register(
    name="FilterWeight",
    domain="loom",
    infer=checks.same_as_input(),
    attributes=FilterWeightAttributes,
    element=_weight,
    types=(frozenset({"float32"}),),
)
