"""Convolutions of bytes: exact ones, by products of words.

``loom.ByteConvolution`` slides a weight over words [N, spatial..., W] of channels.  The weight is packed [O / 4, words,
4] (:mod:`.packed_weights`): the words of a row are those of the kernel's elements, one element after the other.  The
third operand is the signed byte that the padding consists of, as an int32; a fourth one, int32 of no axis or [O], is
subtracted from the bytes of the weight.  The result is int32 [N, O, spatial...].
"""

from __future__ import annotations

from ....runtime.plan.dtypes import INT32
from ....runtime.plan.record import record
from ...ir.graph import Node
from ..math.windows import WindowAttributes, window_count
from ..registry import Inferred, register


@record
class ByteConvolutionAttributes(WindowAttributes):
    """``columns`` are the channels of the result, ``channels`` those of the operand; further bytes of its last word are
    0."""

    columns: int
    channels: int


def _infer(node: Node) -> Inferred:
    attributes: ByteConvolutionAttributes = node.attributes
    images, *sizes, _ = node.operand(0).shape
    count = len(attributes.kernel)
    spatial = [
        window_count(
            node,
            sizes[axis],
            attributes.kernel[axis],
            attributes.strides[axis],
            attributes.dilations[axis],
            attributes.pads[axis],
            attributes.pads[count + axis],
        )
        for axis in range(count)
    ]
    return [(INT32, (images, attributes.columns, *spatial))]


register(
    name="ByteConvolution",
    domain="loom",
    infer=_infer,
    attributes=ByteConvolutionAttributes,
    family="byte_conv",
    types=(frozenset({"uint32"}), frozenset({"uint32"}), frozenset({"int32"}), frozenset({"int32"})),
)
