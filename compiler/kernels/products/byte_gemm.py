"""Products of signed bytes, four terms a word: ``loom.ByteMatMul``.

The words are the elements of a product of a quarter of the terms, with any of its templates.  Those with scales have
tiles in workgroup memory: a weight of fewer bits is spread to bytes on its way there, and the exact sums of
each group of terms are scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...ops.internal.byte_products import WORD_BYTES, ByteMatMulAttributes, byte_product
from ...ops.internal.packed_weights import WORD_BITS
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ...tuning import gemm_tiles
from ...tuning.config_choice import problem_key
from ...tuning.gemm_tiles import SharedTile
from ..config_key import epilogue, extent
from ..context import GroupContext
from ..draft import BuiltKernel
from ..family import register_family
from ..geometry import unflatten
from .packed_operand import PackedOperand, padding_bytes, words_of
from .product import Product, ProductHooks
from .product_family import PackedWeightFamily
from .product_templates import build_elements, build_product


def product_of(context: GroupContext) -> Product:
    """Return the product of words, its rows flattened."""
    node, read = context.anchor, context.operands.read
    left, right = node.operand(0), node.operand(1)
    rows = left.shape[:-1]

    def output(batch: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        return (*unflatten(m, rows), n)

    def factors(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        *outer, n = coordinates
        return read(left, (*outer, k)), read(right, (ix.floordiv(n, LANES), k, ix.modulo(n, LANES)))

    return Product(1, ix.product(list(rows)), node.attributes.columns, left.shape[-1], output, factors)


def _byte(word: Expr, place: Dim) -> Expr:
    """Return byte ``place`` of a word, as a signed integer."""
    up = ex.cast(ex.coordinate(ix.add(24, ix.multiply(-8, place))), "u32")
    return ex.binary("shr", ex.bitcast(ex.binary("shl", word, up), "i32"), ex.const(24, "i32"))


def _single_terms(context: GroupContext, product: Product) -> Product:
    """Return the product of single terms."""
    node, read = context.anchor, context.operands.read
    attributes: ByteMatMulAttributes = node.attributes

    def factors(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        stride, unit = attributes.stride, WORD_BYTES * attributes.stride
        word = ix.add(ix.multiply(ix.floordiv(k, unit), stride), ix.modulo(k, stride))
        place = ix.modulo(ix.floordiv(k, stride), WORD_BYTES)
        left, right = product.terms(coordinates, word)
        if not attributes.group:
            return _byte(left, place), _byte(right, place)
        *outer, n = coordinates
        scale = read(node.operand(2), (*outer, ix.floordiv(k, attributes.group)))
        return ex.cast(_byte(left, place), "f32") * scale, PackedOperand(context, node, 3).element(n, k)

    return replace(product, k=ix.multiply(product.k, WORD_BYTES), terms=factors)


class ByteHooks(ProductHooks):
    """The hooks of a product of words; with scales, those of a packed weight."""

    def __init__(self, context: GroupContext, product: Product) -> None:
        super().__init__(context, product)
        attributes: ByteMatMulAttributes = context.anchor.attributes
        self.bits, self.block = attributes.bits, attributes.block
        self.group = attributes.group // WORD_BYTES  #: words that share a scale of the activations
        self.weight = PackedOperand(context, context.anchor, 3) if self.group else None

    @property
    def features(self) -> tuple[str, ...]:
        return self.context.target.byte_instructions

    @property
    def factor(self) -> str:
        return "u32"

    @property
    def flops(self) -> Dim:
        return ix.multiply(WORD_BYTES, self.product.flops)

    @property
    def parameters(self) -> dict[str, Any]:
        return {**super().parameters, "multiply": "bytes", "has_instruction": bool(self.features)}

    @property
    def key(self) -> str:
        product = self.product
        sizes = {"m": extent(product.m), "n": extent(product.n), "k": extent(product.k), "a": f"x{self.k_lanes}"}
        kind: dict[str, object] = {"y": self.context.group.output.dtype.name, "epilogue": epilogue(self.stores)}
        if self.weight is not None:
            zero = self.weight.zero_point
            kind |= {"bits": self.bits, "block": self.block, "group": self.group}
            kind |= {"scale": self.weight.scale.dtype.name, "zero": zero.dtype.name if zero.rank else "none"}
        return problem_key("byte_gemm", **sizes, **kind)

    def fold(self, tile: SharedTile) -> int:
        """Return the words of a tile whose products have an exact sum of their own; 0: there are no scales."""
        return math.gcd(self.group, tile.block_k // tile.parts)

    def fits(self, tile: gemm_tiles.Tile) -> bool:
        if self.weight is None:
            return True
        memory = self.context.target.limit("max-compute-workgroup-storage-size")
        return isinstance(tile, SharedTile) and self.workgroup_bytes(tile) <= memory

    def workgroup_bytes(self, tile: SharedTile) -> int:
        scales = tile.block_k // self.fold(tile) * (tile.block_m + tile.block_n) if self.group else 0
        return tile.workgroup_bytes + padding_bytes(tile) + 4 * scales

    def written_out(self, tile: SharedTile) -> int:
        steps = super().written_out(tile)
        return steps if not self.group or steps == tile.block_k else self.fold(tile)

    def shared_parameters(self, tile: SharedTile) -> dict[str, Any]:
        common = {**super().shared_parameters(tile), "has_scale": self.weight is not None}
        if self.weight is None:
            return {**common, "codes": 1}
        codes = WORD_BITS // self.bits // WORD_BYTES
        unit = self.weight.unit // WORD_BYTES
        scaled = {"fold": self.fold(tile), "group": self.group, "unit": unit, "zero": self.weight.zero}
        return {**common, "codes": codes, **scaled}

    @property
    def shared_dims(self) -> dict[str, Dim]:
        return {"groups": self.context.anchor.operand(2).shape[-1]} if self.group else {}

    @property
    def shared_loads(self) -> list[Hook]:
        left = replace(self.load_a, held=True)
        if self.weight is None:
            return [left, words_of(self.context, self.context.anchor.operand(1), 0)]
        scales = self.context.anchor.operand(2)
        step = ix.coordinate("step", scales.shape[-1])
        *rows, _ = self.product.output(0, self.m, 0)
        value = self.context.operands.read(scales, (*rows, step))
        scale = Hook("load_scale_a", ("batch", "m", "step"), 1, (), value)
        return [left, *self.weight.loads(0, self.weight.unit), scale]


class ByteGemm(PackedWeightFamily):
    """``loom.ByteMatMul``."""

    name = "byte_gemm"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return byte_product(node, operands)

    def product(self, context: GroupContext) -> Product:
        return product_of(context)

    def build(self, context: GroupContext) -> BuiltKernel:
        product = product_of(context)
        hooks = ByteHooks(context, product)
        if hooks.is_vectorizable and any(map(hooks.fits, gemm_tiles.ranked(product.problem, context.target))):
            return build_product(context, product, hooks)
        single = _single_terms(context, product)
        return build_elements(context, single.k, single.terms, single.flops)


register_family(ByteGemm())
