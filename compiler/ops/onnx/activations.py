"""ONNX's activation functions: elementwise, computed in f32, by the formulas of ``activation_functions``."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from .. import checks
from ..checks import FLOATS, NUMERIC, SIGNED, same_as_input, wrap
from ..math.activation_functions import below, gelu, gelu_tanh, mish, number, sigmoid, softplus
from ..registry import Inferred
from .elementwise import define
from .selection import clamp

# -- without attributes ----------------------------------------------------------------------------------------------


def _relu(node: Node, args: Sequence[Expr]) -> Expr:
    return ex.binary("max", args[0], ex.const(0, args[0].dtype))


define("Relu", _relu, infer=same_as_input(), types=(SIGNED,))
define("Sigmoid", lambda node, args: sigmoid(args[0]), infer=same_as_input(), types=(FLOATS,))
define("Softplus", lambda node, args: softplus(args[0]), infer=same_as_input(), types=(FLOATS,))
define(
    "Softsign",
    lambda node, args: args[0] / (number(1.0) + ex.unary("abs", args[0])),
    infer=same_as_input(),
    types=(FLOATS,),
)
define(
    "HardSwish",
    # x / 6 + 1/2 would lose the digits of x + 3 where they cancel
    lambda node, args: args[0] * clamp((args[0] + number(3.0)) * number(1.0 / 6.0), number(0.0), number(1.0)),
    infer=same_as_input(),
    types=(FLOATS,),
)
define("Mish", lambda node, args: mish(args[0]), infer=same_as_input(), types=(FLOATS,))


# -- with attributes -------------------------------------------------------------------------------------------------


@record
class LeakyReluAttributes:
    alpha: float = 0.01


def _leaky_relu(node: Node, args: Sequence[Expr]) -> Expr:
    return ex.select(below(args[0], 0.0), number(node.attributes.alpha) * args[0], args[0])


define("LeakyRelu", _leaky_relu, infer=same_as_input(), types=(FLOATS,), attributes=LeakyReluAttributes)


@record
class AlphaAttributes:
    """``alpha`` with the default 1 of Elu, Celu, ThresholdedRelu and Swish."""

    alpha: float = 1.0


def _elu(node: Node, args: Sequence[Expr]) -> Expr:
    return ex.select(below(args[0], 0.0), number(node.attributes.alpha) * ex.unary("expm1", args[0]), args[0])


def _celu(node: Node, args: Sequence[Expr]) -> Expr:
    alpha = node.attributes.alpha
    negative = number(alpha) * ex.unary("expm1", args[0] / number(alpha))
    return ex.select(below(args[0], 0.0), negative, args[0])


def _thresholded_relu(node: Node, args: Sequence[Expr]) -> Expr:
    return ex.select(ex.compare("gt", args[0], number(node.attributes.alpha)), args[0], number(0.0))


def _swish(node: Node, args: Sequence[Expr]) -> Expr:
    return args[0] * sigmoid(number(node.attributes.alpha) * args[0])


for _name, _element in (
    ("Elu", _elu),
    ("Celu", _celu),
    ("ThresholdedRelu", _thresholded_relu),
    ("Swish", _swish),
):
    define(_name, _element, infer=same_as_input(), types=(FLOATS,), attributes=AlphaAttributes)


@record
class SeluAttributes:
    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


def _selu(node: Node, args: Sequence[Expr]) -> Expr:
    attributes: SeluAttributes = node.attributes
    negative = number(attributes.alpha) * ex.unary("expm1", args[0])
    return number(attributes.gamma) * ex.select(ex.compare("le", args[0], number(0.0)), negative, args[0])


define("Selu", _selu, infer=same_as_input(), types=(FLOATS,), attributes=SeluAttributes)


@record
class HardSigmoidAttributes:
    alpha: float = 0.2
    beta: float = 0.5


def _hard_sigmoid(node: Node, args: Sequence[Expr]) -> Expr:
    attributes: HardSigmoidAttributes = node.attributes
    return clamp(number(attributes.alpha) * args[0] + number(attributes.beta), number(0.0), number(1.0))


define("HardSigmoid", _hard_sigmoid, infer=same_as_input(), types=(FLOATS,), attributes=HardSigmoidAttributes)


@record
class GeluAttributes:
    approximate: str = "none"


def _infer_gelu(node: Node) -> Inferred:
    checks.require_choice(node, "approximate", ("none", "tanh"))
    return same_as_input()(node)


define(
    "Gelu",
    lambda node, args: gelu_tanh(args[0]) if node.attributes.approximate == "tanh" else gelu(args[0]),
    infer=_infer_gelu,
    types=(FLOATS,),
    attributes=GeluAttributes,
)


@record
class ShrinkAttributes:
    bias: float = 0.0
    lambd: float = 0.5


def _shrink(node: Node, args: Sequence[Expr]) -> Expr:
    attributes: ShrinkAttributes = node.attributes
    dtype = node.operand(0).dtype
    value = ex.cast(args[0], "f32")
    bias, limit = number(attributes.bias), number(attributes.lambd)
    inner = ex.select(ex.compare("gt", value, limit), value - bias, number(0.0))
    return wrap(ex.cast(ex.select(ex.compare("lt", value, -limit), value + bias, inner), dtype.compute), dtype)


define("Shrink", _shrink, infer=same_as_input(), types=(NUMERIC,), attributes=ShrinkAttributes)


def _infer_prelu(node: Node) -> Inferred:
    value, slope = node.operand(0), node.operand(1)
    checks.require_same_type(node, [value, slope])
    shape = checks.broadcast_shapes(node, [value.shape, slope.shape])
    checks.require(shape == value.shape, node, "the slope does not broadcast to the input")
    return [(value.dtype, value.shape)]


def _prelu(node: Node, args: Sequence[Expr]) -> Expr:
    negative = ex.compare("lt", args[0], ex.const(0, args[0].dtype))
    return wrap(ex.select(negative, args[0] * args[1], args[0]), node.operand(0).dtype)


define("PRelu", _prelu, infer=_infer_prelu, types=(NUMERIC,))
