"""Cast and CastLike.

Floats to integers truncate; integers wrap to the width of the target; anything to bool compares with zero.  A cast to a
half rounds, also where the half is never stored: models that cast to it mean its precision and its range.  Floats of 8
and 4 bits go through f32 (:mod:`.codes`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import DType, compute_dtype
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.evaluate import convert, evaluate_expr
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Undecidable
from ..checks import MOVED, is_symbolic, require, wrap
from ..math.codes import code_of, is_not_zero, number_of
from ..registry import Builder, Inferred, register

ROUND_MODES = ("up", "down", "nearest")


@record
class CastAttributes:
    to: int = 0
    saturate: int = 1  #: concerns 8-bit floats alone
    round_mode: str = "up"  #: concerns float8e8m0 alone
    rounds: int = 1  #: 0 in what operators are expanded to: a half that is not stored may stay more precise


@record
class CastLikeAttributes:
    saturate: int = 1
    round_mode: str = "up"


def is_same(source: DType, target: DType, saturate: bool) -> bool:
    """Return whether the cast is the identity. Saturation removes infinities, even where the type does not change."""
    return source is target and not (source.name == "float8e5m2" and saturate)


def convert_expression(
    value: Expr, source: DType, target: DType, saturate: bool = True, round_mode: str = "up", rounds: bool = True
) -> Expr:
    """Convert ``value`` of type ``source`` to an element of type ``target``.

    ``saturate`` and ``round_mode`` are those of :func:`~.codes.code_of`. Without ``rounds`` a half stays an f32 number
    until it is stored.
    """
    if is_same(source, target, saturate):
        return value
    if source.is_code and target is dtypes.BOOL:
        return is_not_zero(value, source)
    if source.is_code:
        return convert_expression(number_of(value, source), dtypes.FLOAT32, target, saturate, round_mode)
    if target.is_code:
        return code_of(ex.cast(value, "f32"), target, saturate, round_mode)
    if source.is_float and target.is_integer and target.width < 32:
        # through i32 also for unsigned targets: negative numbers wrap instead of saturating
        value = ex.cast(value, "i32")
    result = ex.cast(value, target.compute)
    if target in (dtypes.FLOAT16, dtypes.BFLOAT16):
        exact = source is dtypes.BOOL or (source.is_integer and source.width <= 8)
        return result if exact or not rounds else ex.unary(f"round_{target.name}", result)
    fits = source.is_integer and source.width < target.width and (target.is_signed or not source.is_signed)
    return result if fits or source is dtypes.BOOL else wrap(result, target)


def _infer_cast(node: Node) -> Inferred:
    require(node.attributes.round_mode in ROUND_MODES, node, f"round_mode '{node.attributes.round_mode}' is none")
    return [(dtypes.from_onnx(node.attributes.to), node.operand(0).shape)]


def _element(node: Node, args: Sequence[Expr]) -> Expr:
    target = dtypes.from_onnx(node.attributes.to)
    if not target.on_device:
        raise UnsupportedError(f"no device holds element type {target}", origin=node.origin)
    attributes: CastAttributes = node.attributes
    source = node.operand(0).dtype
    return convert_expression(
        args[0], source, target, bool(attributes.saturate), attributes.round_mode, bool(attributes.rounds)
    )


def cast_static(
    operand: np.ndarray, source: DType, target: DType, saturate: bool = True, round_mode: str = "up"
) -> np.ndarray:
    """Cast known elements. Raise :class:`Undecidable` where symbolic integers have no form in the type."""
    if not is_symbolic(operand):
        if any(dtype.is_code or dtype.narrow for dtype in (source, target)) and source.on_device and target.on_device:
            value = ex.register("operand", source.compute)
            result = evaluate_expr(
                convert_expression(value, source, target, saturate, round_mode), registers={"operand": operand}
            )
            return np.broadcast_to(result, operand.shape).astype(compute_dtype(target))
        if target.name == "string" or operand.dtype.kind not in "iufbV":
            raise Undecidable("strings")
        return convert(operand, compute_dtype(target))
    if target.is_code:
        raise Undecidable(f"symbolic integers as {target}")
    if target.name == "bool":
        return np.asarray(np.frompyfunc(lambda element: not ix.equal(element, 0), 1, 1)(operand)).astype(np.bool_)
    if target.is_integer:
        low, high = target.integer_range
        for element in operand.flat:
            element_low, element_high = ix.bounds(element)
            if element_low < low or element_high > high:
                raise Undecidable(f"whether {ix.text(element)} fits {target}")
        return operand
    if any(isinstance(element, ix.Index) for element in operand.flat):
        raise Undecidable(f"a dynamic dimension as {target}")
    return operand.astype(np.int64).astype(compute_dtype(target))


def _fold_cast(node: Node, operand: np.ndarray) -> np.ndarray:
    attributes: CastAttributes = node.attributes
    target = dtypes.from_onnx(attributes.to)
    return cast_static(operand, node.operand(0).dtype, target, bool(attributes.saturate), attributes.round_mode)


def _fold_cast_like(node: Node, operand: np.ndarray, _: np.ndarray) -> np.ndarray:
    attributes: CastLikeAttributes = node.attributes
    source, target = node.operand(0).dtype, node.operand(1).dtype
    return cast_static(operand, source, target, bool(attributes.saturate), attributes.round_mode)


register(
    name="Cast",
    infer=_infer_cast,
    attributes=CastAttributes,
    element=_element,
    types=(MOVED,),
    fold=_fold_cast,
)


def _infer_cast_like(node: Node) -> Inferred:
    return [(node.operand(1).dtype, node.operand(0).shape)]


def _expand_cast_like(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: CastLikeAttributes = node.attributes
    to = node.operand(1).dtype.onnx
    return [builder.op("Cast", node.operand(0), to=to, saturate=attributes.saturate, round_mode=attributes.round_mode)]


register(
    name="CastLike",
    infer=_infer_cast_like,
    attributes=CastLikeAttributes,
    by_type=True,
    expand=_expand_cast_like,
    types=(MOVED,),
    fold=_fold_cast_like,
)
