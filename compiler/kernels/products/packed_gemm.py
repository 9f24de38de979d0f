"""Products with packed weights: ``loom.PackedMatMul``.

With few rows a kernel of its own reads the weight once, a vector of words at a time; on a GPU it computes groups of
more rows, too, while that is faster.  With more, products whose tiles lie in workgroup memory decode what they put
there, and others the words of a vector of columns, of which they load each once.

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
from dataclasses import replace
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import FLOAT16
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...ops.internal.packed_weights import WORD_BITS, has_few_rows, packed_weight
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ...tuning import gemm_tiles, packed_tiles
from ...tuning.config_choice import problem_key
from ...tuning.gemm_tiles import SharedTile
from ...tuning.packed_tiles import PackedTile
from ..config_key import epilogue, extent, loaded_types
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import register_family
from ..geometry import lanes_of, unflatten
from ..loop_trips import filter_by_trips
from .packed_operand import PackedOperand, padding_bytes
from .packed_partners import partners
from .product import Product, ProductHooks, divides
from .product_family import PackedWeightFamily
from .product_templates import build_product


def product_of(context: GroupContext) -> Product:
    """Return the product, its rows flattened."""
    node, read = context.anchor, context.operands.read
    left, attributes, weight = node.operand(0), node.attributes, PackedOperand(context, node)
    rows, terms = left.shape[:-1], ix.multiply(node.operand(1).shape[1], WORD_BITS // attributes.bits)

    def output(batch: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        return (*unflatten(m, rows), n)

    def factors(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        *outer, n = coordinates
        return read(left, (*outer, k)), weight.element(n, k)

    return Product(1, ix.product(list(rows)), attributes.columns, terms, output, factors)


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
        self.weights = [PackedOperand(context, node) for node in self.products]
        weight = self.weights[0]
        self.bits, self.block, self.unit, self.zero = weight.bits, weight.block, weight.unit, weight.zero
        self.units = ix.number(ix.floordiv(product.k, self.unit))

    @property
    def unit_words(self) -> int:
        """Words of a unit, for one column."""
        return self.unit * self.bits // WORD_BITS

    @property
    def unit_loads(self) -> int:
        """Vectors of 16 bytes that a thread loads for a unit: words of four columns, and halves of activations."""
        return self.unit_words + self.unit // (2 * LANES)

    @property
    def depth(self) -> int:
        """Units that a thread may read for one scale: up to 4."""
        return math.gcd(self.block // self.unit, self.units, 4)

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

    @property
    def thread_loads(self) -> list[Hook]:
        return [self.load_a, *self.weights[0].loads(0, self.unit)]

    @property
    def thread_parameters(self) -> dict[str, Any]:
        has_scale = bool(self.weights[0].scale.rank)
        return {"codes": WORD_BITS // self.bits, "has_scale": has_scale, "unit": self.unit, "zero": self.zero}

    @property
    def shared_loads(self) -> list[Hook]:
        load_a, *weight = self.thread_loads
        return [replace(load_a, held=True), *weight]

    def shared_parameters(self, tile: SharedTile) -> dict[str, Any]:
        return {**super().shared_parameters(tile), **self.thread_parameters}

    def workgroup_bytes(self, tile: SharedTile) -> int:
        return super().workgroup_bytes(tile) + padding_bytes(tile)

    def loads(self, tile: PackedTile) -> list[Hook]:
        hooks = [self.load_a]
        for number, weight in enumerate(self.weights):
            hooks += weight.loads(number, self.unit * tile.depth)
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


class PackedGemm(PackedWeightFamily):
    """``loom.PackedMatMul``."""

    name = "packed_gemm"

    def partners(self, anchor: Node) -> list[tuple[Node, ...]]:
        return partners(anchor)

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return np.asarray((operands[0] @ packed_weight(node, operands).T).astype(operands[0].dtype))

    def product(self, context: GroupContext) -> Product:
        return product_of(context)

    def build(self, context: GroupContext) -> BuiltKernel:
        product = product_of(context)
        if context.anchor.output.dtype.compute != "f32":
            return build_product(context, product)
        hooks = PackedHooks(context, product)
        if not hooks.is_vectorizable or not (has_few_rows(context.anchor) or _takes_groups(context, product)):
            return build_product(context, product, hooks)
        return context.built(_few_rows(context, hooks))


def _takes_groups(context: GroupContext, product: Product) -> bool:
    problem, target = product.problem, context.target
    return target.uses_workgroup_memory and packed_tiles.takes_groups(
        problem, target, gemm_tiles.parts_cost(problem, 1, target)
    )


def _few_rows(context: GroupContext, hooks: PackedHooks) -> Draft:
    product, target, products = hooks.product, context.target, len(hooks.products)
    tiles = packed_tiles.ranked(
        product.problem,
        hooks.units,
        hooks.depth,
        target,
        products,
        unit_loads=hooks.unit_loads,
        integers=hooks.rounds_activations,
    )
    tile = context.choose(hooks.key, filter_by_trips(target, tiles, hooks.trips), rows=product.m)
    steps, columns = hooks.units // tile.depth, tile.columns // products
    return Draft(
        "gemm_packed",
        tile,
        [*hooks.loads(tile), hooks.store()],
        dims={"m": product.m, "vectors": hooks.vectors, "steps": steps},
        threads=tile.threads,
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
            "has_scale": bool(hooks.weights[0].scale.rank),
            "zero": hooks.zero,
            "halves": target.uses_workgroup_memory,
            "whole_rows": divides(tile.rows, product.m),
            "whole_columns": divides(columns * tile.across, hooks.vectors),
            "whole_steps": steps % (tile.parts * tile.unroll) == 0,
        },
    )


register_family(PackedGemm())
