"""Linear quantisation: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and what other operators share of them.

A quantised tensor holds integers ``q`` that stand for ``(q - zero_point) * scale``.  Scale and zero point are one
number, one for each index of an axis, or one for each block of ``block_size`` neighbours along an axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import FLOAT32, INT32, UINT8, DType
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..folding import elementwise_fold
from ..math.codes import code_of, number_of, rounded
from ..math.nodes import part, view
from ..registry import Builder, Inferred, Read, register

#: Types that hold quantised numbers; products of them accumulate in int32
BYTES = frozenset({"int8", "uint8"})
QUANTIZED = BYTES | {"int16", "uint16"} | checks.NARROW_INTEGERS | checks.FLOAT8 | {"float4e2m1"}
SCALES = FLOATS | {"float8e8m0"}


# -- the two conversions ---------------------------------------------------------------------------------------------


@record
class ConversionAttributes:
    """``to`` is the ONNX code of the result's element type.

    ``precision`` names the float type whose quotient, or product, is rounded to; ``saturate`` concerns 8-bit floats.
    ``rounds_activations``: products with the result may round the other factor to 8 bits, with a scale for each block.
    """

    to: int
    precision: str = "float32"
    saturate: int = 1
    rounds_activations: bool = False


def _infer_conversion(node: Node) -> Inferred:
    shape = checks.broadcast_shapes(node, [value.shape for value in node.inputs if value is not None])
    return [(dtypes.from_onnx(node.attributes.to), shape)]


def _number(node: Node, position: int, value: Expr) -> Expr:
    """Decode operand ``position`` to an f32 number if it is a code."""
    dtype = node.operand(position).dtype
    return number_of(value, dtype) if dtype.is_code else value


def _quantized(node: Node, args: Sequence[Expr]) -> Expr:
    """Return ``saturate(round(x / scale) + zero_point)``, rounded half to even.

    The zero point of an 8-bit float can only be zero, and is not added: the sign of a zero stays.  What a NaN becomes
    is left open, which costs less.
    """
    attributes: ConversionAttributes = node.attributes
    target, precision = dtypes.from_onnx(attributes.to), dtypes.BY_NAME[attributes.precision]
    scale = _number(node, 1, args[1])
    if not target.is_code:
        zero = ex.cast(args[2], "i32") if len(args) > 2 else None
        return ex.cast(quantized_integer(args[0], scale, zero, target, precision), target.compute)
    quotient = rounded(ex.cast(args[0], "f32") / scale, precision)
    if len(args) > 2 and target.name not in checks.FLOAT8:
        quotient = rounded(quotient + _number(node, 2, args[2]), precision)
    return code_of(quotient, target, bool(attributes.saturate))


def quantized_integer(value: Expr, scale: Expr, zero: Expr | None, target: DType, precision: DType = FLOAT32) -> Expr:
    """Return the integer of the type ``target``, as i32, that stands for a number; ``zero`` is an i32.

    The quotient is clamped to what is left of the type's range below and above the zero point, where floats are exact
    integers, so the sum with the zero point is exact and in range.
    """
    zero = ex.const(0, "i32") if zero is None else zero
    least, greatest = (ex.cast(ex.const(end, "i32") - zero, "f32") for end in target.integer_range)
    quotient = ex.unary("round", rounded(ex.cast(value, "f32") / scale, precision))
    quotient = ex.binary("min_number", ex.binary("max_number", quotient, least), greatest)
    return ex.cast(quotient, "i32") + zero


def _dequantized(node: Node, args: Sequence[Expr]) -> Expr:
    """Return ``(q - zero_point) * scale``: the difference is exact. Floats have no zero point, or one of zero."""
    scale = _number(node, 1, args[1])
    if node.operand(0).dtype.is_code:
        return _number(node, 0, args[0]) * scale
    number = ex.cast(args[0], "i32")
    if len(args) > 2:
        number = number - ex.cast(args[2], "i32")
    return ex.cast(number, "f32") * scale


register(
    name="Quantize",
    domain="loom",
    infer=_infer_conversion,
    attributes=ConversionAttributes,
    element=_quantized,
    fold=elementwise_fold(_quantized, _infer_conversion),
    types=(FLOATS | {"int32"}, SCALES, QUANTIZED),
)
_fold_dequantized = elementwise_fold(_dequantized, _infer_conversion)


def _fold_parameter(node: Node, *operands: np.ndarray | None) -> np.ndarray:
    """Fold parameters, of at most one axis: weights stay as narrow as they are, whatever their size."""
    if node.operand(0).rank > 1:
        raise ix.Undecidable("a weight is dequantised where it is read")
    result: np.ndarray = _fold_dequantized(node, *operands)
    return result


register(
    name="Dequantize",
    domain="loom",
    infer=_infer_conversion,
    attributes=ConversionAttributes,
    element=_dequantized,
    fold=_fold_parameter,
    types=(QUANTIZED | {"int32"}, SCALES, QUANTIZED | {"int32"}),
)


def quantize(
    builder: Builder,
    value: Value,
    scale: Value,
    zero_point: Value | None,
    target: DType,
    *,
    precision: DType = FLOAT32,
    saturate: int = 1,
) -> Value:
    """Quantise ``value`` to the type ``target``; scale and zero point broadcast to it."""
    operands = [value, scale] if zero_point is None else [value, scale, zero_point]
    return builder.op("Quantize", *operands, domain="loom", to=target.onnx, precision=precision.name, saturate=saturate)


def dequantize(
    builder: Builder,
    value: Value,
    scale: Value,
    zero_point: Value | None,
    target: DType = FLOAT32,
    *,
    rounds_activations: bool = False,
) -> Value:
    """Dequantise ``value`` to the float type ``target``; scale and zero point broadcast to it."""
    operands = [value, scale] if zero_point is None else [value, scale, zero_point]
    attributes = {"to": target.onnx, "rounds_activations": rounds_activations}
    return builder.op("Dequantize", *operands, domain="loom", **attributes)


# -- blocks ----------------------------------------------------------------------------------------------------------


@record
class RepeatBlocksAttributes:
    """Element ``i`` of the result's ``axis``, which has ``size`` elements, is element ``i // block`` of the
    operand's."""

    axis: int
    block: int
    size: Dim


def _infer_repeated(node: Node) -> Inferred:
    value, attributes = node.operand(0), node.attributes
    shape = (*value.shape[: attributes.axis], attributes.size, *value.shape[attributes.axis + 1 :])
    return [(value.dtype, shape)]


def _read_repeated(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    block = list(coordinates)
    block[node.attributes.axis] = ix.floordiv(block[node.attributes.axis], node.attributes.block)
    return read(0, block)


register(
    name="RepeatBlocks",
    domain="loom",
    infer=_infer_repeated,
    attributes=RepeatBlocksAttributes,
    gather=_read_repeated,
)


def parameter_shape(node: Node, value: Value, parameter: Value, axis: int, block: int, what: str) -> None:
    """Check the shape of a scale or zero point against the tensor that it belongs to."""
    shape = parameter.shape
    if block:
        at = checks.normalise_axis(node, axis, value.rank)
        blocks = ix.ceildiv(value.shape[at], block)
        expected: Shape = (*value.shape[:at], blocks, *value.shape[at + 1 :])
        text = f"{what} of shape {checks.describe_shape(shape)} for blocks of {block} along axis {axis}"
        checks.require(shape == expected, node, text)
    elif ix.product(shape) != 1:
        checks.require(parameter.rank == 1, node, f"{what} of rank {parameter.rank} without blocks")
        at = checks.normalise_axis(node, axis, value.rank)
        text = f"{what} of {ix.text(shape[0])} elements for {ix.text(value.shape[at])} along axis {axis}"
        checks.require(ix.equal(shape[0], value.shape[at]), node, text)


def along(builder: Builder, value: Value, parameter: Value | None, axis: int, block: int = 0) -> Value | None:
    """Reshape a scale or zero point of ``value`` to broadcast to it; None where it is omitted."""
    if parameter is None:
        return None
    if block:
        at = axis % value.rank
        return builder.op("RepeatBlocks", parameter, domain="loom", axis=at, block=block, size=value.shape[at])
    if parameter.rank == 0:
        return parameter
    if ix.product(parameter.shape) == 1:
        return builder.op("Reshape", parameter, builder.constant(np.array([], np.int64)))
    trailing = value.rank - 1 - axis % value.rank
    if not trailing:
        return parameter
    return builder.op("Unsqueeze", parameter, builder.constant(np.arange(1, trailing + 1, dtype=np.int64)))


# -- QuantizeLinear, DequantizeLinear --------------------------------------------------------------------------------


@record
class QuantizeLinearAttributes:
    """``saturate`` concerns 8-bit floats alone; ``precision`` is the type of the division, by default the scale's."""

    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0
    precision: int = 0
    saturate: int = 1


def _check_parameters(node: Node) -> None:
    value, zero_point = node.operand(0), node.optional(2)
    attributes = node.attributes
    checks.require(attributes.block_size >= 0, node, f"block_size {attributes.block_size} is negative")
    parameter_shape(node, value, node.operand(1), attributes.axis, attributes.block_size, "scale")
    if zero_point is not None:
        parameter_shape(node, value, zero_point, attributes.axis, attributes.block_size, "zero point")


def _quantized_type(node: Node) -> DType:
    declared, zero_point = node.attributes.output_dtype, node.optional(2)
    dtype = zero_point.dtype if zero_point is not None else dtypes.from_onnx(declared or UINT8.onnx)
    if declared and declared != dtype.onnx:
        raise UnsupportedError.of_attribute(node.op, "output_dtype", declared, (dtype.onnx,), origin=node.origin)
    if dtype.name not in QUANTIZED:
        if zero_point is not None:
            raise UnsupportedError.of_type(node.op, 2, dtype.name, QUANTIZED, origin=node.origin)
        raise UnsupportedError.of_attribute(node.op, "output_dtype", dtype.name, QUANTIZED, origin=node.origin)
    return dtype


def _infer_quantize_linear(node: Node) -> Inferred:
    _check_parameters(node)
    return [(_quantized_type(node), node.operand(0).shape)]


def _expand_quantize_linear(builder: Builder, node: Node) -> Sequence[Value]:
    value, attributes = node.operand(0), node.attributes
    scale, zero_point = (
        along(builder, value, node.optional(position), attributes.axis, attributes.block_size) for position in (1, 2)
    )
    assert scale is not None
    precision = dtypes.from_onnx(attributes.precision) if attributes.precision else scale.dtype
    return [
        quantize(
            builder,
            value,
            scale,
            zero_point,
            _quantized_type(node),
            precision=precision if precision.is_float else FLOAT32,
            saturate=attributes.saturate,
        )
    ]


register(
    name="QuantizeLinear",
    infer=_infer_quantize_linear,
    attributes=QuantizeLinearAttributes,
    expand=_expand_quantize_linear,
    types=(FLOATS | {"int32"}, SCALES, QUANTIZED),
)


@record
class DequantizeLinearAttributes:
    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0


def _dequantized_type(node: Node) -> DType:
    declared = node.attributes.output_dtype
    return dtypes.from_onnx(declared) if declared else node.operand(1).dtype


def _infer_dequantize_linear(node: Node) -> Inferred:
    value, zero_point = node.operand(0), node.optional(2)
    if zero_point is not None:
        checks.require(zero_point.dtype == value.dtype, node, f"{value.dtype} with a zero point of {zero_point.dtype}")
    _check_parameters(node)
    return [(_dequantized_type(node), value.shape)]


def _expand_dequantize_linear(builder: Builder, node: Node) -> Sequence[Value]:
    value, attributes = node.operand(0), node.attributes
    scale, zero_point = (
        along(builder, value, node.optional(position), attributes.axis, attributes.block_size) for position in (1, 2)
    )
    assert scale is not None
    return [dequantize(builder, value, scale, zero_point, _dequantized_type(node))]


register(
    name="DequantizeLinear",
    infer=_infer_dequantize_linear,
    attributes=DequantizeLinearAttributes,
    expand=_expand_dequantize_linear,
    types=(QUANTIZED | {"int32"}, SCALES, QUANTIZED | {"int32"}),
)


# -- DynamicQuantizeLinear -------------------------------------------------------------------------------------------


#: Elements up to which a workgroup finds the range of a tensor by itself
_SMALL = 8192
#: Elements of a part of a larger one, and parts at the most
_PART, _MOST_PARTS = 1024, 4096


def dynamic_parameters(builder: Builder, value: Value) -> tuple[Value, Value]:
    """Build scale and uint8 zero point of a whole f32 tensor: its range, extended to 0, over 255 steps."""
    most = ix.bounds(value.elements)[1]
    if most > _SMALL:
        parts = min(-(-most // _PART), _MOST_PARTS)
        value = builder.op("PartialRange", value, domain="loom", parts=parts)
    both = builder.op("RangeParameters", value, domain="loom")
    bits, zero = (view(builder, part(builder, both, 0, place, 1)) for place in (0, 1))
    return builder.op("BitCast", bits, to=FLOAT32.onnx), builder.op("Cast", zero, to=UINT8.onnx)


def _expand_dynamic(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    scale, zero_point = dynamic_parameters(builder, value)
    return [quantize(builder, value, scale, zero_point, UINT8), scale, zero_point]


register(
    name="DynamicQuantizeLinear",
    infer=lambda node: [(UINT8, node.operand(0).shape), (FLOAT32, ()), (UINT8, ())],
    expand=_expand_dynamic,
    types=(frozenset({"float32"}),),
)


# -- integers of operands --------------------------------------------------------------------------------------------


def centred(builder: Builder, value: Value, zero_point: Value | None) -> Value:
    """Build ``value - zero_point`` in int32, the operand of integer products."""
    wide = builder.op("Cast", value, to=INT32.onnx)
    if zero_point is None or (zero_point.static_value is not None and not zero_point.static_value.any()):
        return wide
    return builder.op("Sub", wide, builder.op("Cast", zero_point, to=INT32.onnx))
