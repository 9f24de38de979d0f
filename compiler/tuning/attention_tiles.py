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
#: Vectors of queries that a thread can keep in registers, and those that a software driver keeps on its stack
_QUERY_VECTORS, _SOFTWARE_VECTORS = 32, 64
#: Threads that share a key, at most, and the vectors that are left for each, at least
_ACROSS, _OWN_VECTORS = 8, 2
#: Vectors of keys that a thread fetches at once, and of values as many
_FETCHED_VECTORS = 8
#: Queries that teams of threads have, at most: they keep a sum for each
_STREAM_ROWS = 4
#: Vectors of a key that each of their threads has, best: with more, fewer workgroups have registers
_STREAM_VECTORS = 2
#: Bytes of keys and values, counted once for each query, that a GPU's cache delivers in less time than a shared
#: workgroup takes to compute with them
_CACHED_BYTES = 16 << 20


@record
class TileAttention:
    """A workgroup has ``rows * down`` queries and walks the keys in tiles of ``keys``.

    ``across`` threads share a row: each computes the scores of ``keys / across`` keys of a tile, then every
    ``across``-th vector of the result.  Queries, a tile of keys (then values) and the scores are in workgroup memory.
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
    def queries(self) -> int:
        """Queries of a workgroup."""
        return self.rows * self.down

    def workgroup_bytes(self, key_vectors: int, value_vectors: int) -> int:
        stride = max(key_vectors, value_vectors) + 1
        return 16 * (self.queries * key_vectors + self.keys * stride) + 4 * self.queries * (self.keys + 1)


@record
class RowAttention:
    """A workgroup has ``rows`` queries that share keys and values, and walks the keys in tiles.

    ``across`` threads share a key: each multiplies every ``across``-th vector of it.  A thread takes ``keys`` keys of a
    tile.  Then the threads share the vectors of the result and, in slices, the keys of the tile.

    ``registers``: each thread keeps its vectors of the queries to itself, rather than in workgroup memory alone.
    ``ahead``: it fetches its values of a tile with its keys, before the scores are known.
    """

    threads: int
    rows: int = 1
    across: int = 1
    keys: int = 1
    registers: bool = False
    ahead: bool = False

    def __post_init__(self) -> None:
        if self.threads & (self.threads - 1) or not 8 <= self.threads <= 256:
            raise ValueError(f"a workgroup of {self.threads} threads")
        if self.across & (self.across - 1) or not 1 <= self.across <= self.threads:
            raise ValueError(f"{self.across} of {self.threads} threads share a key")
        if not 1 <= self.rows <= MOST_ROWS or not 1 <= self.keys <= 8:
            raise ValueError(f"{self.rows} rows, {self.keys} keys of a thread")

    @property
    def tile_keys(self) -> int:
        """Keys of a tile."""
        return self.threads // self.across * self.keys

    @property
    def pitch(self) -> int:
        """Partial products from one of the threads that share a key to the next: other banks for neighbours."""
        return self.threads // self.across + max(32 // self.across, 1)

    @property
    def pieces(self) -> int:
        """Parts of a tile whose highest scores are found first; 1: each thread looks at the whole tile."""
        return 8 if self.tile_keys >= 32 else 1

    def partials(self) -> int:
        """Return the number of partial products in workgroup memory."""
        return self.rows * self.keys * self.across * self.pitch if self.across > 1 else 0

    def workgroup_bytes(self, key_vectors: int, value_vectors: int) -> int:
        vectors = self.rows * key_vectors + self.threads
        numbers = self.partials() + self.rows * (self.tile_keys + self.pieces) + self.threads
        return 16 * vectors + 4 * numbers + 8


@record
class StreamAttention:
    """A workgroup has ``rows`` queries that share keys and values, of which teams of ``across`` threads take ``keys``
    at a time.

    The threads of a team are neighbours in a subgroup; each has every ``across``-th vector of a key and of a value.
    ``merged`` neighbouring teams are in one subgroup, too.  ``ahead``: the next keys and values are fetched before
    these are attended.
    """

    threads: int
    rows: int
    across: int
    keys: int
    merged: int = 1
    ahead: bool = False

    def __post_init__(self) -> None:
        if self.threads & (self.threads - 1) or not 8 <= self.threads <= 256:
            raise ValueError(f"a workgroup of {self.threads} threads")
        if self.across & (self.across - 1) or not 2 <= self.across <= min(self.threads, 32):
            raise ValueError(f"{self.across} of {self.threads} threads share a key")
        if self.merged & (self.merged - 1) or not 1 <= self.merged <= self.teams:
            raise ValueError(f"{self.merged} of {self.teams} teams in a subgroup")
        if not 1 <= self.rows <= MOST_ROWS or not 1 <= self.keys <= 8:
            raise ValueError(f"{self.rows} rows, {self.keys} keys of a thread")

    @property
    def teams(self) -> int:
        return self.threads // self.across

    @property
    def tile_keys(self) -> int:
        """Keys of all teams at a time."""
        return self.teams * self.keys

    @property
    def exchanges(self) -> tuple[int, ...]:
        """Distances of the threads that exchange their sums, one after another."""
        return tuple(1 << step for step in range(self.across.bit_length() - 1))

    @property
    def merges(self) -> tuple[int, ...]:
        """Distances of the threads of teams that are added, one after another."""
        return tuple(self.across << step for step in range(self.merged.bit_length() - 1))

    def workgroup_bytes(self, key_vectors: int, value_vectors: int) -> int:
        ends = self.teams // self.merged
        return 16 * (self.rows * key_vectors + ends * value_vectors + self.threads) + 8 * ends + 8


@record
class BlockAttention:
    """A workgroup has ``rows * down`` queries and walks the keys in tiles of four for each of ``across`` threads.

    These are neighbours in a subgroup and share ``rows`` queries: each computes the scores of its keys, then every
    ``across``-th vector of the result.  Queries, the powers of a tile and its keys (then values) are in workgroup
    memory; the latter ``packed``, as halves.
    """

    rows: int
    across: int
    down: int
    packed: bool = False

    def __post_init__(self) -> None:
        if self.across & (self.across - 1) or not 2 <= self.across <= 32:
            raise ValueError(f"{self.across} threads share a query")
        if not 1 <= self.rows <= 8 or not 8 <= self.threads <= 256:
            raise ValueError(f"{self} has {self.threads} threads")

    @property
    def threads(self) -> int:
        return self.across * self.down

    @property
    def queries(self) -> int:
        """Queries of a workgroup."""
        return self.rows * self.down

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return LANES * self.across

    @property
    def exchanges(self) -> tuple[int, ...]:
        """Distances of the threads that exchange what they have, one after another."""
        return tuple(1 << step for step in range(self.across.bit_length() - 1))

    def workgroup_bytes(self, key_vectors: int, value_vectors: int) -> int:
        tile = self.keys * (max(key_vectors, value_vectors) + 1)
        return 16 * self.queries * (key_vectors + self.across + 1) + (8 if self.packed else 16) * tile + 8


AttentionTile = TileAttention | BlockAttention | RowAttention | StreamAttention

_TILES = (
    TileAttention(4, 16, 8, 32),
    TileAttention(4, 16, 8, 16),
    TileAttention(2, 16, 8, 32),
    TileAttention(2, 16, 8, 16),
    TileAttention(1, 16, 8, 16),
    TileAttention(1, 8, 8, 8),
    TileAttention(1, 4, 8, 4),
)
#: Queries of a thread, threads that share them, and sets of such threads, the largest blocks first
_BLOCKS = ((8, 16, 8), (4, 16, 8), (4, 8, 8), (2, 16, 8), (2, 8, 8), (4, 4, 16))


@record
class AttentionProblem:
    """``batch`` heads of ``m`` rows, those of ``groups`` heads of queries, and ``n`` keys.

    Sizes of dynamic dimensions are upper bounds.  ``element`` is the number of bytes of an element of keys and values.
    """

    batch: int
    m: int
    n: int
    key_size: int
    value_size: int
    groups: int = 1
    element: int = 4
    new: int = 0  #: rows of keys and values that a workgroup computes first, and keeps
    packed: bool = False  #: whether keys and values are read from halves as they are

    @property
    def has_few_rows(self) -> bool:
        return self.m <= FEW_ROWS * self.groups

    @property
    def new_bytes(self) -> int:
        """Bytes of workgroup memory that new rows take."""
        return 16 * self.new * (ceil(self.key_size / LANES) + ceil(self.value_size / LANES))

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values of one head."""
        return self.n * (self.key_size + self.value_size) * self.element

    @property
    def is_long(self) -> bool:
        """Whether keys and values are more than a cache serves each query with."""
        return self.batch * self.m * self.bytes > _CACHED_BYTES

    def rows(self, target: Target) -> int:
        """Return the rows of a workgroup for few queries: those that share keys, unless a cache serves each of them."""
        if target.uses_workgroup_memory and not self.is_long:
            return 1
        most = MOST_ROWS
        if not target.uses_workgroup_memory:  # more queries in registers take it seconds to compile
            most = max(min(_SOFTWARE_VECTORS // max(ceil(self.key_size / LANES), 1), MOST_ROWS // 2), 1)
        return ceil(self.m / ceil(self.m / most)) if self.m else 1


def attention_tiles(target: Target, problem: AttentionProblem) -> list[AttentionTile]:
    """Return the form that a rule chooses, then all others that the device can run."""
    vectors = ceil(problem.key_size / LANES), ceil(problem.value_size / LANES)
    memory = target.limit("max-compute-workgroup-storage-size") - problem.new_bytes
    candidates: list[AttentionTile]
    if problem.has_few_rows or not target.uses_workgroup_memory:
        candidates = [*_row_tiles(target, problem, *vectors)]
        streams = _stream_tiles(target, problem, *vectors)
        candidates = [*streams, *candidates] if problem.is_long else [*candidates, *streams]
    else:
        blocks = _block_tiles(target, problem, vectors, memory)
        busy = [tile for tile in blocks if problem.batch * ceil(problem.m / tile.queries) >= target.busy_workgroups]
        candidates = [*busy, _best_tile(target, problem.batch, problem.m, vectors, memory), *blocks, *_TILES]
    return [tile for tile in dict.fromkeys(candidates) if tile.workgroup_bytes(*vectors) <= memory] or candidates[:1]


def fits(target: Target, problem: AttentionProblem) -> bool:
    """Return whether the device has workgroup memory for some form."""
    tile = attention_tiles(target, problem)[0]
    vectors = ceil(problem.key_size / LANES), ceil(problem.value_size / LANES)
    limit = target.limit("max-compute-workgroup-storage-size")
    return tile.workgroup_bytes(*vectors) + problem.new_bytes <= limit


def _best_tile(target: Target, batch: int, m: int, vectors: tuple[int, int], memory: int) -> TileAttention:
    fitting = [tile for tile in _TILES if tile.workgroup_bytes(*vectors) <= memory]
    busy = [tile for tile in fitting if batch * ceil(m / tile.queries) >= target.busy_workgroups]
    if busy:
        return busy[0]
    return next(tile for tile in fitting if tile.queries == min(16, fitting[0].queries)) if fitting else _TILES[-1]


def _block_tiles(
    target: Target, problem: AttentionProblem, vectors: tuple[int, int], memory: int
) -> list[BlockAttention]:
    """Return forms whose threads exchange scores in subgroups, the largest first: none where nothing is known of these.

    Few blocks leave a device idle, and were not measured; tiles have smaller forms for that.
    """
    if not target.has_feature("subgroup") or not problem.key_size:
        return []
    tiles = [
        BlockAttention(*sizes, problem.packed)
        for sizes in _BLOCKS
        if sizes[1] <= min(target.neighbours, vectors[1]) and sizes[1] * sizes[2] <= target.max_workgroup_threads
    ]
    return [tile for tile in tiles if tile.workgroup_bytes(*vectors) <= memory]


def _row_tiles(target: Target, problem: AttentionProblem, key_vectors: int, value_vectors: int) -> list[RowAttention]:
    """Return forms for few queries, the best first."""
    rows = problem.rows(target)
    threads = _row_threads(target, problem.n, value_vectors)
    if not target.uses_workgroup_memory:
        return [_row_tile(threads * 2**k, r, 1, 1, key_vectors) for k in (0, 1) for r in (rows, ceil(rows / 2))]
    across = 1
    while across < _ACROSS and across * 2 * _OWN_VECTORS <= key_vectors:
        across *= 2
    own = max(ceil(key_vectors / across), 1)
    return [
        _row_tile(count, taken, across, keys, key_vectors, ahead=taken == 1)
        for count in (threads, threads // 2, threads * 2)
        for taken in dict.fromkeys((rows, ceil(rows / 2), 1))
        for keys in dict.fromkeys((max(min(_FETCHED_VECTORS // own, 4), 1) if taken == 1 else 1, 2, 1))
        if max(8, value_vectors, across) <= count <= target.max_workgroup_threads
    ]


def _stream_tiles(
    target: Target, problem: AttentionProblem, key_vectors: int, value_vectors: int
) -> list[StreamAttention]:
    """Return forms whose teams exchange sums in subgroups, the best first: none where nothing is known of these."""
    if not target.uses_workgroup_memory or not target.has_feature("subgroup") or not problem.key_size:
        return []
    if problem.key_size % LANES or problem.value_size % LANES:
        return []
    rows = ceil(problem.m / ceil(problem.m / _STREAM_ROWS)) if problem.is_long else 1
    return [
        StreamAttention(threads, rows, across, keys, target.neighbours // across, ahead)
        for threads in (128, 256)
        for across in sorted((4, 8, 16), key=lambda across: abs(key_vectors // across - _STREAM_VECTORS))
        for keys in (2, 4, 1)
        for ahead in (True, False)
        if across <= target.neighbours
        and key_vectors % across == value_vectors % across == 0
        and threads % value_vectors == 0
        and threads <= target.max_workgroup_threads
    ]


def _row_tile(
    threads: int, rows: int, across: int, keys: int, key_vectors: int, *, ahead: bool = False
) -> RowAttention:
    most = _QUERY_VECTORS if across > 1 else _SOFTWARE_VECTORS
    return RowAttention(threads, rows, across, keys, rows * ceil(key_vectors / across) <= most, ahead)


def _row_threads(target: Target, n: int, value_vectors: int) -> int:
    """Return the threads for each row: few where barriers are expensive, but at least one for each vector of values."""
    threads = target.group_threads
    most = target.max_workgroup_threads if target.has_cheap_barriers else threads
    while threads < value_vectors or (threads < most and threads < n):
        threads *= 2
    return threads


def attention_parts(target: Target, problem: AttentionProblem) -> int:
    """Return the number of workgroups that share the keys of one query; the second pass must pay for its call."""
    if not isinstance(target.costs, WorkgroupCosts) or not problem.has_few_rows:
        return 1
    costs = target.costs.attention
    rows = _STREAM_ROWS if problem.is_long else problem.rows(target)
    whole = problem.bytes * costs.byte
    free = 2 * target.busy_workgroups // max(problem.batch * ceil(problem.m / rows), 1)
    if problem.is_long and free > 1:  # twice as many workgroups hide the loads, and share what memory delivers
        free, whole = 2 * free, 2 * whole

    def cost(parts: int) -> float:
        return whole / parts + (costs.merge + costs.merge_part * parts if parts > 1 else 0.0)

    return min(range(1, max(min(free, costs.parts), 1) + 1), key=cost)


def attention_reason(target: Target, m: int, scores: int) -> str | None:
    """Return the reason why the target is faster with separate kernels for ``m`` queries; None if it is not.

    Their scores take ``scores`` bytes, which the device must be able to bind.
    """
    is_slow = target.max_attention_queries is not None and m > target.max_attention_queries
    if is_slow and scores <= target.limit("max-storage-buffer-binding-size"):
        return "a software driver is faster with products of their own: workgroup memory is expensive"
    return None
