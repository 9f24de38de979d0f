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

from ....runtime.plan.dtypes import FLOAT16
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.internal.byte_products import WORD_BYTES, ByteMatMulAttributes, byte_product
from ...ops.internal.packed_weights import WORD_BITS
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ...tuning import gemm_tiles
from ...tuning.config_choice import problem_key
from ...tuning.gemm_tiles import SharedTile, SplitTile
from ..config_key import epilogue, extent
from ..context import GroupContext
from ..draft import BuiltKernel
from ..family import register_family
from ..geometry import unflatten
from ..groups import Region
from .packed_operand import PackedOperand, padding_bytes, words_of
from .product import Product, ProductHooks, column
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

    size = 1, ix.product(list(rows)), node.attributes.columns, left.shape[-1]
    return Product(*size, output, factors, factors="scaled words" if node.attributes.group else "words")


def _byte(word: Expr, place: Dim) -> Expr:
    """Return byte ``place`` of a word, as a signed integer."""
    up = ex.cast(ex.coordinate(ix.add(24, ix.multiply(-8, place))), "u32")
    return ex.binary("shr", ex.bitcast(ex.binary("shl", word, up), "i32"), ex.const(24, "i32"))


def _scaled_terms(context: GroupContext, product: Product) -> Product:
    """Return the product of single terms with a weight of blocks."""
    node, read = context.anchor, context.operands.read
    attributes: ByteMatMulAttributes = node.attributes

    def factors(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        stride, unit = attributes.stride, WORD_BYTES * attributes.stride
        word = ix.add(ix.multiply(ix.floordiv(k, unit), stride), ix.modulo(k, stride))
        place = ix.modulo(ix.floordiv(k, stride), WORD_BYTES)
        left, _ = product.terms(coordinates, word)
        *outer, n = coordinates
        scale = read(node.operand(2), (*outer, ix.floordiv(k, attributes.group)))
        return ex.cast(_byte(left, place), "f32") * scale, PackedOperand(context, node, 3).element(n, k)

    return replace(product, k=ix.multiply(product.k, WORD_BYTES), terms=factors)


class WordHooks(ProductHooks):
    """The hooks of an exact product of words, whose second operand is a packed weight.

    ``zero``, one number or one for each column, is subtracted from the bytes of the weight: from the sums, times the
    sum of a row's bytes.
    """

    def __init__(self, context: GroupContext, product: Product, zero: Value | None = None) -> None:
        super().__init__(context, product)
        self.zero = zero

    def zero_of(self, column: Dim) -> Expr:
        assert self.zero is not None
        return self.context.operands.read(self.zero, (column,) if self.zero.rank else ())

    @property
    def single_terms(self) -> Product:
        """The product of single bytes."""

        def factors(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
            left, right = self.product.terms(coordinates, ix.floordiv(k, WORD_BYTES))
            place = ix.modulo(k, WORD_BYTES)
            number = _byte(right, place)
            axis = self.context.anchor.output.rank - 1 if self.product.window == "none" else 1
            return _byte(left, place), number if self.zero is None else number - self.zero_of(coordinates[axis])

        return replace(self.product, k=ix.multiply(self.product.k, WORD_BYTES), terms=factors)

    @property
    def further_loads(self) -> list[Hook]:
        if self.zero is None:
            return []
        return [Hook("load_zero", ("n",), LANES, (), self.zero_of(column(self.vectors, self.product.n)))]

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
        further = {"multiply": "bytes", "has_instruction": bool(self.features), "totals": self.zero is not None}
        return {**super().parameters, **further}

    @property
    def kind(self) -> dict[str, object]:
        """Return what the problem's key says besides sizes, result and epilogue."""
        zero: dict[str, object] = {} if self.zero is None else {"zero": "some"}
        return zero if self.product.window == "none" else {"window": self.product.window, **zero}

    @property
    def key(self) -> str:
        product = self.product
        sizes = {"m": extent(product.m), "n": extent(product.n), "k": extent(product.k), "a": f"x{self.k_lanes}"}
        result = {"y": self.context.group.output.dtype.name, "epilogue": epilogue(self.stores)}
        return problem_key("byte_gemm", **sizes, **result, **self.kind)

    def workgroup_bytes(self, tile: SharedTile) -> int:
        return tile.workgroup_bytes + padding_bytes(tile)

    def fits(self, tile: gemm_tiles.Tile) -> bool:
        memory = self.context.target.limit("max-compute-workgroup-storage-size")
        if isinstance(tile, SharedTile):
            return self.workgroup_bytes(tile) <= memory
        return self.zero is None or isinstance(tile, SplitTile)

    def shared_parameters(self, tile: SharedTile) -> dict[str, Any]:
        return {**super().shared_parameters(tile), "has_scale": False, "codes": 1}

    @property
    def shared_loads(self) -> list[Hook]:
        return [replace(self.load_a, held=True), words_of(self.context, self.context.anchor.operand(1), 0)]


class ScaledHooks(WordHooks):
    """The hooks of a product of words with scales of activations and those of a weight of blocks."""

    def __init__(self, context: GroupContext, product: Product) -> None:
        super().__init__(context, product)
        attributes: ByteMatMulAttributes = context.anchor.attributes
        self.bits, self.block = attributes.bits, attributes.block
        self.group = attributes.group // WORD_BYTES  #: words that share a scale of the activations
        self.weight = PackedOperand(context, context.anchor, 3)

    @property
    def single_terms(self) -> Product:
        return _scaled_terms(self.context, self.product)

    @property
    def kind(self) -> dict[str, object]:
        zero, scale = self.weight.zero_point, self.weight.scale.dtype.name
        parameters = {"scale": scale, "zero": zero.dtype.name if zero.rank else "none"}
        return {"bits": self.bits, "block": self.block, "group": self.group, **parameters}

    def fold(self, tile: SharedTile) -> int:
        """Return the words of a tile whose products have an exact sum of their own."""
        return math.gcd(self.group, tile.block_k // tile.parts)

    def fits(self, tile: gemm_tiles.Tile) -> bool:
        return isinstance(tile, SharedTile) and super().fits(tile)

    def workgroup_bytes(self, tile: SharedTile) -> int:
        return super().workgroup_bytes(tile) + 4 * tile.block_k // self.fold(tile) * (tile.block_m + tile.block_n)

    def written_out(self, tile: SharedTile) -> int:
        return self.fold(tile)  # a text twice as long takes as long or longer (NVIDIA H200)

    def shared_parameters(self, tile: SharedTile) -> dict[str, Any]:
        codes = WORD_BITS // self.bits // WORD_BYTES
        unit = self.weight.unit // WORD_BYTES
        scaled = {"fold": self.fold(tile), "group": self.group, "unit": unit, "zero": self.weight.zero}
        scaled["short_scales"] = self.weight.scale.dtype is FLOAT16  # 11 bits, so that twice as many are exact in f32
        return {**super().shared_parameters(tile), "has_scale": True, "codes": codes, **scaled}

    @property
    def shared_dims(self) -> dict[str, Dim]:
        return {"groups": self.context.anchor.operand(2).shape[-1]}

    @property
    def shared_loads(self) -> list[Hook]:
        scales = self.context.anchor.operand(2)
        step = ix.coordinate("step", scales.shape[-1])
        *rows, _ = self.product.output(0, self.m, 0)
        value = self.context.operands.read(scales, (*rows, step))
        scale = Hook("load_scale_a", ("batch", "m", "step"), 1, (), value)
        return [replace(self.load_a, held=True), *self.weight.loads(0, self.weight.unit), scale]


def build_words(context: GroupContext, hooks: WordHooks) -> BuiltKernel:
    """Build the kernel of a product of words; where no tile suits, one of its single terms."""
    problem, single = hooks.product.problem, hooks.single_terms
    if hooks.is_vectorizable and any(map(hooks.fits, gemm_tiles.ranked(problem, context.target))):
        return build_product(context, hooks.product, hooks)
    return build_elements(context, single.k, single.terms, single.flops)


def word_axes(words: Value) -> list[tuple[Value, int]]:
    """Return the words of A, or the bytes that the kernel may join to words, with the axis to store innermost."""
    node = words.producer
    values = [words] if node is None or node.op != "PackBytes" else [node.operand(0), words]
    return [(value, value.rank - 1) for value in values]


class ByteGemm(PackedWeightFamily):
    """``loom.ByteMatMul``."""

    name = "byte_gemm"

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        return word_axes(region.anchor.operand(0))

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return byte_product(node, operands)

    def product(self, context: GroupContext) -> Product:
        return product_of(context)

    def build(self, context: GroupContext) -> BuiltKernel:
        product = product_of(context)
        if context.anchor.attributes.group:
            return build_words(context, ScaledHooks(context, product))
        return build_words(context, WordHooks(context, product, context.anchor.optional(2)))


register_family(ByteGemm())
