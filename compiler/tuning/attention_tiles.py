"""Tile configurations of attention kernels: legality, and which one a target runs best."""

from __future__ import annotations

from math import ceil

from ...runtime.plan.record import record
from ..symbolic.lanes import LANES
from ..target import Target, WorkgroupCosts

#: Queries of a head that are so few that a workgroup has no tile of them
FEW_ROWS = 4
#: Queries that share keys and values in one workgroup, at most
MOST_ROWS = 8
#: Vectors of queries that a thread can keep in registers
_QUERY_VECTORS = 32
#: Threads that share a key, at most, and the vectors that are left for each, at least
_ACROSS, _OWN_VECTORS = 8, 2


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
    """A workgroup has ``rows`` queries that share keys and values, and walks the keys in blocks.

    ``across`` threads share a key: each multiplies every ``across``-th vector of it.  A thread takes ``keys`` keys of a
    block.  Then the threads share the vectors of the result and, in slices, the keys of the block.

    ``registers``: each thread keeps its vectors of the queries to itself, rather than in workgroup memory alone.
    """

    threads: int
    rows: int = 1
    across: int = 1
    keys: int = 1
    registers: bool = False

    def __post_init__(self) -> None:
        if self.threads & (self.threads - 1) or not 8 <= self.threads <= 256:
            raise ValueError(f"a workgroup of {self.threads} threads")
        if self.across & (self.across - 1) or not 1 <= self.across <= self.threads:
            raise ValueError(f"{self.across} of {self.threads} threads share a key")
        if not 1 <= self.rows <= MOST_ROWS or not 1 <= self.keys <= 8:
            raise ValueError(f"{self.rows} rows, {self.keys} keys of a thread")

    @property
    def block(self) -> int:
        """Keys of a block."""
        return self.threads // self.across * self.keys

    @property
    def pitch(self) -> int:
        """Partial products from one of the threads that share a key to the next: other banks for neighbours."""
        return self.threads // self.across + max(32 // self.across, 1)

    @property
    def pieces(self) -> int:
        """Parts of a block whose highest scores are found first; 1: each thread looks at the whole block."""
        return 8 if self.block >= 32 else 1

    def partials(self) -> int:
        """Return the number of partial products in workgroup memory."""
        return self.rows * self.keys * self.across * self.pitch if self.across > 1 else 0

    def workgroup_bytes(self, key_vectors: int, value_vectors: int) -> int:
        vectors = self.rows * key_vectors + self.threads
        numbers = self.partials() + self.rows * (self.block + self.pieces) + self.threads
        return 16 * vectors + 4 * numbers + 8


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


def attention_tiles(
    target: Target, batch: int, m: int, n: int, key_size: int, value_size: int, groups: int = 1
) -> list[AttentionTile]:
    """Return the form that a rule chooses, then all others that the device can run.

    The problem is ``batch`` heads of ``m`` rows, those of ``groups`` heads of queries, and ``n`` keys; sizes of dynamic
    dimensions are upper bounds.
    """
    vectors = ceil(key_size / LANES), ceil(value_size / LANES)
    memory = target.limit("max-compute-workgroup-storage-size")
    candidates: list[AttentionTile]
    if m <= FEW_ROWS * groups:
        candidates = [*_row_tiles(target, m, n, *vectors)]
    else:
        candidates = [_best_tile(target, batch, m, vectors, memory), *_TILES]
    return [tile for tile in dict.fromkeys(candidates) if tile.workgroup_bytes(*vectors) <= memory] or candidates[:1]


def _best_tile(target: Target, batch: int, m: int, vectors: tuple[int, int], memory: int) -> TileAttention:
    fitting = [tile for tile in _TILES if tile.workgroup_bytes(*vectors) <= memory]
    busy = [tile for tile in fitting if batch * ceil(m / tile.block) >= target.busy_workgroups]
    if busy:
        return busy[0]
    return next(tile for tile in fitting if tile.block == min(16, fitting[0].block)) if fitting else _TILES[-1]


def _row_tiles(target: Target, m: int, n: int, key_vectors: int, value_vectors: int) -> list[RowAttention]:
    """Return forms for few queries, the best first."""
    rows = ceil(m / ceil(m / MOST_ROWS)) if m else 1
    threads = _row_threads(target, n, value_vectors)
    across = 1
    if target.uses_workgroup_memory:
        while across < _ACROSS and across * 2 * _OWN_VECTORS <= key_vectors:
            across *= 2
    forms = [
        (count, taken, shared)
        for count in (threads, threads // 2, threads * 2)
        for taken in (rows, ceil(rows / 2))
        for shared in dict.fromkeys((across, max(across // 2, 1)))
        if max(8, value_vectors) <= count <= target.max_workgroup_threads and shared <= count
    ]
    return [
        RowAttention(count, taken, shared, 1, taken * ceil(key_vectors / shared) <= _QUERY_VECTORS)
        for count, taken, shared in forms
    ]


def _row_threads(target: Target, n: int, value_vectors: int) -> int:
    """Return the threads for each row: few where barriers are expensive, but at least one for each vector of values."""
    threads = target.group_threads
    most = target.max_workgroup_threads if target.has_cheap_barriers else threads
    while threads < value_vectors or (threads < most and threads < n):
        threads *= 2
    return threads


def attention_parts(
    target: Target, batch: int, m: int, n: int, value_size: int, *, groups: int = 1, element: int = 4
) -> int:
    """Return the number of workgroups that share the keys of one query; the second pass must pay for its call.

    ``element`` is the number of bytes of an element of keys and values.
    """
    if not isinstance(target.costs, WorkgroupCosts) or m > FEW_ROWS * groups:
        return 1
    costs = target.costs.attention
    whole = n * 2 * element * value_size * costs.byte
    free = 2 * target.busy_workgroups // max(batch * ceil(m / MOST_ROWS), 1)

    def cost(parts: int) -> float:
        return whole / parts + (costs.merge + costs.merge_part * parts if parts > 1 else 0.0)

    return min(range(1, max(min(free, costs.parts), 1) + 1), key=cost)


def attention_reason(target: Target, m: int) -> str | None:
    """Return the reason why the target is faster with separate kernels for ``m`` queries; None if it is not."""
    if target.max_attention_queries is not None and m > target.max_attention_queries:
        return "a software driver is faster with products of their own: workgroup memory is expensive"
    return None
