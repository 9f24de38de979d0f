"""Matrix products in general: what matrix multiplication and convolution have in common.

A :class:`Product` is a batch of sums ``C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]`` where ``A`` and
``B`` are expressions: an implicit matrix of image patches is as good as one in memory.  Its hooks:

``load_a(batch, m, step)``     one element of A, or four neighbours along k
``load_b(batch, k, n)``        four neighbouring columns of B; ``n`` counts vectors of columns
``store(batch, m, n, value)``  four neighbouring results, pushed through the epilogue
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import Any

from ....runtime.plan.dtypes import FLOAT16
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
from ..geometry import lanes_of
from ..loop_trips import upper_bound

#: Steps of a thread whose loads are in flight together, where they divide the sum
_SPLIT_UNROLL = (4, 2, 1)
#: The same of one row and a matrix of halves: as many bytes
_HALVES_UNROLL = (8, *_SPLIT_UNROLL)


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
    factors: str = "floats"  #: what is multiplied, of :class:`~...target.WorkgroupCosts`
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
        return gemm_tiles.Problem.of(self.m, self.n, self.k, self.batch, self.factors)


def divides(divisor: int, size: Dim) -> bool:
    """Return whether ``size`` is provably a multiple of ``divisor`` for all values of its variables."""
    return ix.divide(size, divisor) is not None


def column(vectors: Dim, size: Dim, name: str = "n") -> Dim:
    """Return the four columns of vector ``name``; columns beyond the end repeat the last one."""
    columns = lanes_of(ix.coordinate(name, vectors))
    return columns if divides(LANES, size) else ix.minimum(columns, ix.add(size, -1))


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
        common = {"type": self.type, "multiply": multiply, "has_instruction": False, "totals": False}
        return {**common, "k_lanes": self.k_lanes}

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

    def results_first(self) -> str:
        """Return the type of what is stored, if results may take over the memory of a tensor that they read, and all of
        a vector is stored; else "".

        A thread with many results then reads for all of them before it stores the first: a load behind a store to the
        same tensor would wait for it.
        """
        store, *others = self.stores
        own = (store.dtype, store.position)
        reads_own = any((load.payload.dtype, load.payload.position) == own for load in ex.loads(store.value))
        if others or store.condition is not None or store.value.dtype not in VECTOR_TYPES or not reads_own:
            return ""
        return f"vec4<{WGSL_TYPES[store.value.dtype]}>"

    @property
    def further_loads(self) -> list[Hook]:
        """Loads besides those of the factors."""
        return []

    @property
    def thread_loads(self) -> list[Hook]:
        """The loads of tiles in registers."""
        return [self.load_a, self.load_b]

    @property
    def thread_parameters(self) -> dict[str, Any]:
        """Further parameters of their templates: how many elements a word of a packed B has (0: it is not packed)."""
        return {"codes": 0}

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
        halves = tile.rows == 1 and loaded_types(*self._results(self.load_b)) == FLOAT16.name
        possible = _HALVES_UNROLL if halves else _SPLIT_UNROLL
        return next((steps for steps in possible if divides(steps * tile.parts, self.steps)), 1)

    @property
    def is_vectorizable(self) -> bool:
        """Whether the results have a vector type, and packed ones fill words of their own."""
        if self.dtype not in VECTOR_TYPES:
            return False
        if self.context.group.output.dtype.packing == 1:
            return True
        run = self.product.stored_run
        return run is not None and self.context.results.is_run(run)
