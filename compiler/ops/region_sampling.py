"""RoiAlign, DeformConv and Col2Im: elements at positions between those of the input, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.dtypes import FLOAT32
from ...runtime.errors import UnsupportedError
from .. import expr as ex
from .. import index as ix
from ..expr import Expr
from ..index import Dim
from ..ir import Node, Value
from . import common
from .activations import number
from .attention_core import view
from .common import FLOATS
from .convolution import add_bias
from .normalization import in_type
from .reduction import mean, reduce
from .registry import Builder, Case, Inferred, RawNode, Read, Tensor, register
from .windows import per_axis, resolve_pads, window_count


def _place(position: Expr, size: Dim) -> Dim:
    """A whole position as a coordinate, clamped."""
    last = ix.add(size, -1)
    whole = ex.cast(position, "i32")
    clamped = ex.binary("max", ex.binary("min", whole, ex.coordinate(last)), ex.const(0, "i32"))
    return ex.as_index(clamped, 0, max(ix.bounds(last)[1], 0))


def _within(value: Expr, low: Expr, high: Expr) -> Expr:
    return ex.binary("and", ex.compare("ge", value, low), ex.compare("le", value, high))


def _extent(size: Dim) -> Expr:
    return ex.cast(ex.coordinate(size), "f32")


def _float(value: Dim) -> Expr:
    return ex.cast(ex.coordinate(value), "f32")


# -- RoiAlign ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoiAlignAttributes:
    coordinate_transformation_mode: str = "half_pixel"
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0


def _older_mode(raw: RawNode) -> None:
    """Before version 16 there was no shift by half a pixel."""
    raw.attributes.setdefault("coordinate_transformation_mode", "output_half_pixel")


@dataclass(frozen=True, slots=True)
class RoiSamplesAttributes:
    """The result is [regions, channels, height, width, ratio * ratio]: the samples of every bin."""

    height: int
    width: int
    ratio: int
    scale: float
    shift: float
    at_least_one: bool  #: regions are at least one pixel in size
    weighted: bool  #: the largest of the four weighted neighbours in place of their sum


def _infer_samples(node: Node) -> Inferred:
    attributes: RoiSamplesAttributes = node.attributes
    value, regions = node.operand(0), node.operand(1)
    samples = attributes.ratio * attributes.ratio
    return [(value.dtype, (regions.shape[0], value.shape[1], attributes.height, attributes.width, samples))]


def _read_sample(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: RoiSamplesAttributes = node.attributes
    region, channel, row, column, sample = coordinates
    value = node.operand(0)
    batch = _place(ex.cast(read(2, [region]), "f32"), value.shape[0])
    taps = []
    inside = ex.const(True, "bool")
    within = (ix.floordiv(sample, attributes.ratio), ix.modulo(sample, attributes.ratio))
    for axis, (bin_number, bins, inner) in enumerate(
        ((row, attributes.height, within[0]), (column, attributes.width, within[1]))
    ):
        size = value.shape[2 + axis]
        # a region is x1, y1, x2, y2
        start, stop = (
            read(1, [region, place]) * number(attributes.scale) - number(attributes.shift)
            for place in (1 - axis, 3 - axis)
        )
        length = stop - start
        if attributes.at_least_one:
            length = ex.binary("max", length, number(1.0))
        step = length / number(float(bins))
        offset = (_float(inner) + number(0.5)) * step / number(float(attributes.ratio))
        position = start + _float(bin_number) * step + offset
        inside = ex.binary("and", inside, _within(position, number(-1.0), _extent(size)))
        position = ex.binary("max", position, number(0.0))
        last = _extent(size) - number(1.0)
        base = ex.binary("min", ex.unary("floor", position), last)
        fraction = ex.select(ex.compare("ge", base, last), number(0.0), position - base)
        taps.append(((base, number(1.0) - fraction), (base + number(1.0), fraction)))
    terms = []
    for y, weight_y in taps[0]:
        for x, weight_x in taps[1]:
            element = read(0, [batch, channel, _place(y, value.shape[2]), _place(x, value.shape[3])])
            terms.append(element * (weight_y * weight_x))
    total = terms[0]
    for term in terms[1:]:
        total = ex.binary("max", total, term) if attributes.weighted else total + term
    return ex.guard(inside, total, number(0.0))


register(
    name="RoiSamples",
    domain="loom",
    infer=_infer_samples,
    cases=(),
    attributes=RoiSamplesAttributes,
    gather=_read_sample,
    reads=8,
)


def _infer_roi_align(node: Node) -> Inferred:
    attributes: RoiAlignAttributes = node.attributes
    value, regions, batches = node.operand(0), node.operand(1), node.operand(2)
    if attributes.sampling_ratio == 0:
        raise UnsupportedError(
            "RoiAlign with sampling_ratio=0 takes as many samples as the elements of rois ask for",
            origin=node.origin,
            hint="a sampling_ratio of 1 or more",
        )
    modes = ("half_pixel", "output_half_pixel")
    common.require(attributes.coordinate_transformation_mode in modes, node, "unknown coordinate_transformation_mode")
    common.require(attributes.mode in ("avg", "max"), node, f"unknown mode '{attributes.mode}'")
    common.require(value.rank == 4, node, f"X of rank {value.rank}")
    common.require(regions.rank == 2 and regions.shape[1] == 4, node, "rois are four numbers each")
    common.require(batches.shape == regions.shape[:1], node, "rois and batch_indices differ in number")
    shape = (regions.shape[0], value.shape[1], attributes.output_height, attributes.output_width)
    return [(value.dtype, shape)]


def _expand_roi_align(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: RoiAlignAttributes = node.attributes
    half = attributes.coordinate_transformation_mode == "half_pixel"
    samples = builder.op(
        "RoiSamples",
        *node.inputs,
        domain="loom",
        height=attributes.output_height,
        width=attributes.output_width,
        ratio=attributes.sampling_ratio,
        scale=attributes.spatial_scale,
        shift=0.5 if half else 0.0,
        at_least_one=not half,
        weighted=attributes.mode == "max",
    )
    if attributes.mode == "max":
        return [reduce(builder, samples, "max", (4,), keepdims=False)]
    return [mean(builder, samples, (4,), keepdims=False)]


_REGIONS = Tensor((3, 4), data=[[0.0, 0.0, 9.0, 9.0], [2.5, 1.0, 7.0, 9.5], [5.0, 5.0, 5.5, 5.25]])
_ROI = (Tensor((2, 3, 10, 11)), _REGIONS, Tensor((3,), "int64", data=[0, 1, 0]))

register(
    name="RoiAlign",
    infer=_infer_roi_align,
    cases=(
        Case(_ROI, {"output_height": 3, "output_width": 2, "sampling_ratio": 2}),
        Case(_ROI, {"output_height": 2, "output_width": 3, "sampling_ratio": 3, "spatial_scale": 0.75}),
        Case(
            _ROI,
            {"output_height": 2, "sampling_ratio": 2, "coordinate_transformation_mode": "output_half_pixel"},
        ),
        Case(_ROI, {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": "max"}),
        Case(_ROI, {"output_height": 2, "output_width": 2, "sampling_ratio": 1}, opset=10),
    ),
    attributes=RoiAlignAttributes,
    adapters=((15, _older_mode),),
    expand=_expand_roi_align,
    types=(FLOATS, FLOATS, common.INDICES),
)


# -- Col2Im --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnTapsAttributes:
    """[N, C * taps, windows] -> [N, C, taps, image...]: what each tap of a window adds to each element of the image."""

    image: tuple[int, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    windows: tuple[int, ...]


def _infer_taps(node: Node) -> Inferred:
    attributes: ColumnTapsAttributes = node.attributes
    value = node.operand(0)
    taps = int(np.prod(attributes.block))
    return [(value.dtype, (value.shape[0], ix.floordiv(value.shape[1], taps), taps, *attributes.image))]


def _read_tap(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: ColumnTapsAttributes = node.attributes
    batch, channel, tap, *image = coordinates
    inside = ex.const(True, "bool")
    window: Dim = 0
    rest = tap
    inner: list[Dim] = []
    for size in reversed(attributes.block):
        inner.insert(0, ix.modulo(rest, size))
        rest = ix.floordiv(rest, size)
    for axis, place in enumerate(image):
        stride = attributes.strides[axis]
        distance = ix.add(place, ix.add(attributes.pads[axis], ix.multiply(inner[axis], -attributes.dilations[axis])))
        number_of_window = ix.floordiv(distance, stride)
        if stride > 1:
            remainder = ex.coordinate(ix.modulo(distance, stride))
            inside = ex.binary("and", inside, ex.compare("eq", remainder, ex.const(0, "i32")))
        inside = ex.binary("and", inside, ex.in_range(number_of_window, 0, attributes.windows[axis]))
        window = ix.add(ix.multiply(window, attributes.windows[axis]), number_of_window)
    taps = int(np.prod(attributes.block))
    value = read(0, [batch, ix.add(ix.multiply(channel, taps), tap), window])
    return ex.guard(inside, value, ex.const(0, value.dtype))


register(
    name="ColumnTaps",
    domain="loom",
    infer=_infer_taps,
    cases=(),
    attributes=ColumnTapsAttributes,
    gather=_read_tap,
    reads=2,
)


@dataclass(frozen=True, slots=True)
class Col2ImAttributes:
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


def _column_taps(node: Node) -> ColumnTapsAttributes:
    attributes: Col2ImAttributes = node.attributes
    image = tuple(common.static_integers(node, 1, "image_shape"))
    block = tuple(common.static_integers(node, 2, "block_shape"))
    common.require(len(image) == len(block) > 0, node, f"an image of {len(image)} axes, blocks of {len(block)}")
    strides = per_axis(node, attributes.strides, len(image), "strides")
    dilations = per_axis(node, attributes.dilations, len(image), "dilations")
    pads = resolve_pads(node, "NOTSET", attributes.pads, image, block, strides, dilations)
    windows = tuple(
        int(window_count(node, size, kernel, stride, dilation, pads[axis], pads[len(image) + axis]))  # type: ignore[call-overload]
        for axis, (size, kernel, stride, dilation) in enumerate(zip(image, block, strides, dilations))
    )
    return ColumnTapsAttributes(image, block, strides, pads, dilations, windows)


def _infer_col2im(node: Node) -> Inferred:
    value, taps = node.operand(0), _column_taps(node)
    size = int(np.prod(taps.block))
    fits = value.rank == 3 and ix.equal(ix.modulo(value.shape[1], size), 0)
    fits = fits and ix.equal(value.shape[2], int(np.prod(taps.windows)))
    text = f"columns of shape {common.describe_shape(value.shape)} for blocks {taps.block} in {taps.windows} windows"
    common.require(fits, node, text)
    return [(value.dtype, (value.shape[0], ix.floordiv(value.shape[1], size), *taps.image))]


def _expand_col2im(builder: Builder, node: Node) -> Sequence[Value]:
    taps = _column_taps(node)
    spread = builder.op(
        "ColumnTaps",
        node.operand(0),
        domain="loom",
        image=taps.image,
        block=taps.block,
        strides=taps.strides,
        pads=taps.pads,
        dilations=taps.dilations,
        windows=taps.windows,
    )
    return [reduce(builder, spread, "sum", (2,), keepdims=False)]


def _integers(*values: int) -> Tensor:
    return Tensor((len(values),), "int64", data=list(values), constant=True)


register(
    name="Col2Im",
    infer=_infer_col2im,
    cases=(
        Case((Tensor((1, 5, 5)), _integers(5, 5), _integers(1, 5))),
        Case((Tensor((2, 12, 9)), _integers(4, 4), _integers(2, 2))),
        Case((Tensor((1, 9, 4)), _integers(5, 5), _integers(3, 3)), {"strides": [2, 2]}),
        Case((Tensor((1, 8, 16)), _integers(5, 5), _integers(2, 2)), {"dilations": [2, 2], "pads": [1, 0, 0, 1]}),
        Case((Tensor((1, 8, 12)), _integers(3, 4, 3), _integers(2, 2, 2))),
    ),
    attributes=Col2ImAttributes,
    expand=_expand_col2im,
    types=(FLOATS | {"int32"},),
    static_inputs=(1, 2),
)


# -- DeformConv ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeformConvAttributes:
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    offset_group: int = 1
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
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
        position = _float(fixed) + read(1, [batch, which, row, column])
        size = value.shape[2 + axis]
        # far outside only zeros are seen, and whole numbers stay exact
        position = ex.binary("max", ex.binary("min", position, _extent(size) + number(2.0)), number(-3.0))
        base = ex.unary("floor", position)
        fraction = position - base
        neighbours.append(((base, number(1.0) - fraction), (base + number(1.0), fraction)))
    total = number(0.0)
    for y, weight_y in neighbours[0]:
        for x, weight_x in neighbours[1]:
            inside = ex.binary(
                "and",
                _within(y, number(0.0), _extent(value.shape[2]) - number(1.0)),
                _within(x, number(0.0), _extent(value.shape[3]) - number(1.0)),
            )
            element = read(0, [batch, channel, _place(y, value.shape[2]), _place(x, value.shape[3])])
            total = total + ex.guard(inside, element, number(0.0)) * (weight_y * weight_x)
    if node.optional(2) is not None:
        total = total * read(2, [batch, ix.add(ix.multiply(group, taps), tap), row, column])
    return total


register(
    name="Deformed",
    domain="loom",
    infer=_infer_deformed,
    cases=(),
    attributes=DeformedAttributes,
    gather=_read_deformed,
    reads=8,
)


def _deformed(node: Node) -> DeformedAttributes:
    attributes: DeformConvAttributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    if value.rank != 4 or weight.rank != 4:
        raise UnsupportedError(f"DeformConv of rank {value.rank} is not supported", origin=node.origin, hint="rank 4")
    kernel = tuple(common.concrete(node, size, "the size of the kernel") for size in weight.shape[2:])
    declared = attributes.kernel_shape
    common.require(not declared or tuple(declared) == kernel, node, f"kernel_shape {declared}, weight {kernel}")
    strides = per_axis(node, attributes.strides, 2, "strides")
    dilations = per_axis(node, attributes.dilations, 2, "dilations")
    pads = resolve_pads(node, "NOTSET", attributes.pads, value.shape[2:], kernel, strides, dilations)
    height, width = (
        window_count(node, value.shape[2 + axis], kernel[axis], strides[axis], dilations[axis], pads[axis], pads[2 + axis])
        for axis in range(2)
    )
    groups = attributes.offset_group
    common.require(ix.equal(ix.modulo(value.shape[1], groups), 0), node, f"{groups} groups of offsets")
    return DeformedAttributes(
        (kernel[0], kernel[1]), (strides[0], strides[1]), pads, (dilations[0], dilations[1]), groups, height, width
    )


def _infer_deform_conv(node: Node) -> Inferred:
    value, weight, offset, deformed = node.operand(0), node.operand(1), node.operand(2), _deformed(node)
    group = node.attributes.group
    fits = ix.equal(value.shape[1], ix.multiply(weight.shape[1], group)) and ix.equal(ix.modulo(weight.shape[0], group), 0)
    common.require(fits, node, f"{ix.text(value.shape[1])} channels in {group} groups")
    taps = deformed.kernel[0] * deformed.kernel[1] * deformed.groups
    wanted = (value.shape[0], 2 * taps, deformed.height, deformed.width)
    common.require(offset.shape == wanted, node, f"offsets of shape {common.describe_shape(offset.shape)}")
    mask = node.optional(4)
    common.require(mask is None or mask.shape == (value.shape[0], taps, *wanted[2:]), node, "the mask does not fit")
    return [(value.dtype, (value.shape[0], weight.shape[0], deformed.height, deformed.width))]


def _expand_deform_conv(builder: Builder, node: Node) -> Sequence[Value]:
    """The moved input as columns, then a matrix product for each group."""
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


def _deform_case(*, group: int = 1, offsets: int = 1, mask: bool = False, bias: bool = False, **fields: object) -> Case:
    operands: list[Tensor | None] = [
        Tensor((1, 4, 6, 7)),
        Tensor((6, 4 // group, 3, 3), constant=True),
        Tensor((1, 18 * offsets, 6, 7), low=-1.5, high=1.5),
        Tensor((6,), constant=True) if bias else None,
        Tensor((1, 9 * offsets, 6, 7), low=0.0, high=1.0) if mask else None,
    ]
    while operands[-1] is None:
        operands.pop()
    return Case(
        tuple(operands), {"pads": [1, 1, 1, 1], "group": group, "offset_group": offsets, **fields}, tolerance=2e-5
    )


register(
    name="DeformConv",
    infer=_infer_deform_conv,
    cases=(
        _deform_case(),
        _deform_case(mask=True, bias=True),
        _deform_case(group=2, offsets=2),
    ),
    attributes=DeformConvAttributes,
    expand=_expand_deform_conv,
    types=(FLOATS,),
)
