"""DeformConv: a convolution with an offset for each tap."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.activation_functions import number
from ..math.nodes import in_type, view
from ..math.positions import as_float, clamped_coordinate, extent, within
from ..math.windows import per_axis, resolve_pads, window_count
from ..registry import Builder, Inferred, Read, register
from .convolution import add_bias


@record
class DeformConvAttributes:
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    offset_group: int = 1
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


@record
class DeformedAttributes:
    """[N, C, H, W] -> [N, C, taps, height, width]: the input under every tap of every window, moved by the offsets."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, ...]
    dilations: tuple[int, int]
    groups: int  #: of channels that share offsets
    height: Dim
    width: Dim


def _infer_deformed(node: Node) -> Inferred:
    attributes: DeformedAttributes = node.attributes
    value = node.operand(0)
    taps = attributes.kernel[0] * attributes.kernel[1]
    return [(value.dtype, (*value.shape[:2], taps, attributes.height, attributes.width))]


def _read_deformed(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: DeformedAttributes = node.attributes
    batch, channel, tap, row, column = coordinates
    value = node.operand(0)
    taps = attributes.kernel[0] * attributes.kernel[1]
    group = ix.floordiv(channel, ix.floordiv(value.shape[1], attributes.groups))
    inner = (ix.floordiv(tap, attributes.kernel[1]), ix.modulo(tap, attributes.kernel[1]))
    neighbours = []
    for axis, place in enumerate((row, column)):
        fixed = ix.add(ix.multiply(place, attributes.strides[axis]), -attributes.pads[axis])
        fixed = ix.add(fixed, ix.multiply(inner[axis], attributes.dilations[axis]))
        which = ix.add(ix.multiply(ix.add(ix.multiply(group, taps), tap), 2), axis)
        position = as_float(fixed) + read(1, [batch, which, row, column])
        size = value.shape[2 + axis]
        # far outside only zeros are seen, and whole numbers stay exact
        position = ex.binary("max", ex.binary("min", position, extent(size) + number(2.0)), number(-3.0))
        base = ex.unary("floor", position)
        fraction = position - base
        neighbours.append(((base, number(1.0) - fraction), (base + number(1.0), fraction)))
    total = number(0.0)
    for y, weight_y in neighbours[0]:
        for x, weight_x in neighbours[1]:
            inside = ex.binary(
                "and",
                within(y, number(0.0), extent(value.shape[2]) - number(1.0)),
                within(x, number(0.0), extent(value.shape[3]) - number(1.0)),
            )
            element = read(
                0, [batch, channel, clamped_coordinate(y, value.shape[2]), clamped_coordinate(x, value.shape[3])]
            )
            total = total + ex.guard(inside, element, number(0.0)) * (weight_y * weight_x)
    if node.optional(2) is not None:
        total = total * read(2, [batch, ix.add(ix.multiply(group, taps), tap), row, column])
    return total


register(
    name="Deformed",
    domain="loom",
    infer=_infer_deformed,
    attributes=DeformedAttributes,
    gather=_read_deformed,
    reads=8,
)


def _deformed(node: Node) -> DeformedAttributes:
    attributes: DeformConvAttributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    if value.rank != 4 or weight.rank != 4:
        raise UnsupportedError(f"DeformConv of rank {value.rank} is not supported", origin=node.origin, hint="rank 4")
    kernel = tuple(checks.concrete(node, size, "the size of the kernel") for size in weight.shape[2:])
    declared = attributes.kernel_shape
    checks.require(not declared or tuple(declared) == kernel, node, f"kernel_shape {declared}, weight {kernel}")
    strides = per_axis(node, attributes.strides, 2, "strides")
    dilations = per_axis(node, attributes.dilations, 2, "dilations")
    pads = resolve_pads(node, "NOTSET", attributes.pads, value.shape[2:], kernel, strides, dilations)
    height, width = (
        window_count(
            node, value.shape[2 + axis], kernel[axis], strides[axis], dilations[axis], pads[axis], pads[2 + axis]
        )
        for axis in range(2)
    )
    groups = attributes.offset_group
    divides = groups > 0 and ix.equal(ix.modulo(value.shape[1], groups), 0)
    checks.require(divides, node, f"{groups} groups of offsets")
    return DeformedAttributes(
        (kernel[0], kernel[1]), (strides[0], strides[1]), pads, (dilations[0], dilations[1]), groups, height, width
    )


def _infer_deform_conv(node: Node) -> Inferred:
    value, weight, offset, deformed = node.operand(0), node.operand(1), node.operand(2), _deformed(node)
    group = node.attributes.group
    fits = ix.equal(value.shape[1], ix.multiply(weight.shape[1], group)) and ix.equal(
        ix.modulo(weight.shape[0], group), 0
    )
    checks.require(fits, node, f"{ix.text(value.shape[1])} channels in {group} groups")
    taps = deformed.kernel[0] * deformed.kernel[1] * deformed.groups
    wanted = (value.shape[0], 2 * taps, deformed.height, deformed.width)
    checks.require(offset.shape == wanted, node, f"offsets of shape {checks.describe_shape(offset.shape)}")
    mask = node.optional(4)
    checks.require(mask is None or mask.shape == (value.shape[0], taps, *wanted[2:]), node, "the mask does not fit")
    return [(value.dtype, (value.shape[0], weight.shape[0], deformed.height, deformed.width))]


def _expand_deform_conv(builder: Builder, node: Node) -> Sequence[Value]:
    """Gather the deformed input as columns, then multiply matrices for each group."""
    deformed, group = _deformed(node), node.attributes.group
    value, weight = in_type(builder, node.operand(0), FLOAT32), in_type(builder, node.operand(1), FLOAT32)
    columns = builder.op(
        "Deformed",
        value,
        in_type(builder, node.operand(2), FLOAT32),
        node.optional(4),
        domain="loom",
        kernel=deformed.kernel,
        strides=deformed.strides,
        pads=deformed.pads,
        dilations=deformed.dilations,
        groups=deformed.groups,
        height=deformed.height,
        width=deformed.width,
    )
    batch = value.shape[0]
    inner = ix.multiply(weight.shape[1], deformed.kernel[0] * deformed.kernel[1])
    pixels = ix.multiply(deformed.height, deformed.width)
    outputs = ix.floordiv(weight.shape[0], group)
    product = builder.op(
        "MatMul", view(builder, weight, group, outputs, inner), view(builder, columns, batch, group, inner, pixels)
    )
    result = view(builder, product, batch, weight.shape[0], deformed.height, deformed.width)
    bias = node.optional(3)
    result = add_bias(builder, result, None if bias is None else in_type(builder, bias, FLOAT32))
    return [in_type(builder, result, node.operand(0).dtype)]


register(
    name="DeformConv",
    infer=_infer_deform_conv,
    attributes=DeformConvAttributes,
    expand=_expand_deform_conv,
    types=(FLOATS,),
)
