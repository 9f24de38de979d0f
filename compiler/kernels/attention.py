"""Attention: softmax(scores) values in one kernel, with the scores computed from queries and keys on the way.

The softmax is a stream: for each query the kernel keeps the highest score so far, the sum of the powers and the
weighted sum of the values, and scales the two sums down when a higher score comes.  All of it is f32.

``load_q(batch, m, step)``, ``load_k(batch, n, step)``   four neighbouring elements of a query and of a key (zeros past
                                                         the end); absent where the scores are in memory
``keys_begin(batch, m)``, ``keys_end(batch, m)``         the first key of a query and the key behind the last one, where
                                                         a range is known: nothing else is read
``score(batch, m, n, product)``                          a score, from the product of a query and a key
``load_v(batch, n, step)``                               four neighbouring elements of a value
``store(batch, m, step, value)``                         four neighbouring results, pushed through the epilogue
``store_part(batch, m, part, step, value)``              instead: four elements of the result of a part of the keys

With few queries a kernel also writes the keys and values of their tokens to caches (:mod:`.attention_update`).

Whatever reshapes heads, repeats them for groups of queries, turns them or joins caches is in the loads; scales, caps
and masks are in the score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ...runtime.plan.errors import InternalError
from ..codegen.emitter import packed_words
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes, broadcast_coordinates
from ..ir.graph import Node, Shape, Value
from ..ops.internal.attended_keys import AttendedKeysAttributes, key_range
from ..ops.internal.softmax_product import softmax_product_array
from ..ops.registry import Registry
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from ..tuning import attention_tiles
from ..tuning.attention_tiles import (
    FEW_ROWS,
    AttentionProblem,
    BlockAttention,
    RowAttention,
    StreamAttention,
    TileAttention,
)
from ..tuning.config_choice import problem_key
from .attention_scores import find_scores, product_coordinates
from .attention_update import NewRows, find_new_rows
from .config_key import extent
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, OverflowFlags, Reuse, by_position, register_family
from .geometry import lanes_of, unflatten
from .groups import Region, Scores
from .loop_trips import filter_by_trips, upper_bound

VECTOR = "vec4<f32>"


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a SoftmaxProduct with its scores and its fused consumers."""
    hooks = AttentionHooks(context)
    key = problem_key(
        "attention",
        batch=extent(hooks.batch_size),
        groups=hooks.node.attributes.groups,
        m=extent(hooks.m_size),
        n=extent(hooks.n_size),
        key=hooks.key_size,
        value=hooks.value_size,
        parts=hooks.parts,
        a=hooks.node.operand(1).dtype.name,
        y=context.group.output.dtype.name,
        **{name: extent(size) for name, size in hooks.new_dims.items()},
    )
    packed = all(_is_halves(hook.result) for hook in hooks.written if hook.name in ("load_k", "load_v"))
    problem = replace(hooks.problem(upper_bound(hooks.new_dims.get("new", 0))), packed=packed)
    tiles = filter_by_trips(context.target, attention_tiles.attention_tiles(context.target, problem), hooks.rounds)
    tile = context.choose(key, tiles, rows=hooks.m_size)
    vectors = hooks.key_vectors, hooks.value_vectors
    dims = {"m": hooks.m_size, **hooks.new_dims, "n": hooks.n_size, "chunk": ix.ceildiv(hooks.n_size, hooks.parts)}
    flops = ix.product([2, hooks.batch_size, hooks.m_size, hooks.n_size, hooks.key_size + hooks.value_size])
    if isinstance(tile, (RowAttention, StreamAttention)):
        is_row = isinstance(tile, RowAttention)
        return context.built(
            Draft(
                "attention_row" if is_row else "attention_stream",
                tile,
                hooks.all(tile),
                dims=dims,
                threads=tile.threads,
                grid=(ix.ceildiv(hooks.m_size, tile.rows), hooks.batch_size, hooks.parts),
                workgroup_bytes=tile.workgroup_bytes(*vectors) + problem.new_bytes,
                rounds=hooks.rounds(tile),
                calls=2 * upper_bound(hooks.n_size),
                flops=flops,
                features=() if is_row else ("subgroup",),
                parameters={**hooks.parameters, **hooks.row_parameters(tile)},
            )
        )
    is_block = isinstance(tile, BlockAttention)
    blocks = ix.ceildiv(hooks.m_size, tile.queries)
    return context.built(
        Draft(
            "attention_block" if is_block else "attention_tile",
            tile,
            hooks.all(tile),
            dims={**dims, "blocks": blocks} if is_block else dims,
            threads=tile.threads,
            grid=(blocks, hooks.batch_size, 1),
            workgroup_bytes=tile.workgroup_bytes(*vectors),
            rounds=hooks.rounds(tile),
            calls=2 * upper_bound(hooks.n_size),
            flops=flops,
            features=("subgroup",) if is_block else (),
            parameters=hooks.parameters,
        )
    )


class AttentionHooks:
    """The hooks of one attention; ``batch`` counts all axes before the last two of the result."""

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        node = context.anchor
        assert context.group.region is not None
        self.scores = context.group.region.scores
        self.node = node
        self.parts: int = node.attributes.parts
        self.attended: AttendedKeysAttributes | None = node.attributes.attended
        *batch, m = node.output.shape[:-1] if self.parts == 1 else node.output.shape[:-2]
        self.batch_shape: Shape = tuple(batch)
        self.batch_size, self.m_size, self.n_size = ix.product(batch), m, node.operand(1).shape[-2]
        self.value_size = ix.number(node.operand(1).shape[-1])
        self.key_size = 0 if self.scores is None else ix.number(self.scores.product.operand(0).shape[-1])
        self.batch = ix.coordinate("batch", self.batch_size)
        self.m, self.n = ix.coordinate("m", self.m_size), ix.coordinate("n", self.n_size)
        self.heads = unflatten(self.batch, self.batch_shape)
        self.queries = ix.floordiv(m, node.attributes.groups)
        self.caches = self.find_caches(context.group.updates) or []

    @property
    def key_vectors(self) -> int:
        return -(-self.key_size // LANES)

    @property
    def value_vectors(self) -> int:
        return -(-self.value_size // LANES)

    def problem(self, new: int) -> AttentionProblem:
        """Return the sizes for tuning, of a kernel that writes ``new`` rows to caches."""
        batch, m, n = (ix.bounds(size)[1] for size in (self.batch_size, self.m_size, self.n_size))
        groups, element = self.node.attributes.groups, self.node.operand(1).dtype.itemsize
        return AttentionProblem(batch, m, n, self.key_size, self.value_size, groups, element, new)

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "key_vectors": self.key_vectors,
            "value_vectors": self.value_vectors,
            "zero_rows": self.node.attributes.zero_rows,
            "parts": self.parts,
            "may_be_empty": ix.bounds(self.n_size)[0] < 1,
            "ranges": "" if self.attended is None else "shared" if self.queries == 1 else "rows",
        }

    def row_parameters(self, tile: RowAttention | StreamAttention) -> dict[str, Any]:
        """Return further parameters of the form for few queries: whether no workgroup has fewer rows than others, and
        how many rows it writes to caches.
        """
        whole = tile.rows == 1 or ix.modulo(self.m_size, tile.rows) == 0
        return {"whole_rows": whole, "new_rows": upper_bound(self.new_dims.get("new", 0))}

    def find_caches(self, updates: Sequence[Node]) -> list[NewRows] | None:
        """Return the caches of keys and values that ``updates`` write, in this order; None if they write others."""
        if self.scores is None or not updates:
            return None
        sources = [(self.scores.product.operand(1), self._key_at), (self.node.operand(1), self._value_at)]
        return find_new_rows(self.context, updates, sources, self.n, self.batch_size)

    @property
    def new_dims(self) -> dict[str, Dim]:
        return {"new": self.caches[0].new.shape[2]} if self.caches else {}

    def rounds(self, tile: attention_tiles.AttentionTile) -> int:
        """Return the trip count of a thread's loops."""
        keys = upper_bound(ix.ceildiv(self.n_size, self.parts))
        if isinstance(tile, (TileAttention, BlockAttention)):
            copies = (tile.queries + 2 * -(-keys // tile.keys) * tile.keys) * max(self.key_vectors, self.value_vectors)
            return copies // tile.threads + -(-keys // tile.keys) * (3 + self.key_vectors + 2 * tile.keys)
        new = upper_bound(self.new_dims.get("new", 0))
        first = sum(-(-new * vectors // tile.threads) for vectors in (self.key_vectors, self.value_vectors))
        first += tile.rows * -(-self.key_vectors // tile.threads)
        if isinstance(tile, StreamAttention):
            return first + -(-keys // tile.tile_keys) + -(-new // tile.teams) + tile.rows * 3 * tile.teams
        slices = max(tile.threads // self.value_vectors, 1)
        highest = tile.rows * (tile.tile_keys if tile.pieces == 1 else 1 + tile.tile_keys // tile.pieces)
        trips = 1 + 2 * -(-tile.tile_keys // tile.threads) + highest + -(-tile.tile_keys // slices)
        return first + -(-keys // tile.tile_keys) * trips + tile.rows * slices

    def all(self, tile: attention_tiles.AttentionTile) -> list[Hook]:
        hooks = self.written
        waits = isinstance(tile, StreamAttention) or (isinstance(tile, RowAttention) and tile.ahead)
        if waits or (isinstance(tile, BlockAttention) and tile.packed):  # what waits is as it is in memory
            hooks = [replace(hook, held=hook.name in ("load_k", "load_v")) for hook in hooks]
        return hooks

    @cached_property
    def written(self) -> list[Hook]:
        """The hooks of any form."""
        ranges = self._ranges()
        new = [hook for letter, cache in zip("kv", self.caches) for hook in cache.hooks(letter)]
        new += [cache.begin() for cache in self.caches[:1]]
        if self.scores is None:
            return [*ranges, self._score(), self._load_v(), self._store()]
        return [*ranges, *new, self._load_q(), self._load_k(), self._score(), self._load_v(), self._store()]

    def _ranges(self) -> list[Hook]:
        """Return the hooks with the first key of a query and the key behind the last one, where ranges are known."""
        if self.attended is None:
            return []
        batch = 0 if self.attended.batch == 1 else self.heads[0]
        numbers = [
            None if value is None else ex.cast(self.context.operands.read(value, (batch,)), "i32")
            for value in (self.node.optional(2), self.node.optional(3))
        ]
        query = self.m if self.node.attributes.groups == 1 else ix.modulo(self.m, self.queries)
        names = ("keys_begin", "keys_end")
        ends = key_range(self.attended, query, *numbers)
        return [Hook(name, ("batch", "m"), 1, (), end) for name, end in zip(names, ends, strict=True)]

    @property
    def _scores_at(self) -> tuple[Dim, ...]:
        shape = self.node.operand(0).shape
        return (*broadcast_coordinates(self.heads, self.batch_shape, shape[:-2]), self.m, self.n)

    @property
    def _product_at(self) -> Shape:
        """Coordinates of the product of queries and keys behind a score."""
        assert self.scores is not None
        coordinates = product_coordinates(
            self.node.operand(0),
            self._scores_at,
            self.scores.product,
            set(self.scores.nodes),
            self.context.operands.operators,
        )
        if coordinates is None:
            raise InternalError("the scores read several elements of their product", origin=self.node.origin)
        return coordinates

    def _elements(self, size: int) -> tuple[Dim, Expr | None]:
        """Return the four neighbours of vector ``step``, the last one again past the end, and their bounds check."""
        wide = lanes_of(ix.coordinate("step", -(-size // LANES)))
        if size % LANES == 0:
            return wide, None
        return ix.minimum(wide, size - 1), ex.in_range(wide, 0, size)

    def _load_q(self) -> Hook:
        assert self.scores is not None
        left = self.scores.product.operand(0)
        *heads, row, _ = self._product_at
        k, inside = self._elements(self.key_size)
        coordinates = broadcast_coordinates(heads, self.scores.product.output.shape[:-2], left.shape[:-2])
        value = _padded(self.context.operands.read(left, (*coordinates, row, k)), inside)
        return Hook("load_q", ("batch", "m", "step"), LANES, (), value)

    @property
    def _key_at(self) -> Shape:
        """Coordinates of four neighbouring elements of a key."""
        assert self.scores is not None
        *heads, _, column = self._product_at
        k, _ = self._elements(self.key_size)
        shape = self.scores.product.operand(1).shape
        return (*broadcast_coordinates(heads, self.scores.product.output.shape[:-2], shape[:-2]), k, column)

    def _load_k(self) -> Hook:
        assert self.scores is not None
        _, inside = self._elements(self.key_size)
        value = _padded(self.context.operands.read(self.scores.product.operand(1), self._key_at), inside)
        return Hook("load_k", ("batch", "n", "step"), LANES, (), value)

    def _score(self) -> Hook:
        scores = self.node.operand(0)
        if self.scores is None:
            value = self.context.operands.read(scores, self._scores_at)
            return Hook("score", ("batch", "m", "n"), 1, (), value)
        product = ex.register("product", "f32")
        scope = self.context.operands.scope()
        scope.bind(self.scores.product.output, self._product_at, product)
        value = scope.read(scores, self._scores_at)
        return Hook("score", ("batch", "m", "n"), 1, (("product", "f32"),), value)

    @property
    def _value_at(self) -> Shape:
        """Coordinates of four neighbouring elements of a value."""
        coordinates = broadcast_coordinates(self.heads, self.batch_shape, self.node.operand(1).shape[:-2])
        return (*coordinates, self.n, self._elements(self.value_size)[0])

    def _load_v(self) -> Hook:
        value = self.context.operands.read(self.node.operand(1), self._value_at)
        return Hook("load_v", ("batch", "n", "step"), LANES, (), value)

    @property
    def stored(self) -> Shape:
        """Coordinates of four neighbouring results."""
        if self.parts > 1:
            wide = lanes_of(ix.coordinate("step", self.value_vectors + 1))
            return (*self.heads, self.m, ix.coordinate("part", self.parts), wide)
        return (*self.heads, self.m, lanes_of(ix.coordinate("step", self.value_vectors)))

    @property
    def stores_whole_vectors(self) -> bool:
        return self.parts > 1 or self.value_size % LANES == 0

    def _store(self) -> Hook:
        if self.parts > 1:
            stores = self.context.results.stores(self.stored, ex.register("value", "f32"))
            return Hook("store_part", ("batch", "m", "part", "step"), LANES, (("value", VECTOR),), None, stores)
        inside = None if self.stores_whole_vectors else ex.in_range(self.stored[-1], 0, self.value_size)
        stores = self.context.results.stores(self.stored, ex.register("value", "f32"), inside)
        return Hook("store", ("batch", "m", "step"), LANES, (("value", VECTOR),), None, stores)


def _is_halves(value: Expr | None) -> bool:
    """Return whether four neighbours are read from two words as they are."""
    words = None if value is None or value.op != "load" else packed_words(value)
    return words is not None and words[0] == "vec2<u32>"


def _padded(value: Expr, inside: Expr | None) -> Expr:
    return value if inside is None else ex.guard(inside, value, ex.const(0, value.dtype))


class Attention(KernelFamily):
    """``loom.SoftmaxProduct``, with the matrix product behind its scores."""

    name = "attention"
    stores_halves = True
    stores_once = True

    def vector_axis(self, anchor: Node) -> int | None:
        return -1

    def find_scores(
        self, anchor: Node, rank: Mapping[Node, int], outputs: set[Value], taken: Mapping[Node, object], ops: Registry
    ) -> Scores | tuple[Node, str] | None:
        return find_scores(anchor, rank, outputs, taken, ops)

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``MANY`` for keys and values that each of several tiles of queries reads, else ``ONCE``."""
        attributes, rows = region.anchor.attributes, ix.bounds(region.anchor.operand(0).shape[-2])[1]
        if rows <= FEW_ROWS * attributes.groups:
            return Reuse.ONCE
        reads_many = user is region.anchor or (region.scores and user is region.scores.product)
        return Reuse.MANY if reads_many and operand is user.operand(1) else Reuse.ONCE

    def may_update(self, context: GroupContext, updates: Sequence[Node]) -> bool:
        """Return whether the updates are the rows of the queries' tokens, which are few, and fewer than the cache has.

        On a software driver a call costs little, and the kernel could not read caches as long words.
        """
        hooks = AttentionHooks(context)
        few = upper_bound(hooks.queries) <= FEW_ROWS and context.target.uses_workgroup_memory
        caches = hooks.find_caches(updates) if few else None
        new = 0 if caches is None else upper_bound(caches[0].new.shape[2])
        fits = attention_tiles.fits(context.target, hooks.problem(new))
        return 0 < new <= min(FEW_ROWS, ix.bounds(hooks.n_size)[0] - 1) and fits

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the axes to store innermost: elements of values, and of queries and keys the terms of the product."""
        values = region.anchor.operand(1)
        if region.scores is None:
            return [(values, values.rank - 1)]
        left, right = map(region.scores.product.operand, (0, 1))
        return [(values, values.rank - 1), (left, left.rank - 1), (right, right.rank - 2)]

    def may_reorder(self, output: Value) -> bool:
        return output.dtype.packing == 1

    def why_exact(self, anchor: Node) -> str | None:
        return "the scores of a part of an attention are exact" if anchor.attributes.parts > 1 else None

    def overflow(self, node: Node, operands: Sequence[OverflowFlags]) -> OverflowFlags:
        """Return the overflow of the values: results are means of them, whatever the scores are."""
        return operands[1]

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        scores, values, *ranges = (*by_position(node, operands), None, None)[:4]
        assert scores is not None and values is not None
        return softmax_product_array(scores, values, node.attributes, ranges, sizes)

    def stored_run(self, context: GroupContext) -> Shape | None:
        hooks = AttentionHooks(context)
        return hooks.stored if hooks.stores_whole_vectors else None

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Attention())
