"""RoiAlign: bins of regions, each the mean or the largest of samples between the elements of the input.

With ``sampling_ratio`` 0 a bin has a sample for each pixel that it is high and wide (:mod:`.roi_samples`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.activation_functions import number
from ..math.nodes import in_type
from ..math.positions import as_float, clamped_coordinate, extent, within
from ..math.reductions import mean, reduce
from ..math.roi_axes import RoiAxisSamplesAttributes, span
from ..math.roi_samples import adaptive_largest, adaptive_mean
from ..registry import Builder, Indices, Inferred, RawNode, Read, register


@record
class RoiAlignAttributes:
    coordinate_transformation_mode: str = "half_pixel"
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0


def _older_mode(raw: RawNode) -> None:
    """Set the mode of versions before 16, which have no shift by half a pixel."""
    raw.attributes.setdefault("coordinate_transformation_mode", "output_half_pixel")


@record
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
    batch = clamped_coordinate(ex.cast(read(2, [region]), "f32"), value.shape[0])
    taps = []
    inside = ex.const(True, "bool")
    grid = (ix.floordiv(sample, attributes.ratio), ix.modulo(sample, attributes.ratio))
    for axis, (bin_number, bins, inner) in enumerate(
        ((row, attributes.height, grid[0]), (column, attributes.width, grid[1]))
    ):
        size = value.shape[2 + axis]
        start, length = span(
            lambda at: read(1, [region, at]), axis == 0, attributes.scale, attributes.shift, attributes.at_least_one
        )
        step = length / number(float(bins))
        offset = (as_float(inner) + number(0.5)) * step / number(float(attributes.ratio))
        position = start + as_float(bin_number) * step + offset
        inside = ex.binary("and", inside, within(position, number(-1.0), extent(size)))
        position = ex.binary("max", position, number(0.0))
        last = extent(size) - number(1.0)
        base = ex.binary("min", ex.unary("floor", position), last)
        fraction = ex.select(ex.compare("ge", base, last), number(0.0), position - base)
        taps.append(((base, number(1.0) - fraction), (base + number(1.0), fraction)))
    terms = []
    for y, weight_y in taps[0]:
        for x, weight_x in taps[1]:
            element = read(
                0, [batch, channel, clamped_coordinate(y, value.shape[2]), clamped_coordinate(x, value.shape[3])]
            )
            terms.append(element * (weight_y * weight_x))
    total = terms[0]
    for term in terms[1:]:
        total = ex.binary("max", total, term) if attributes.weighted else total + term
    return ex.guard(inside, total, number(0.0))


register(
    name="RoiSamples",
    domain="loom",
    infer=_infer_samples,
    attributes=RoiSamplesAttributes,
    gather=_read_sample,
    reads=8,
)


# -- as many samples as a bin has pixels -----------------------------------------------------------------------------


def _adaptive(builder: Builder, node: Node) -> Value:
    attributes: RoiAlignAttributes = node.attributes
    value = in_type(builder, builder.op("Gather", node.operand(0), node.operand(2), axis=0), FLOAT32)
    half = attributes.coordinate_transformation_mode == "half_pixel"

    def axis(vertical: bool) -> RoiAxisSamplesAttributes:
        return RoiAxisSamplesAttributes(
            kind="mean",
            vertical=vertical,
            bins=attributes.output_height if vertical else attributes.output_width,
            size=value.shape[2 if vertical else 3],
            scale=attributes.spatial_scale,
            shift=0.5 if half else 0.0,
            at_least_one=not half,
        )

    of_samples = adaptive_largest if attributes.mode == "max" else adaptive_mean
    result = of_samples(builder, value, in_type(builder, node.operand(1), FLOAT32), axis)
    return in_type(builder, result, node.operand(0).dtype)


# -- RoiAlign --------------------------------------------------------------------------------------------------------


def _infer_roi_align(node: Node) -> Inferred:
    attributes: RoiAlignAttributes = node.attributes
    value, regions, batches = node.operand(0), node.operand(1), node.operand(2)
    checks.require_choice(node, "coordinate_transformation_mode", ("half_pixel", "output_half_pixel"))
    checks.require_choice(node, "mode", ("avg", "max"))
    checks.require(value.rank == 4, node, f"X of rank {value.rank}")
    checks.require(regions.rank == 2 and regions.shape[1] == 4, node, "rois are four numbers each")
    checks.require(batches.shape == regions.shape[:1], node, "rois and batch_indices differ in number")
    shape = (regions.shape[0], value.shape[1], attributes.output_height, attributes.output_width)
    return [(value.dtype, shape)]


def _expand_roi_align(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: RoiAlignAttributes = node.attributes
    if attributes.sampling_ratio == 0:
        return [_adaptive(builder, node)]
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


register(
    name="RoiAlign",
    infer=_infer_roi_align,
    attributes=RoiAlignAttributes,
    adapters=((15, _older_mode),),
    expand=_expand_roi_align,
    indices=(Indices(2, lambda node: [node.operand(0).shape[0]], wraps=False),),
    types=(FLOATS, FLOATS, checks.INDICES),
)
