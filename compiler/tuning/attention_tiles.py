"""Tile configurations of attention kernels: legality, and which one a target runs best."""

from __future__ import annotations

from math import ceil

from ...runtime.plan.record import record
from ..symbolic.lanes import LANES
from ..target import Target, WorkgroupCosts

#: Rows of queries that are so few that a workgroup takes one each
FEW_ROWS = 4
#: Vectors of a query that a thread can keep in registers
_QUERY_VECTORS = 32


@record
class TileAttention:
    """A workgroup has ``rows * down`` queries and walks the keys in blocks of ``keys``.

    ``across`` threads share a row: each computes the scores of ``keys / across`` keys of a block, then every
    ``across``-th vector of the result.  Queries, a block of keys (then values) and the scores are in workgroup memory.
    """

    rows: int
    across: int
    down: int
    keys: int

    def __post_init__(self) -> None:
        if self.keys % self.across or not 1 <= self.keys // self.across <= 4:
            raise ValueError(f"{self.across} threads do not share {self.keys} keys")
        if not 1 <= self.rows <= 8 or not 16 <= self.threads <= 256:
            raise ValueError(f"{self} has {self.threads} threads")

    @property
    def threads(self) -> int:
        return self.across * self.down

    @property
    def block(self) -> int:
        """Queries of a workgroup."""
        return self.rows * self.down

    def workgroup_bytes(self, key_vectors: int, value_vectors: int) -> int:
        stride = max(key_vectors, value_vectors) + 1
        return 16 * (self.block * key_vectors + self.keys * stride) + 4 * self.block * (self.keys + 1)


@record
class RowAttention:
    """A workgroup has one query; its ``threads`` take a key each, then share the vectors of the result.

    ``registers``: each thread keeps the whole query to itself, for drivers on which workgroup memory is expensive.
    """

    threads: int
    registers: bool = False

    def __post_init__(self) -> None:
        if self.threads & (self.threads - 1) or not 8 <= self.threads <= 256:
            raise ValueError(f"a workgroup of {self.threads} threads")

    def workgroup_bytes(self, key_vectors: int, value_vectors: int) -> int:
        return 16 * (key_vectors + self.threads) + 4 * self.threads


AttentionTile = TileAttention | RowAttention

_TILES = (
    TileAttention(4, 16, 8, 32),
    TileAttention(4, 16, 8, 16),
    TileAttention(2, 16, 8, 32),
    TileAttention(2, 16, 8, 16),
    TileAttention(1, 16, 8, 16),
    TileAttention(1, 8, 8, 8),
    TileAttention(1, 4, 8, 4),
)


def attention_tiles(target: Target, batch: int, m: int, n: int, key_size: int, value_size: int) -> list[AttentionTile]:
    """Return the form that a rule chooses, then all others that the device can run.

    The problem is ``batch`` heads of ``m`` queries and ``n`` keys; sizes of dynamic dimensions are upper bounds.
    """
    best = _best_tile(target, batch, m, n, key_size, value_size)
    vectors = ceil(key_size / LANES), ceil(value_size / LANES)
    memory = target.limit("max-compute-workgroup-storage-size")
    if isinstance(best, RowAttention):
        most = target.max_workgroup_threads
        others: list[AttentionTile] = [
            RowAttention(number, best.registers)
            for number in (best.threads // 2, best.threads * 2)
            if max(8, vectors[1]) <= number <= most
        ]
    else:
        others = list(_TILES)
    return [best, *(tile for tile in others if tile != best and tile.workgroup_bytes(*vectors) <= memory)]


def _best_tile(target: Target, batch: int, m: int, n: int, key_size: int, value_size: int) -> AttentionTile:
    vectors = ceil(key_size / LANES), ceil(value_size / LANES)
    memory = target.limit("max-compute-workgroup-storage-size")
    if m <= FEW_ROWS:
        registers = not target.uses_workgroup_memory and vectors[0] <= _QUERY_VECTORS
        return RowAttention(_row_threads(target, n, vectors[1]), registers)
    fitting = [tile for tile in _TILES if tile.workgroup_bytes(*vectors) <= memory]
    busy = [tile for tile in fitting if batch * ceil(m / tile.block) >= target.busy_workgroups]
    if busy:
        return busy[0]
    return next(tile for tile in fitting if tile.block == min(16, fitting[0].block)) if fitting else _TILES[-1]


def _row_threads(target: Target, n: int, value_vectors: int) -> int:
    """Return the threads for each row: few where barriers are expensive, but at least one for each vector of values."""
    threads = target.group_threads
    most = target.max_workgroup_threads if target.has_cheap_barriers else threads
    while threads < value_vectors or (threads < most and threads < n):
        threads *= 2
    return threads


def attention_parts(target: Target, batch: int, m: int, n: int, value_size: int) -> int:
    """Return the number of workgroups that share the keys of one query; the second pass must pay for its call."""
    if not isinstance(target.costs, WorkgroupCosts) or m > FEW_ROWS:
        return 1
    costs = target.costs.attention
    whole = n * 2 * 4 * value_size * costs.byte
    free = 2 * target.busy_workgroups // max(batch * m, 1)

    def cost(parts: int) -> float:
        return whole / parts + (costs.merge + costs.merge_part * parts if parts > 1 else 0.0)

    return min(range(1, max(min(free, costs.parts), 1) + 1), key=cost)


def attention_reason(target: Target, m: int) -> str | None:
    """Return the reason why the target is faster with separate kernels for ``m`` queries; None if it is not."""
    if target.max_attention_queries is not None and m > target.max_attention_queries:
        return "a software driver is faster with products of their own: workgroup memory is expensive"
    return None
