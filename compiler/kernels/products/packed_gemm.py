"""Products with packed weights: ``loom.PackedMatMul``.

With few rows a kernel of its own reads the weight once, a vector of words at a time; with more a product reads elements
of the weight, as it would those of any matrix.

A kernel of few rows reads all activations in each workgroup.  So it computes beside the product another one of the
same activations, and the sum over a row that a normalisation divides by, where they meet in one result.

``load_a(batch, m, step)``   one activation, or four neighbours along the terms; ``load_total`` what a row's sum is of
``load_words0(n, word)``     a word of each of the four columns of vector ``n``; ``load_words1`` of the other product
``load_scale0(n, step)``     the scale of each column; ``load_zero0`` likewise, where blocks have zero points
``store(batch, m, n, ...)``  four neighbouring results, from those of the products and the sum of the row
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT16
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.internal.packed_weights import WORD_BITS, PackedMatMulAttributes, has_few_rows, packed_weight, unit_of
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES, lane_variable
from ...symbolic.polynomial import Dim
from ...tuning import packed_tiles
from ...tuning.config_choice import problem_key
from ...tuning.packed_tiles import PackedTile
from ..config_key import epilogue, extent, loaded_types
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import Reuse, register_family
from ..geometry import lanes_of, unflatten
from ..groups import Region
from ..loop_trips import filter_by_trips
from .packed_partners import partners
from .product import Product, ProductFamily, ProductHooks, build_product, divides


def product_of(context: GroupContext) -> Product:
    """Return the product, its rows flattened."""
    node, read = context.anchor, context.operands.read
    left, attributes = node.operand(0), node.attributes
    rows, terms = left.shape[:-1], ix.multiply(node.operand(1).shape[1], WORD_BITS // attributes.bits)

    def output(batch: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        return (*unflatten(m, rows), n)

    def factors(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        *outer, n = coordinates
        return read(left, (*outer, k)), _element(context, n, k)

    return Product(1, ix.product(list(rows)), attributes.columns, terms, output, factors)


def _element(context: GroupContext, n: Dim, k: Dim) -> Expr:
    """Return an element of the weight."""
    node = context.anchor
    bits = node.attributes.bits
    many = WORD_BITS // bits
    group, lane = ix.floordiv(n, LANES), ix.modulo(n, LANES)
    word = context.operands.read(node.operand(1), (group, ix.floordiv(k, many), lane))
    shift = ex.cast(ex.coordinate(ix.multiply(ix.modulo(k, many), bits)), "u32")
    code = ex.binary("and", ex.binary("shr", word, shift), ex.const((1 << bits) - 1, "u32"))
    at = (group, ix.floordiv(k, node.attributes.block), lane)
    zero, scale = (_parameter(context, node, position, at) for position in (3, 2))
    return (ex.cast(code, "f32") - zero) * scale


def _parameter(context: GroupContext, node: Node, position: int, coordinates: Sequence[Dim]) -> Expr:
    operand = node.operand(position)
    return ex.cast(context.operands.read(operand, coordinates if operand.rank else ()), "f32")


class PackedHooks(ProductHooks):
    """The hooks of a product of few rows with a packed weight."""

    def __init__(self, context: GroupContext, product: Product) -> None:
        super().__init__(context, product)
        region = context.group.region
        assert region is not None
        self.products = (context.anchor, *(node for node in region.partners if node.op == context.anchor.op))
        self.total = next((node for node in region.partners if node not in self.products), None)
        if not context.operands.vectorizes(self._of_row(LANES)):
            self.k_lanes, self.steps = 1, product.k
        attributes: PackedMatMulAttributes = context.anchor.attributes
        self.bits, self.block = attributes.bits, attributes.block
        self.unit = unit_of(self.bits)
        self.units = ix.number(ix.floordiv(product.k, self.unit))

    @property
    def unit_words(self) -> int:
        """Words of a unit, for one column."""
        return self.unit * self.bits // WORD_BITS

    @property
    def depth(self) -> int:
        """Units that a thread may read for one scale: up to 4."""
        return math.gcd(self.block // self.unit, self.units, 4)

    @property
    def zero(self) -> float | None:
        """The zero point, if it is one number."""
        if self.context.anchor.operand(3).rank:
            return None
        return float(_parameter(self.context, self.context.anchor, 3, ()).payload)

    @property
    def key(self) -> str:
        product, anchor = self.product, self.context.anchor
        return problem_key(
            "packed_gemm",
            m=extent(product.m),
            n=extent(product.n),
            k=extent(product.k),
            bits=self.bits,
            block=min(self.block, ix.number(product.k)),
            a=f"{loaded_types(*self._results(self.load_a))}x{self.k_lanes}",
            scale=anchor.operand(2).dtype.name,
            zero=anchor.operand(3).dtype.name if anchor.operand(3).rank else "none",
            y=self.context.group.output.dtype.name,
            products=len(self.products),
            total=int(self.total is not None),
            epilogue=epilogue(self.stores),
        )

    @property
    def registers(self) -> tuple[tuple[str, str], ...]:
        beside = (("beside", self.type),) * (len(self.products) - 1)
        return (*super().registers, *beside, *((("total", "f32"),) if self.total else ()))

    def _of_row(self, lanes: int) -> Expr:
        """Return what the sum over a row is of: one element, or four; zero if there is no sum."""
        if self.total is None:
            return ex.const(0, "f32")
        step = ix.coordinate("step", ix.floordiv(self.product.k, lanes))
        *rows, _ = self.product.output(0, self.m, 0)
        return self.context.operands.read(self.total.operand(0), (*rows, lanes_of(step) if lanes > 1 else step))

    def _load_words(self, number: int) -> Hook:
        words = ix.coordinate("word", ix.number(ix.floordiv(ix.multiply(self.product.k, self.bits), WORD_BITS)))
        at = (ix.coordinate("n", self.vectors), words, lane_variable())
        value = self.context.operands.read(self.products[number].operand(1), at)
        return Hook(f"load_words{number}", ("n", "word"), LANES, (), value)

    def _load_blocks(self, name: str, number: int, position: int, tile: PackedTile) -> Hook:
        terms = self.unit * tile.depth
        step = ix.coordinate("step", ix.floordiv(self.product.k, terms))
        at = (ix.coordinate("n", self.vectors), ix.floordiv(ix.multiply(step, terms), self.block), lane_variable())
        value = _parameter(self.context, self.products[number], position, at)
        return Hook(f"{name}{number}", ("n", "step"), LANES, (), value)

    def loads(self, tile: PackedTile) -> list[Hook]:
        hooks = [self.load_a]
        for number in range(len(self.products)):
            hooks += [self._load_words(number), self._load_blocks("load_scale", number, 2, tile)]
            if self.zero is None:
                hooks.append(self._load_blocks("load_zero", number, 3, tile))
        if self.total is not None:
            hooks.append(Hook("load_total", ("m", "step"), self.k_lanes, (), self._of_row(self.k_lanes)))
        return hooks

    @property
    def rounds_activations(self) -> bool:
        """Whether activations may become integers of 16 bits.

        Halves may: with the largest of 8 neighbours at 32,512 an error is at most 2^-16 of it, where a half has one of
        2^-11 of its own size.
        """
        halves = loaded_types(*self._results(self.load_a)) == FLOAT16.name
        return self.bits == 4 and halves and bool(self.context.target.byte_products)

    def trips(self, tile: PackedTile) -> int:
        """Return the trip count of a thread's loops."""
        steps = self.units // tile.depth
        inner = tile.depth + 1 if tile.depth > 1 else 1
        return inner * -(-steps // (tile.parts * tile.unroll)) + 2 * tile.vectors


class PackedGemm(ProductFamily):
    """``loom.PackedMatMul``."""

    name = "packed_gemm"

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        return Reuse.MANY if user is region.anchor or user in region.partners else Reuse.ONCE

    def partners(self, anchor: Node) -> list[tuple[Node, ...]]:
        return partners(anchor)

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the terms of A, to store innermost."""
        value = region.anchor.operand(0)
        return [(value, value.rank - 1)]

    def may_reorder(self, output: Value) -> bool:
        return True

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return np.asarray((operands[0] @ packed_weight(node, operands).T).astype(operands[0].dtype))

    def product(self, context: GroupContext) -> Product:
        return product_of(context)

    def build(self, context: GroupContext) -> BuiltKernel:
        product = product_of(context)
        hooks = PackedHooks(context, product)
        if not has_few_rows(context.anchor) or not hooks.is_vectorizable:
            return build_product(context, product)
        return context.built(_few_rows(context, hooks))


def _few_rows(context: GroupContext, hooks: PackedHooks) -> Draft:
    product, target, products = hooks.product, context.target, len(hooks.products)
    tiles = packed_tiles.ranked(
        product.problem, hooks.units, hooks.depth, target, products, integers=hooks.rounds_activations
    )
    tile = context.choose(hooks.key, filter_by_trips(target, tiles, hooks.trips))
    steps, columns = hooks.units // tile.depth, tile.columns // products
    return Draft(
        "gemm_packed",
        tile,
        [*hooks.loads(tile), hooks.store()],
        dims={"m": product.m, "vectors": hooks.vectors, "steps": steps},
        workgroup=(tile.parts, tile.across, 1),
        grid=(ix.ceildiv(hooks.vectors, columns * tile.across), ix.ceildiv(product.m, tile.rows), 1),
        rounds=hooks.trips(tile),
        calls=2 * LANES * steps * tile.depth,
        workgroup_bytes=tile.workgroup_bytes,
        flops=ix.multiply(product.flops, products),
        features=target.byte_products if tile.integers else (),
        parameters={
            "products": products,
            "has_total": hooks.total is not None,
            "k_lanes": hooks.k_lanes,
            "bits": hooks.bits,
            "unit": hooks.unit,
            "unit_words": hooks.unit_words,
            "zero": hooks.zero,
            "halves": target.uses_workgroup_memory,
            "whole_rows": divides(tile.rows, product.m),
            "whole_columns": divides(columns * tile.across, hooks.vectors),
            "whole_steps": steps % (tile.parts * tile.unroll) == 0,
        },
    )


register_family(PackedGemm())
