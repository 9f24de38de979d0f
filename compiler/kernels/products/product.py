"""Matrix products in general: what matrix multiplication and convolution have in common.

A :class:`Product` is a batch of sums ``C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]`` where ``A`` and
``B`` are expressions: an implicit matrix of image patches is as good as one in memory.  :func:`build_product` chooses a
template and a tile and makes the hooks:

``load_a(batch, m, step)``     one element of A, or four neighbours along k
``load_b(batch, k, n)``        four neighbouring columns of B; ``n`` counts vectors of columns
``store(batch, m, n, value)``  four neighbouring results, pushed through the epilogue
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import Any

from ....runtime.plan.record import record
from ...codegen.spec import Hook, Store
from ...codegen.types import VECTOR_TYPES, WGSL_TYPES
from ...ir.graph import Shape
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES, depends_on_lane
from ...symbolic.polynomial import Dim
from ...target import WorkgroupCosts
from ...tuning import gemm_tiles
from ...tuning.config_choice import problem_key
from ..config_key import epilogue, extent, loaded_types
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily
from ..geometry import lanes_of, linear_grid, logical_coordinates
from ..loop_trips import filter_by_trips, upper_bound


@record(slots=False)
class Product:
    """Sizes of a batched product, and how its indices map to the anchor's result and operands.

    ``output(batch, m, n)`` gives the coordinates of a result.  ``terms(coordinates, k)`` gives the two factors of its
    ``k``-th term; the first must not depend on ``n``, the second not on ``m``.
    """

    batch: Dim
    m: Dim
    n: Dim
    k: Dim
    output: Callable[[Dim, Dim, Dim], tuple[Dim, ...]]
    terms: Callable[[Sequence[Dim], Dim], tuple[Expr, Expr]]
    window: str = "none"  #: of a convolution: kernel, strides and dilations, as part of the problem's key
    clipped: tuple[int, ...] = ()  #: axes of the result along which ``output`` may be out of range: nothing is stored

    @property
    def flops(self) -> Dim:
        return ix.product([2, self.batch, self.m, self.n, self.k])

    @property
    def stored_run(self) -> Shape | None:
        """Coordinates of four neighbouring columns of the result; None where some vectors are not whole."""
        if not divides(LANES, self.n):
            return None
        batch, m = ix.coordinate("batch", self.batch), ix.coordinate("m", self.m)
        run = self.output(batch, m, lanes_of(ix.coordinate("n", ix.ceildiv(self.n, LANES))))
        return None if any(depends_on_lane(run[axis]) for axis in self.clipped) else run

    @property
    def problem(self) -> gemm_tiles.Problem:
        m, n, k, batch = (ix.bounds(size)[1] for size in (self.m, self.n, self.k, self.batch))
        return gemm_tiles.Problem(m, n, k, batch)


def divides(divisor: int, size: Dim) -> bool:
    """Return whether ``size`` is provably a multiple of ``divisor`` for all values of its variables."""
    return ix.divide(size, divisor) is not None


def column(vectors: Dim, size: Dim, name: str = "n") -> Dim:
    """Return the four columns of vector ``name``; columns beyond the end repeat the last one."""
    columns = lanes_of(ix.coordinate(name, vectors))
    return columns if divides(LANES, size) else ix.minimum(columns, ix.add(size, -1))


class ProductFamily(KernelFamily):
    """Base of the product families: threads hold vectors of four neighbouring results."""

    vector_axis = -1
    stores_packed = True
    stores_halves = True

    @abstractmethod
    def product(self, context: GroupContext) -> Product:
        """Return the sizes and the terms of the product behind a group."""

    def stored_run(self, context: GroupContext) -> Shape | None:
        return self.product(context).stored_run

    def build(self, context: GroupContext) -> BuiltKernel:
        return build_product(context, self.product(context))


class ProductHooks:
    """The hooks of a product; ``k_lanes`` is 4 when A is loaded four elements along k at a time."""

    def __init__(self, context: GroupContext, product: Product) -> None:
        self.context = context
        self.product = product
        self.dtype = context.anchor.output.dtype.compute
        self.vectors = ix.ceildiv(product.n, LANES)
        self.batch = ix.coordinate("batch", product.batch)
        self.m = ix.coordinate("m", product.m)
        wide = self._a(lanes_of(ix.coordinate("step", ix.floordiv(product.k, LANES))))
        self.k_lanes = LANES if divides(LANES, product.k) and context.operands.vectorizes(wide) else 1
        self.steps = ix.floordiv(product.k, self.k_lanes)

    @property
    def type(self) -> str:
        """WGSL type of an accumulator."""
        return f"vec4<{WGSL_TYPES[self.dtype]}>"

    @property
    def factor(self) -> str:
        """WGSL type of an element of a factor."""
        return WGSL_TYPES[self.dtype]

    @property
    def flops(self) -> Dim:
        return self.product.flops

    @property
    def parameters(self) -> dict[str, Any]:
        multiply = "fused" if self.dtype == "f32" else "plain"
        return {"type": self.type, "multiply": multiply, "has_instruction": False, "k_lanes": self.k_lanes}

    @property
    def key(self) -> str:
        """The problem's key: sizes, what is loaded for each factor and with how many lanes, and the epilogue."""
        product, stores = self.product, self.stores
        return problem_key(
            "gemm",
            batch=extent(product.batch),
            m=extent(product.m),
            n=extent(product.n),
            k=extent(product.k),
            window=product.window,
            a=f"{loaded_types(*self._results(self.load_a))}x{self.k_lanes}",
            b=loaded_types(*self._results(self.load_b)),
            y=self.context.group.output.dtype.name,
            epilogue=epilogue(stores),
        )

    @staticmethod
    def _results(hook: Hook) -> tuple[Expr, ...]:
        return () if hook.result is None else (hook.result,)

    def _a(self, k: Dim) -> Expr:
        if self.product.k == 0:
            return ex.const(0, self.dtype)
        return self.product.terms(self.product.output(self.batch, self.m, 0), k)[0]

    @cached_property
    def load_a(self) -> Hook:
        step = ix.coordinate("step", self.steps)
        value = self._a(lanes_of(step) if self.k_lanes == LANES else step)
        return Hook("load_a", ("batch", "m", "step"), self.k_lanes, (), value)

    @cached_property
    def load_b(self) -> Hook:
        product = self.product
        k = ix.coordinate("k", product.k)
        coordinates = product.output(self.batch, 0, column(self.vectors, product.n))
        value = ex.const(0, self.dtype) if product.k == 0 else product.terms(coordinates, k)[1]
        return Hook("load_b", ("batch", "k", "n"), LANES, (), value)

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        product = self.product
        columns = lanes_of(ix.coordinate("n", self.vectors))
        coordinates = product.output(self.batch, self.m, columns)
        conditions = [] if divides(LANES, product.n) else [ex.in_range(columns, 0, product.n)]
        shape = self.context.anchor.output.shape
        conditions += [ex.in_range(coordinates[axis], 0, shape[axis]) for axis in product.clipped]
        condition = reduce(partial(ex.binary, "and"), conditions) if conditions else None
        value, *beside = (ex.register(name, self.dtype) for name, _ in self.registers)
        return self.context.results.stores(coordinates, value, condition, beside)

    @property
    def registers(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the registers with an element of the anchor, and of its partners."""
        return (("value", self.type),)

    def store(self) -> Hook:
        return Hook("store", ("batch", "m", "n"), LANES, self.registers, None, self.stores)

    @property
    def shared_loads(self) -> list[Hook]:
        """The loads of tiles in workgroup memory: what they return waits in registers for a while."""
        return [replace(self.load_a, held=True), replace(self.load_b, held=True)]

    def shared_parameters(self, tile: gemm_tiles.SharedTile) -> dict[str, Any]:
        """Further parameters of the template with tiles in workgroup memory: how many elements of a tile a word of a
        packed B has, and how many steps have a sum of their own that is scaled; 0: it is not packed, or scaled."""
        return {"codes": 0, "fold": 0}

    @property
    def shared_dims(self) -> dict[str, Dim]:
        return {}

    @property
    def features(self) -> tuple[str, ...]:
        """Device features that the hooks' arithmetic needs."""
        return ()

    def fits(self, tile: gemm_tiles.Tile) -> bool:
        """Return whether a kernel with the tile computes the product."""
        return True

    def workgroup_bytes(self, tile: gemm_tiles.SharedTile) -> int:
        return tile.workgroup_bytes

    def rounds(self, tile: gemm_tiles.Tile) -> int:
        """Return the trip count of a thread's loops."""
        steps = upper_bound(self.steps)
        if isinstance(tile, gemm_tiles.SharedTile):
            inner = tile.block_k // tile.parts // self.written_out(tile)
            return -(-upper_bound(self.product.k) // tile.block_k) * (1 + inner)
        if isinstance(tile, gemm_tiles.SplitTile):
            return -(-steps // (tile.parts * self.unroll(tile))) + tile.parts.bit_length()
        return steps + (tile.rows if isinstance(tile, gemm_tiles.SubgroupTile) else 0)

    def written_out(self, tile: gemm_tiles.SharedTile) -> int:
        """Return the steps along k of a tile that one trip of a loop has.

        Tiles that give a thread many results have few threads to hide loads, which the steps that are written out
        do: in a loop they take up to a fifth more time (NVIDIA H200).  Half as many results are many in long products,
        where all workgroups are busy; in shorter ones the text is not worth the driver's time.
        """
        costs = self.context.target.costs
        if not isinstance(costs, WorkgroupCosts):
            return 1
        results = tile.rows * tile.columns
        problem = self.product.problem
        long = problem.workgroups(tile) * problem.k >= costs.long_product
        if (long and 2 * results >= costs.large_tile) or (tile.parts == 1 and results >= costs.large_tile):
            return tile.block_k // tile.parts
        return math.gcd(tile.block_k // tile.parts, costs.written_out)

    def unroll(self, tile: gemm_tiles.SplitTile) -> int:
        return next((steps for steps in _SPLIT_UNROLL if divides(steps * tile.parts, self.steps)), 1)

    @property
    def is_vectorizable(self) -> bool:
        """Whether the results have a vector type, and packed ones fill words of their own."""
        if self.dtype not in VECTOR_TYPES:
            return False
        if self.context.group.output.dtype.packing == 1:
            return True
        run = self.product.stored_run
        return run is not None and self.context.results.is_run(run)


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
    tile = context.choose(hooks.key, tiles, cost=lambda tile: gemm_tiles.score(product.problem, tile, context.target))
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
        [*(loads or (hooks.load_a, hooks.load_b)), hooks.store()],
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
        workgroup=(tile.across, tile.down, 1),
        parameters={
            "whole_rows": divides(tile.rows, product.m),
            "whole_columns": divides(tile.columns, hooks.vectors),
        },
    )


def _subgroup(hooks: ProductHooks, tile: gemm_tiles.SubgroupTile) -> Draft:
    return _draft(
        hooks,
        "gemm_subgroup",
        tile,
        (ix.ceildiv(hooks.vectors, tile.columns), ix.ceildiv(hooks.product.m, tile.rows * tile.subgroup)),
        workgroup=(tile.subgroup, 1, 1),
        parameters={"whole_columns": divides(tile.columns, hooks.vectors)},
        features=("subgroup",),
    )


def _shared(hooks: ProductHooks, tile: gemm_tiles.SharedTile) -> Draft:
    product = hooks.product
    return _draft(
        hooks,
        "gemm_shared",
        tile,
        (ix.ceildiv(product.n, tile.block_n), ix.ceildiv(product.m, tile.block_m)),
        *hooks.shared_loads,
        dims={"k": product.k, **hooks.shared_dims},
        workgroup=(tile.threads, 1, 1),
        workgroup_bytes=hooks.workgroup_bytes(tile),
        parameters={
            "a_type": f"vec4<{hooks.factor}>" if hooks.k_lanes == LANES else hooks.factor,
            "whole_steps": divides(tile.block_k, product.k),
            "whole_columns": divides(tile.block_n, product.n),
            "unroll": hooks.written_out(tile),
            **hooks.shared_parameters(tile),
        },
    )


#: Steps of a thread whose loads are in flight together, where they divide the sum
_SPLIT_UNROLL = (4, 2, 1)


def _split(hooks: ProductHooks, tile: gemm_tiles.SplitTile) -> Draft:
    product = hooks.product
    return _draft(
        hooks,
        "gemm_split",
        tile,
        (ix.ceildiv(hooks.vectors, tile.across), ix.ceildiv(product.m, tile.rows)),
        workgroup=(tile.across, tile.parts, 1),
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
            workgroup=(tile.workgroup, 1, 1),
            grid=linear_grid(threads, tile.workgroup, context.target),
            rounds=upper_bound(k),
            flops=flops,
            parameters={"type": sum_type},
        )
    )
