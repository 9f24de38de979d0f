"""Convolutions of bytes as products of words with an implicit matrix of patches: ``loom.ByteConvolution``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.coordinates import Sizes, shape_of
from ...ir.graph import Node, Value
from ...ops.internal.byte_convolution import ByteConvolutionAttributes
from ...ops.internal.byte_products import WORD_BYTES, signed_bytes
from ...ops.internal.packed_weights import packed_rows
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ..config_key import window_of
from ..context import GroupContext
from ..draft import BuiltKernel
from ..family import register_family
from ..groups import Region
from ..padded import are_inside
from ..sliding_reference import slide_products
from .byte_gemm import WordHooks, build_words, word_axes
from .conv import ConvolutionFamily, Term, positions_of, window_product
from .product import Product


def product_of(context: GroupContext) -> Product:
    """Return the product of words."""
    node, read = context.anchor, context.operands.read
    attributes: ByteConvolutionAttributes = node.attributes
    words, weight, zero = node.operand(0), node.operand(1), node.operand(2)
    steps = [*attributes.kernel, words.shape[-1]]
    byte = ex.binary("and", ex.cast(read(zero, ()), "u32"), ex.const(255, "u32"))
    last, present = ix.add(words.shape[-1], -1), attributes.channels % WORD_BYTES

    def border(word: Dim) -> Expr:
        """Return a word of the border; bytes that are no channels are 0."""
        ones = ex.const(0x01010101, "u32")
        if present:
            some = ex.const((1 << 8 * present) - 1 & 0x01010101, "u32")
            ones = ex.select(ex.in_range(word, 0, last), ones, some)
        return ex.binary("mul", byte, ones)

    def factors(term: Term) -> tuple[Expr, Expr]:
        image, channel, *spatial = term.result
        positions = positions_of(attributes, spatial, term.taps)
        inside = are_inside(positions, words.shape[1:-1])
        left = ex.guard(inside, read(words, (image, *positions, term.inner)), border(term.inner))
        k: Dim = 0
        for number, size in zip((*term.taps, term.inner), steps, strict=True):
            k = ix.add(ix.multiply(k, size), number)
        return left, read(weight, (ix.floordiv(channel, LANES), k, ix.modulo(channel, LANES)))

    channels, outputs, window = words.shape[-1], attributes.columns, window_of(attributes)
    return replace(window_product(context, attributes.kernel, channels, outputs, factors, window), factors="words")


class ByteConvolution(ConvolutionFamily):
    """``loom.ByteConvolution``."""

    name = "byte_conv"

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        return word_axes(region.anchor.operand(0))

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        attributes: ByteConvolutionAttributes = node.attributes
        words, weight, border, *zero = operands
        bytes_of = signed_bytes(words)
        rows = signed_bytes(packed_rows(weight, attributes.columns)) - (zero[0].reshape(-1, 1) if zero else 0)
        kernel = rows.reshape(attributes.columns, *attributes.kernel, bytes_of.shape[-1])
        value, kernel = (np.moveaxis(each[..., : attributes.channels], -1, 1) for each in (bytes_of, kernel))
        return slide_products(value, kernel, attributes, 1, shape_of(node.output, sizes), int(border))

    def product(self, context: GroupContext) -> Product:
        return product_of(context)

    def build(self, context: GroupContext) -> BuiltKernel:
        return build_words(context, WordHooks(context, product_of(context), context.anchor.optional(3)))


register_family(ByteConvolution())
