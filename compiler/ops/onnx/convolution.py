"""Convolutions.  The kernel families take explicit padding and two or three spatial axes, and no bias."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import ShapeError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.windows import SizedWindowAttributes, WindowAttributes, dilated, per_axis, resolve_pads, slide, window_count
from ..registry import Builder, Inferred, register


@record
class ConvolutionAttributes(WindowAttributes):
    group: int


@record
class ConvolutionTransposeAttributes(SizedWindowAttributes):
    group: int


def _infer_convolution(node: Node) -> Inferred:
    attributes: ConvolutionAttributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    count = len(attributes.kernel)
    spatial = [
        window_count(
            node,
            value.shape[2 + axis],
            attributes.kernel[axis],
            attributes.strides[axis],
            attributes.dilations[axis],
            attributes.pads[axis],
            attributes.pads[count + axis],
        )
        for axis in range(count)
    ]
    return [(value.dtype, (value.shape[0], weight.shape[0], *spatial))]


def _infer_convolution_transpose(node: Node) -> Inferred:
    attributes: ConvolutionTransposeAttributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    channels = ix.multiply(weight.shape[1], attributes.group)
    return [(value.dtype, (value.shape[0], channels, *attributes.output_spatial))]


register(
    name="Convolution",
    domain="loom",
    infer=_infer_convolution,
    attributes=ConvolutionAttributes,
    family="conv",
    types=(FLOATS | {"int32"},),
)
register(
    name="ConvolutionTranspose",
    domain="loom",
    infer=_infer_convolution_transpose,
    attributes=ConvolutionTransposeAttributes,
    family="conv_transpose",
    types=(FLOATS,),
)


# -- Conv ------------------------------------------------------------------------------------------------------------


@record
class ConvAttributes:
    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


def _kernel(node: Node, value: Value, weight: Value) -> tuple[int, ...]:
    """Return the kernel's spatial sizes, from the weight.

    Raise :class:`ShapeError` for ranks that no convolution takes.
    """
    checks.require(value.rank >= 3, node, f"{node.op} needs spatial axes; the input has rank {value.rank}")
    checks.require(weight.rank == value.rank, node, f"input of rank {value.rank}, weight of rank {weight.rank}")
    kernel = tuple(checks.concrete(node, size, "the size of the kernel") for size in weight.shape[2:])
    declared = node.attributes.kernel_shape
    checks.require(not declared or tuple(declared) == kernel, node, f"kernel_shape {declared}, weight {kernel}")
    checks.require(all(kernel), node, "the kernel is empty")
    return kernel


def explicit(node: Node, value: Value, weight: Value) -> ConvolutionAttributes:
    """Make the padding of a convolution of ``value`` and ``weight`` explicit, and return its parameters.

    ``node`` has the attributes of a Conv; it may be another operator of the family (ConvInteger, QLinearConv).
    """
    attributes: ConvAttributes = node.attributes
    kernel = _kernel(node, value, weight)
    count, group = len(kernel), attributes.group
    channels = ix.multiply(weight.shape[1], group)
    if group < 1 or not ix.equal(value.shape[1], channels) or not ix.equal(ix.modulo(weight.shape[0], group), 0):
        raise ShapeError(
            f"{ix.text(value.shape[1])} channels, {group} groups, weight {checks.describe_shape(weight.shape)}",
            origin=node.origin,
        )
    strides = per_axis(node, attributes.strides, count, "strides")
    dilations = per_axis(node, attributes.dilations, count, "dilations")
    pads = resolve_pads(node, attributes.auto_pad, attributes.pads, value.shape[2:], kernel, strides, dilations)
    return ConvolutionAttributes(kernel, strides, pads, dilations, group)


def _check_bias(node: Node, channels: Dim) -> None:
    """Raise :class:`ShapeError` unless the operands have one type and the bias fits."""
    value, weight, bias = node.operand(0), node.operand(1), node.optional(2)
    checks.require_same_type(node, [value, weight, *([bias] if bias is not None else [])])
    if bias is not None:
        checks.require(bias.rank == 1 and ix.equal(bias.shape[0], channels), node, "the bias has one number a channel")


def infer_convolution(node: Node, value: Value, weight: Value) -> Shape:
    """Return the shape of the result of :func:`convolution`."""
    detached = Node(0, "Convolution", "loom", [value, weight], explicit(node, value, weight), node.origins)
    ((_, shape),) = _infer_convolution(detached)
    return shape


def _infer_conv(node: Node) -> Inferred:
    value, weight = node.operand(0), node.operand(1)
    _check_bias(node, weight.shape[0])
    return [(value.dtype, infer_convolution(node, value, weight))]


def _expand_conv(builder: Builder, node: Node) -> Sequence[Value]:
    result = convolution(builder, node, node.operand(0), node.operand(1))
    return [add_bias(builder, result, node.optional(2))]


def convolution(builder: Builder, node: Node, value: Value, weight: Value) -> Value:
    """Convolve ``value`` with ``weight`` under the attributes of ``node``, which are those of a Conv."""
    return slide(builder, "Convolution", explicit(node, value, weight), value, weight)


def add_bias(builder: Builder, value: Value, bias: Value | None) -> Value:
    """Add one number a channel to [N, C, spatial...]."""
    if bias is None:
        return value
    axes = np.array([0, *range(2, value.rank)], np.int64)
    return builder.op("Add", value, builder.op("Unsqueeze", bias, builder.constant(axes)))


register(
    name="Conv",
    infer=_infer_conv,
    attributes=ConvAttributes,
    expand=_expand_conv,
    types=(FLOATS,),
)


# -- ConvTranspose ---------------------------------------------------------------------------------------------------


@record
class ConvTransposeAttributes(ConvAttributes):
    output_padding: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None


def explicit_transpose(node: Node) -> ConvolutionTransposeAttributes:
    """Make the padding and output size of a ConvTranspose explicit, and return its parameters."""
    attributes: ConvTransposeAttributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    kernel = _kernel(node, value, weight)
    count, group = len(kernel), attributes.group
    if group < 1 or not ix.equal(value.shape[1], weight.shape[0]) or not ix.equal(ix.modulo(value.shape[1], group), 0):
        raise ShapeError(
            f"{ix.text(value.shape[1])} channels, {group} groups, weight {checks.describe_shape(weight.shape)}",
            origin=node.origin,
        )
    _check_bias(node, ix.multiply(weight.shape[1], group))
    strides = per_axis(node, attributes.strides, count, "strides")
    dilations = per_axis(node, attributes.dilations, count, "dilations")
    extra = tuple(attributes.output_padding or (0,) * count)
    checks.require(len(extra) == count, node, f"output_padding {extra} does not fit {count} spatial axes")
    wanted_shape = attributes.output_shape
    if wanted_shape:
        fits = len(wanted_shape) in (count, count + 2) and min(wanted_shape) > 0
        checks.require(fits, node, f"output_shape {wanted_shape} does not fit {count} spatial axes")
    same = attributes.auto_pad in ("SAME_UPPER", "SAME_LOWER")
    begins, ends, spatial = [], [], []
    explicit_pads = (0,) * (2 * count)
    if not same and attributes.auto_pad != "VALID":
        explicit_pads = resolve_pads(node, attributes.auto_pad, attributes.pads, (), kernel, strides, dilations)
    for axis in range(count):
        size = value.shape[2 + axis]
        reach = dilated(kernel[axis], dilations[axis]) + extra[axis]
        full = ix.add(ix.multiply(ix.add(size, -1), strides[axis]), reach)
        if wanted_shape or same:
            wanted = wanted_shape[-count:][axis] if wanted_shape else ix.multiply(size, strides[axis])
            total = checks.concrete(node, ix.add(full, ix.multiply(wanted, -1)), "the padding of a ConvTranspose")
            # an output larger than the windows reach has nothing cut off
            total = max(total, 0)
            begin = total // 2 if attributes.auto_pad == "SAME_UPPER" else total - total // 2
            begins.append(begin)
            ends.append(total - begin)
            spatial.append(wanted)
        else:
            begins.append(explicit_pads[axis])
            ends.append(explicit_pads[count + axis])
            spatial.append(ix.add(full, -begins[axis] - ends[axis]))
    return ConvolutionTransposeAttributes(kernel, strides, (*begins, *ends), dilations, tuple(spatial), group)


def _infer_conv_transpose(node: Node) -> Inferred:
    detached = Node(0, "ConvolutionTranspose", "loom", list(node.inputs[:2]), explicit_transpose(node), node.origins)
    return _infer_convolution_transpose(detached)


def _expand_conv_transpose(builder: Builder, node: Node) -> Sequence[Value]:
    attributes = explicit_transpose(node)
    result = slide(builder, "ConvolutionTranspose", attributes, node.operand(0), node.operand(1))
    return [add_bias(builder, result, node.optional(2))]


register(
    name="ConvTranspose",
    infer=_infer_conv_transpose,
    attributes=ConvTransposeAttributes,
    expand=_expand_conv_transpose,
    types=(FLOATS,),
)
