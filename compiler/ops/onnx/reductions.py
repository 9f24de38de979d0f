"""ONNX's reductions, ArgMax and ArgMin, and pools over all spatial axes, by the kernels of ``reduction``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import INT32, INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic.polynomial import Undecidable
from .. import checks
from ..checks import ANY, FLOATS, NUMERIC, attribute_to_input
from ..internal.reduction import ArgReduceAttributes, ReduceAttributes, arg_reduce_array, fold_reduce, reduce_array
from ..math.reductions import mean, power_norm, reduce, reduced_shape
from ..registry import Axes, Builder, Inferred, register

# -- ONNX reductions -------------------------------------------------------------------------------------------------


@record
class ReduceOperatorAttributes:
    keepdims: int = 1
    noop_with_empty_axes: int = 0


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Return the axes of input 1: an empty list means all axes, or none under ``noop_with_empty_axes``."""
    rank = node.operand(0).rank
    axes: Sequence[int] = ()
    if node.optional(1) is not None:
        axes = checks.static_integers(node, 1, "the axes of a reduction")
    if not axes:
        return () if node.attributes.noop_with_empty_axes else tuple(range(rank))
    return tuple(sorted(checks.normalise_axes(node, axes, rank)))


def _infer_operator(node: Node) -> Inferred:
    value = node.operand(0)
    return [(value.dtype, reduced_shape(value.shape, reduced_axes(node), bool(node.attributes.keepdims)))]


Decomposition = Callable[[Builder, Value, tuple[int, ...], bool], Value]


def _sum_of(transform: Callable[[Builder, Value], Value]) -> Decomposition:
    def decompose(builder: Builder, value: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        return reduce(builder, transform(builder, value), "sum", axes, keepdims)

    return decompose


def _plain(kind: str) -> Decomposition:
    def decompose(builder: Builder, value: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        return reduce(builder, value, kind, axes, keepdims)

    return decompose


def _extremum(kind: str) -> Decomposition:
    def decompose(builder: Builder, value: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        if value.dtype is not dtypes.BOOL:
            return reduce(builder, value, kind, axes, keepdims)
        numbers = builder.op("Cast", value, to=INT32.onnx)
        # an empty maximum is false and an empty minimum true: the identities of int32 are not
        limited = reduce(builder, numbers, kind, axes, keepdims)
        bound = builder.scalar(int(kind == "min"), numbers)
        limited = builder.op("Min" if kind == "min" else "Max", limited, bound)
        return builder.op("Cast", limited, to=dtypes.BOOL.onnx)

    return decompose


def _square(builder: Builder, value: Value) -> Value:
    return builder.op("Mul", value, value)


def _root(builder: Builder, value: Value) -> Value:
    """Build the square root; that of an integer is truncated."""
    if value.dtype.is_float:
        return builder.op("Sqrt", value)
    root = builder.op("Sqrt", builder.op("Cast", value, to=dtypes.FLOAT32.onnx))
    return builder.op("Cast", root, to=value.dtype.onnx)


def _l2(builder: Builder, value: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    return _root(builder, reduce(builder, _square(builder, value), "sum", axes, keepdims))


def _logarithm(builder: Builder, value: Value) -> Value:
    return builder.op("Log", value)


def _log_sum(builder: Builder, value: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    return _logarithm(builder, reduce(builder, value, "sum", axes, keepdims))


def _log_sum_exp(builder: Builder, value: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Build log(sum(exp(x))), with the largest element subtracted first.

    It is clamped to a finite number, so that rows of infinities give infinities.
    """
    largest = reduce(builder, value, "max_number", axes)  # a NaN reaches the sum
    limit = float(np.finfo(np.float16 if value.dtype is dtypes.FLOAT16 else np.float32).max)
    finite = builder.op("Clip", largest, builder.scalar(-limit, largest), builder.scalar(limit, largest))
    shifted = builder.op("Exp", builder.op("Sub", value, finite))
    total = _logarithm(builder, reduce(builder, shifted, "sum", axes, keepdims))
    return builder.op("Add", total, finite if keepdims else reduce(builder, finite, "sum", axes, False))


def _expand_operator(decompose: Decomposition) -> Callable[[Builder, Node], Sequence[Value]]:
    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        return [decompose(builder, node.operand(0), reduced_axes(node), bool(node.attributes.keepdims))]

    return expand


def _fold_operator(kind: str) -> Callable[..., np.ndarray]:
    def fold(node: Node, operand: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        attributes = ReduceAttributes(kind, reduced_axes(node), bool(node.attributes.keepdims))
        if not attributes.axes:
            return operand
        if checks.is_symbolic(operand):
            detached = Node(0, "Reduce", "loom", [node.inputs[0]], attributes, node.origins)
            return fold_reduce(detached, operand)
        if operand.dtype == np.bool_:
            decide = np.all if kind == "min" else np.any
            return np.asarray(decide(operand, axis=attributes.axes, keepdims=attributes.keepdims))
        return reduce_array(operand, attributes, node.operand(0).dtype)

    return fold


_OPERATORS: tuple[tuple[str, Decomposition, str | None, frozenset[str], int], ...] = (
    # name, decomposition, the kind when it is a plain reduction, types, last version with axes as an attribute
    ("ReduceSum", _plain("sum"), "sum", NUMERIC, 12),
    ("ReduceProd", _plain("prod"), "prod", NUMERIC, 17),
    ("ReduceMax", _extremum("max"), "max", ANY, 17),
    ("ReduceMin", _extremum("min"), "min", ANY, 17),
    ("ReduceMean", mean, None, NUMERIC, 17),
    ("ReduceL1", _sum_of(lambda builder, value: builder.op("Abs", value)), None, NUMERIC, 17),
    ("ReduceL2", _l2, None, NUMERIC, 17),
    ("ReduceSumSquare", _sum_of(_square), None, NUMERIC, 17),
    ("ReduceLogSum", _log_sum, None, FLOATS, 17),
    ("ReduceLogSumExp", _log_sum_exp, None, FLOATS, 17),
)

for _name, _decompose, _kind, _types, _last in _OPERATORS:
    register(
        name=_name,
        infer=_infer_operator,
        attributes=ReduceOperatorAttributes,
        adapters=((_last, attribute_to_input("axes", 1)),),
        expand=_expand_operator(_decompose),
        types=(_types, checks.INDICES),
        static_inputs=(1,),
        axes=Axes(1),
        fold=_fold_operator(_kind) if _kind is not None else None,
    )


# -- positions of extrema --------------------------------------------------------------------------------------------


@record
class ArgOperatorAttributes:
    axis: int = 0
    keepdims: int = 1
    select_last_index: int = 0


def _arg_attributes(node: Node, kind: str) -> ArgReduceAttributes:
    attributes: ArgOperatorAttributes = node.attributes
    axis = checks.normalise_axis(node, attributes.axis, node.operand(0).rank)
    return ArgReduceAttributes(kind, axis, bool(attributes.keepdims), bool(attributes.select_last_index))


def _register_arg(name: str, kind: str) -> None:
    def infer(node: Node) -> Inferred:
        attributes = _arg_attributes(node, kind)
        shape = node.operand(0).shape
        checks.require(not checks.is_size(shape[attributes.axis], 0), node, "no elements, no extremum")
        return [(INT64, reduced_shape(shape, (attributes.axis,), attributes.keepdims))]

    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        attributes = _arg_attributes(node, kind)
        return [
            builder.op(
                "ArgReduce",
                node.operand(0),
                domain="loom",
                kind=kind,
                axis=attributes.axis,
                keepdims=attributes.keepdims,
                select_last_index=attributes.select_last_index,
            )
        ]

    def fold(node: Node, operand: np.ndarray) -> np.ndarray:
        if checks.is_symbolic(operand):
            raise Undecidable("the position of an extremum of symbolic integers")
        return arg_reduce_array(operand, _arg_attributes(node, kind))

    register(
        name=name,
        infer=infer,
        attributes=ArgOperatorAttributes,
        expand=expand,
        types=(NUMERIC,),
        fold=fold,
    )


_register_arg("ArgMax", "max")
_register_arg("ArgMin", "min")


# -- global pools ----------------------------------------------------------------------------------------------------


@record
class GlobalLpPoolAttributes:
    p: int = 2


def _infer_global(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require(value.rank >= 3, node, f"a global pool needs spatial axes; the input has rank {value.rank}")
    return [(value.dtype, reduced_shape(value.shape, range(2, value.rank), True))]


def _expand_global(decompose: Decomposition) -> Callable[[Builder, Node], Sequence[Value]]:
    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        value = node.operand(0)
        return [decompose(builder, value, tuple(range(2, value.rank)), True)]

    return expand


for _name, _decompose in (("GlobalAveragePool", mean), ("GlobalMaxPool", _plain("max"))):
    register(name=_name, infer=_infer_global, expand=_expand_global(_decompose), types=(FLOATS,))


def _infer_global_lp(node: Node) -> Inferred:
    checks.require(node.attributes.p > 0, node, f"p must be positive, not {node.attributes.p}")
    return _infer_global(node)


def _expand_global_lp(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    axes = tuple(range(2, value.rank))
    return [power_norm(builder, value, node.attributes.p, lambda powers: reduce(builder, powers, "sum", axes))]


register(
    name="GlobalLpPool",
    infer=_infer_global_lp,
    attributes=GlobalLpPoolAttributes,
    expand=_expand_global_lp,
    types=(FLOATS,),
)
