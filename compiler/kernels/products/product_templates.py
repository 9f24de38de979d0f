"""The templates of a product: which one suits its sizes and the device, and what each needs beside the hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...codegen.spec import Hook
from ...codegen.types import VECTOR_TYPES, WGSL_TYPES
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ...tuning import gemm_tiles
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..geometry import lanes_of, linear_grid, logical_coordinates
from ..loop_trips import filter_by_trips, upper_bound
from .product import Product, ProductHooks, divides


def build_product(context: GroupContext, product: Product, hooks: ProductHooks | None = None) -> BuiltKernel:
    """Build the kernel of a product with the template that suits its sizes and the device."""
    hooks = hooks or ProductHooks(context, product)
    if not hooks.is_vectorizable:
        return build_elements(context, product.k, product.terms, product.flops)
    tiles = [tile for tile in gemm_tiles.ranked(product.problem, context.target) if hooks.fits(tile)]
    if any(hooks.rounds(tile) > (context.target.max_loop_trips or math.inf) for tile in tiles):
        tiles = filter_by_trips(
            context.target, [*tiles, *gemm_tiles.split_tiles(product.problem, context.target)], hooks.rounds
        )
    if context.group.constant:
        tiles = _tiles_of_weights(tiles)
    tile = context.choose(
        hooks.key,
        tiles,
        cost=lambda tile: gemm_tiles.score(product.problem, tile, context.target),
        rows=product.m,
    )
    if isinstance(tile, gemm_tiles.SharedTile):
        return context.built(_shared(hooks, tile))
    if isinstance(tile, gemm_tiles.SplitTile):
        return context.built(_split(hooks, tile))
    if isinstance(tile, gemm_tiles.SubgroupTile):
        return context.built(_subgroup(hooks, tile))
    return context.built(_register(hooks, tile))


#: Rows, and vectors of columns, of a thread in a product that runs once
_ROWS_OF_WEIGHTS, _COLUMNS_OF_WEIGHTS = 2, 4


def _tiles_of_weights(tiles: list[gemm_tiles.Tile]) -> list[gemm_tiles.Tile]:
    """Return the tile for a product that runs once: kernels of one tile are shared, and a small one compiles soon."""

    def distance(tile: gemm_tiles.SharedTile | gemm_tiles.SubgroupTile) -> tuple[int, str]:
        if isinstance(tile, gemm_tiles.SharedTile):
            return tile.rows * tile.columns, repr(tile)
        return abs(tile.rows - _ROWS_OF_WEIGHTS) + abs(tile.columns - _COLUMNS_OF_WEIGHTS), repr(tile)

    alike = [tile for tile in tiles if isinstance(tile, gemm_tiles.SharedTile | gemm_tiles.SubgroupTile)]
    return [min(alike, key=distance)] if alike else tiles


def _draft(
    hooks: ProductHooks, template: str, tile: gemm_tiles.Tile, grid: tuple[Dim, Dim], *loads: Hook, **fields: Any
) -> Draft:
    """Return what all templates have in common; ``grid`` are workgroups along columns and rows."""
    product = hooks.product
    return Draft(
        template,
        tile,
        [*(loads or (hooks.load_a, hooks.load_b)), *hooks.further_loads, fields.pop("store", hooks.store())],
        dims={"m": product.m, "vectors": hooks.vectors, "steps": hooks.steps, **fields.pop("dims", {})},
        grid=(*grid, product.batch),
        rounds=hooks.rounds(tile),
        features=(*hooks.features, *fields.pop("features", ())),
        calls=LANES * upper_bound(hooks.steps),
        flops=hooks.flops,
        parameters={**hooks.parameters, **fields.pop("parameters")},
        **fields,
    )


def _register(hooks: ProductHooks, tile: gemm_tiles.RegisterTile) -> Draft:
    product = hooks.product
    across, down = ix.ceildiv(hooks.vectors, tile.columns), ix.ceildiv(product.m, tile.rows)
    return _draft(
        hooks,
        "gemm_register",
        tile,
        (ix.ceildiv(across, tile.across), ix.ceildiv(down, tile.down)),
        *hooks.thread_loads,
        threads=tile.threads,
        parameters={
            "whole_rows": divides(tile.rows, product.m),
            "whole_columns": divides(tile.columns, hooks.vectors),
            **hooks.thread_parameters,
        },
    )


def _subgroup(hooks: ProductHooks, tile: gemm_tiles.SubgroupTile) -> Draft:
    return _draft(
        hooks,
        "gemm_subgroup",
        tile,
        (ix.ceildiv(hooks.vectors, tile.columns), ix.ceildiv(hooks.product.m, tile.rows * tile.subgroup)),
        *hooks.thread_loads,
        threads=tile.subgroup,
        parameters={"whole_columns": divides(tile.columns, hooks.vectors), **hooks.thread_parameters},
        features=("subgroup",),
    )


def _shared(hooks: ProductHooks, tile: gemm_tiles.SharedTile) -> Draft:
    product = hooks.product
    result_type = hooks.results_first()
    return _draft(
        hooks,
        "gemm_shared",
        tile,
        (ix.ceildiv(product.n, tile.block_n), ix.ceildiv(product.m, tile.block_m)),
        *hooks.shared_loads,
        store=replace(hooks.store(), reads_first=bool(result_type)),
        dims={"k": product.k, **hooks.shared_dims},
        threads=tile.threads,
        workgroup_bytes=hooks.workgroup_bytes(tile),
        parameters={
            "a_type": f"vec4<{hooks.factor}>" if hooks.k_lanes == LANES else hooks.factor,
            "whole_steps": divides(tile.block_k, product.k),
            "whole_columns": divides(tile.block_n, product.n),
            "unroll": hooks.written_out(tile),
            "results_first": bool(result_type),
            "result_type": result_type or hooks.type,
            **hooks.shared_parameters(tile),
        },
    )


def _split(hooks: ProductHooks, tile: gemm_tiles.SplitTile) -> Draft:
    product = hooks.product
    return _draft(
        hooks,
        "gemm_split",
        tile,
        (ix.ceildiv(hooks.vectors, tile.across), ix.ceildiv(product.m, tile.rows)),
        threads=tile.threads,
        workgroup_bytes=tile.workgroup_bytes,
        parameters={"whole_rows": divides(tile.rows, product.m), "unroll": hooks.unroll(tile)},
    )


def build_elements(
    context: GroupContext, k: Dim, terms: Callable[[Sequence[Dim], Dim], tuple[Expr, Expr]], flops: Dim
) -> BuiltKernel:
    """Build a kernel of one thread a result (four neighbours of packed types), where no other template applies.

    ``terms(coordinates, k)`` gives the factors of the ``k``-th term of the anchor's result at ``coordinates``.
    """
    output = context.anchor.output
    dtype = output.dtype.compute
    lanes = LANES if dtype in VECTOR_TYPES else 1
    tile = gemm_tiles.ElementTile(lanes)
    axes = output.layout.physical_axes(output.shape)
    elements = ix.product([size for _, size in axes])
    threads = ix.ceildiv(elements, lanes)
    thread = ix.coordinate("q", threads)
    flat = lanes_of(thread) if lanes == LANES else thread
    inside = flat if divides(lanes, elements) else ix.minimum(flat, ix.add(elements, -1))
    sum_type = WGSL_TYPES[dtype] if lanes == 1 else f"vec4<{WGSL_TYPES[dtype]}>"
    total = ex.register("sum", dtype)
    if k != 0:
        left, right = terms(logical_coordinates(axes, inside), ix.coordinate("k", k))
        total = ex.binary("add", total, ex.binary("mul", left, right))
    registers = (("sum", sum_type),)
    coordinates = logical_coordinates(axes, flat)
    # The last thread computes up to three elements past the end: buffers are padded to 16 bytes.
    stores = context.results.stores(coordinates, ex.register("sum", dtype))
    hooks = [
        Hook("accumulate", ("q", "k"), lanes, registers, total),
        Hook("store", ("q",), lanes, registers, None, stores),
    ]
    return context.built(
        Draft(
            "gemm_element",
            tile,
            hooks,
            dims={"threads": threads, "k": k},
            threads=tile.workgroup,
            grid=linear_grid(threads, tile.workgroup, context.target),
            rounds=upper_bound(k),
            flops=flops,
            parameters={"type": sum_type},
        )
    )
