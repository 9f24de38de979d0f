"""Row programs: reductions, softmax and normalisations in one kernel.

A row program is a list of phases, each a reduction of a row to one register whose elements may use the registers before
it, then one store per row or one per element.  Three variants of one scheme:

``serial``      a thread walks a whole row (or four neighbouring rows, one per lane);
``workgroup``   ``strips`` threads share a row, combine their parts as a tree in workgroup memory, and the threads of a
                workgroup cover ``rows`` such rows;
``words``       for packed results whose words cross rows: a thread owns one word and reduces the row of each of its
                elements.

Sums are added up in several parts and in blocks, so that errors grow with the logarithm of a row rather than its
length.  The order of additions depends on the configuration alone: results are reproducible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ....runtime.plan.dtypes import DType
from ....runtime.plan.errors import UnsupportedError
from ...codegen.spec import Hook, Store
from ...codegen.types import VECTOR_TYPES, WGSL_TYPES
from ...ir.coordinates import Sizes, domain_variables
from ...ir.graph import Node, Shape, Value
from ...ops.checks import wrap
from ...ops.internal.reduction import identity, reduce_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ...target import Target
from ...tuning.config_choice import problem_key
from ..config_key import extent, loaded_types
from ..context import GroupContext
from ..draft import Built, Draft
from ..family import KernelFamily, OverflowFlags, Reuse, extremum_overflow, register_family
from ..geometry import lanes_of, linear_grid, unflatten
from ..groups import Region
from ..loop_trips import filter_by_trips, upper_bound
from ..results import Phase
from .register_reuse import Kept, RowProgram, keep_shared
from .rows import Rows, exit_to_domain, memory_order

#: Elements that one partial sum adds up before it joins the total
BLOCK = 128
#: Partial results that a thread keeps apart
PARTIALS = 4
#: Steps of a thread along a row that may be written out rather than counted
MOST_STEPS = 16
#: Steps of a thread that take no longer than a workgroup needs to start
_FEW_STEPS = 12
_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "max_number": "max_number"}


@dataclass(frozen=True, slots=True)
class ReduceConfig:
    """``rows`` x ``strips`` threads form a workgroup; ``block`` columns of a thread make a partial sum (0: all).

    ``steps``, if not 0, is how many columns every thread has: no thread has fewer.
    """

    variant: str
    rows: int
    strips: int
    row_lanes: int = 1
    column_lanes: int = 1
    partials: int = PARTIALS
    block: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        if self.steps and (self.variant != "workgroup" or self.block or not 1 <= self.steps <= MOST_STEPS):
            raise ValueError(f"{self.steps} steps cannot be written out")
        if self.variant not in ("serial", "workgroup", "words"):
            raise ValueError(f"unknown variant {self.variant!r}")
        if self.strips & (self.strips - 1) or self.strips < 1 or (self.strips > 1) != (self.variant == "workgroup"):
            raise ValueError(f"strips must be a power of two, and 1 unless a workgroup shares rows, not {self.strips}")
        if not 1 <= self.rows * self.strips <= 256:
            raise ValueError(f"a workgroup of {self.rows} x {self.strips} threads")
        if self.row_lanes * self.column_lanes not in (1, LANES):
            raise ValueError("lanes run along rows or along columns")
        if self.partials not in (1, 2, 4) or self.block % self.partials:
            raise ValueError(f"{self.partials} partial results in blocks of {self.block}")


@dataclass(frozen=True, slots=True)
class KeptShape:
    """A value in registers as a template sees it: its name and WGSL type, and the others that it is computed from."""

    name: str
    type: str
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PhaseShape:
    """A phase as a template sees it: WGSL types of a partial result and of the register, and how to finish it."""

    name: str
    partial: str
    type: str
    element: str  #: compute type, names its workgroup array
    wraps: bool
    kept: tuple[KeptShape, ...] = ()  #: what this phase computes and keeps for later ones
    uses: tuple[str, ...] = ()  #: kept values that an element of this phase is made of


@dataclass(frozen=True, slots=True)
class Walk:
    """The iteration of threads over the domain: its rows, and the lanes along rows and along columns."""

    rows: Rows
    row_lanes: int
    column_lanes: int

    @property
    def lanes(self) -> int:
        return max(self.row_lanes, self.column_lanes)

    @property
    def threads(self) -> Dim:
        """Rows, or groups of rows."""
        return ix.product(self.rows.row_sizes(self.row_lanes)) if self.rows.row_axes else 1

    @property
    def columns(self) -> Dim:
        """Steps along a row."""
        return ix.ceildiv(self.rows.columns, self.column_lanes)


def _build(context: GroupContext) -> Built:
    """Build the kernel of a reduction with its fused consumers."""
    region = context.group.region
    assert region is not None
    phases, store, walk = _walk(context)
    rows, threads, columns = walk.rows, walk.threads, walk.columns
    if context.group.output.dtype.packing > 1 and not _owns_words(context, walk):
        return _build_words(context, rows, 1, walk.column_lanes if walk.row_lanes == 1 else 1)
    config = _choose(context, walk, phases, store)
    stores_row = context.results.exit_is_row
    phases, store = context.results.row_program(rows.coordinates(walk.row_lanes, walk.column_lanes))
    work = _work(phases, store, stores_row)
    program = RowProgram(phases, store)
    if config.steps:
        program = keep_shared(phases, store, stores_row, config.steps, walk.lanes)
    serial = config.variant == "serial"
    size = config.rows * config.strips
    shapes = _shapes(context, program, walk.row_lanes, walk.column_lanes)
    parts = sum({shape.element: size * _bytes(shape.type) for shape in shapes}.values())
    used = () if stores_row else tuple(kept.name for kept in program.used(program.store.value))
    return context.built(
        Draft(
            "reduce_serial" if serial else "reduce_workgroup",
            config,
            _hooks(context, walk, program),
            dims={"rows": threads, "columns": columns},
            workgroup=(size, 1, 1),
            grid=linear_grid(ix.ceildiv(threads, config.rows), 1, context.target),
            rounds=_rounds(config, columns, len(phases), 0 if stores_row else 1),
            calls=-(-upper_bound(columns) // config.strips),
            workgroup_bytes=0 if serial else parts,
            flops=ix.multiply(ix.product(region.domain), work),
            parameters={
                "phases": shapes,
                "store_uses": used,
                "row_names": _row_names(rows),
                "stores_row": stores_row,
                "columns_are_contiguous": rows.columns_are_contiguous,
                "halves": tuple(1 << level for level in reversed(range(config.strips.bit_length() - 1))),
            },
        )
    )


def _choose(context: GroupContext, walk: Walk, phases: Sequence[Phase], store: Store) -> ReduceConfig:
    """Choose the workgroup for the walk of a row program."""
    rows, threads, columns = walk.rows, walk.threads, walk.columns
    stores_row = context.results.exit_is_row
    key = problem_key(
        "reduce",
        rows=extent(threads),
        columns=extent(columns),
        lanes=f"{walk.row_lanes}x{walk.column_lanes}",
        contiguous=int(rows.columns_are_contiguous),
        phases="+".join(phase.kind for phase in phases),
        a=loaded_types(*(phase.value for phase in phases)),
        y=context.group.output.dtype.name,
        stores="row" if stores_row else "element",
        loads=len(ex.loads(store.value)),
    )
    shape = (threads, columns, rows.columns_are_contiguous, walk.row_lanes, walk.column_lanes)
    possible = filter_by_trips(
        context.target,
        configurations(context.target, *shape),
        lambda each: _rounds(each, columns, len(phases), 0 if stores_row else 1),
    )
    return context.choose(key, possible)


def _hooks(context: GroupContext, walk: Walk, program: RowProgram) -> list[Hook]:
    """Return the hooks for the coordinates of a row, for the phases, and for the store of a row or of an element."""
    names = _row_names(walk.rows)
    types = _register_types(program.phases, walk.row_lanes)
    hooks = [
        *_row_hooks(walk.rows, walk.row_lanes),
        *_phase_hooks(context, program, names, types, walk.row_lanes, walk.column_lanes),
    ]
    if context.results.exit_is_row:
        return [*hooks, Hook("store", names, walk.row_lanes, types, None, (program.store,))]
    registers = (*types, *_kept_types(program.used(program.store.value), walk.lanes))
    return [*hooks, Hook("store", (*names, "column"), walk.lanes, registers, None, (program.store,))]


def _walk(context: GroupContext) -> tuple[list[Phase], Store, Walk]:
    """Return the row program at the variables of its domain, and how threads walk it."""
    region = context.group.region
    assert region is not None
    phases, store = context.results.row_program(domain_variables(region.domain))
    order = memory_order([phase.value for phase in phases], region.domain)
    rows = Rows.split(region.domain, context.anchor.attributes.axes, order)
    return phases, store, Walk(rows, *_lanes(context, rows))


def _rounds(config: ReduceConfig, columns: Dim, phases: int, stores: int) -> int:
    """Return the trip count of a thread that walks its columns once for each phase, and ``stores`` times for stores."""
    steps = -(-upper_bound(columns) // config.strips)
    blocks = -(-steps // config.block) if config.block else 1
    return phases * (steps // config.partials + blocks * (config.partials + 1)) + stores * steps


def choose(
    target: Target, rows: Dim, columns: Dim, columns_are_contiguous: bool, row_lanes: int, column_lanes: int
) -> ReduceConfig:
    """Return the configuration for ``rows`` threads of rows (or groups of rows) and ``columns`` steps each."""
    return configurations(target, rows, columns, columns_are_contiguous, row_lanes, column_lanes)[0]


def configurations(
    target: Target, rows: Dim, columns: Dim, columns_are_contiguous: bool, row_lanes: int, column_lanes: int
) -> list[ReduceConfig]:
    """Return the configuration that a rule chooses, then the others of the same scheme with other workgroup sizes."""
    many, long = max(ix.bounds(rows)[1], 1), max(ix.bounds(columns)[1], 1)
    best = share(target, many, long, columns_are_contiguous)
    widest = min(_power_of_two_above(many), 64)
    limit = min(256, target.limit("max-compute-invocations-per-workgroup"))
    others = [
        (row_count, strips)
        for strips in (1, 8, 16, 32, 64, 128, 256)
        for row_count in (1, 2, 4, 8, 16, 32, 64)
        if row_count <= widest and strips < 2 * long and 8 <= row_count * strips <= limit
    ]

    def distance(shared: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        return sum(abs(one.bit_length() - other.bit_length()) for one, other in zip(shared, best)), shared

    return [
        _configuration(target, columns, long, shared, row_lanes, column_lanes)
        for shared in (best, *sorted((each for each in others if each != best), key=distance))
    ]


def _configuration(
    target: Target, columns: Dim, long: int, shared: tuple[int, int], row_lanes: int, column_lanes: int
) -> ReduceConfig:
    row_count, strips = shared
    steps = -(-long // strips)
    block = BLOCK * PARTIALS if steps > 2 * BLOCK * PARTIALS else 0
    if strips == 1:
        return ReduceConfig("serial", row_count, strips, row_lanes, column_lanes, PARTIALS, block)
    even = target.prefers_written_out_loops and columns == strips * steps and steps <= MOST_STEPS
    return ReduceConfig("workgroup", row_count, strips, row_lanes, column_lanes, PARTIALS, block, steps if even else 0)


def share(target: Target, rows: int, columns: int, columns_are_contiguous: bool) -> tuple[int, int]:
    """Return the rows that a workgroup covers, and the threads that share one of them (a power of two)."""
    widest = _power_of_two_above(rows)
    if not target.has_cheap_barriers:  # only where there are too few rows for all cores
        return (min(16, widest), 1) if rows >= 16 or columns < 64 else (1, 64)
    # neighbouring threads take neighbouring rows where those are neighbours in memory
    row_count = 1 if columns_are_contiguous else min(32, widest)
    while row_count > 1 and rows < row_count * target.busy_workgroups and columns * row_count > 256 * _FEW_STEPS:
        row_count //= 2  # few long rows (the pool of a whole picture): more workgroups, each with more threads a row
    strips = 1
    while strips * row_count < 256 and 4 * strips < columns and (rows * strips < 1 << 16 or row_count * strips < 32):
        strips *= 2
    return max(row_count, min(64 // strips, widest)), strips


def _power_of_two_above(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


# -- lanes -----------------------------------------------------------------------------------------------------------


def _lanes(context: GroupContext, rows: Rows) -> tuple[int, int]:
    """Return the lanes along rows and along columns: four where memory and types allow it."""
    if rows.innermost < 0:
        return 1, 1
    if rows.columns_are_contiguous:
        chosen = (1, LANES)
        divisible = ix.modulo(rows.columns, LANES) == 0
    else:
        chosen = (LANES, 1)
        divisible = ix.modulo(rows.domain[rows.innermost], LANES) == 0
    if not divisible:
        return 1, 1
    phases, store = context.results.row_program(rows.coordinates(*chosen))
    values = [phase.value for phase in phases]
    if not context.results.exit_is_row:
        values.append(store.value)
    if any(value.dtype not in VECTOR_TYPES for value in values) or not all(map(context.operands.vectorizes, values)):
        return 1, 1
    return chosen


def _owns_words(context: GroupContext, walk: Walk) -> bool:
    """Return whether every store of four lanes is one run of a packed result."""
    if walk.row_lanes != LANES and (context.results.exit_is_row or walk.column_lanes != LANES):
        return False
    return context.results.is_run(walk.rows.coordinates(walk.row_lanes, walk.column_lanes))


# -- hooks -----------------------------------------------------------------------------------------------------------


def _row_names(rows: Rows) -> tuple[str, ...]:
    return tuple(f"row_{i}" for i in range(len(rows.row_axes)))


def _row_hooks(rows: Rows, row_lanes: int) -> list[Hook]:
    return [
        Hook(f"find_{name}", ("row",), 1, (), value)
        for name, value in zip(_row_names(rows), rows.row_coordinates(row_lanes), strict=True)
    ]


def _register_types(phases: list[Phase], row_lanes: int) -> tuple[tuple[str, str], ...]:
    return tuple((phase.name, _type(phase.value.dtype, row_lanes)) for phase in phases)


def _type(compute: str, lanes: int) -> str:
    return f"vec4<{WGSL_TYPES[compute]}>" if lanes == LANES else WGSL_TYPES[compute]


def _bytes(wgsl_type: str) -> int:
    return 16 if wgsl_type.startswith("vec4") else 8 if wgsl_type.startswith("vec2") else 4


def _kept_types(kept: Iterable[Kept], lanes: int) -> tuple[tuple[str, str], ...]:
    return tuple((item.name, _type(item.value.dtype, lanes)) for item in kept)


def _phase_hooks(
    context: GroupContext,
    program: RowProgram,
    row_names: tuple[str, ...],
    types: tuple[tuple[str, str], ...],
    row_lanes: int,
    column_lanes: int,
) -> list[Hook]:
    """Return the hooks of each phase.

    They are: values for later phases, an element, the combination of partial results, the initial value, and the last
    step if the type wraps.
    """
    lanes = max(row_lanes, column_lanes)
    where = (*row_names, "column")
    hooks = []
    for number, phase in enumerate(program.phases):
        dtype = _dtype(context, number)
        start = ex.const(identity(phase.kind, dtype), phase.value.dtype)
        for kept in program.kept_by(number):
            registers = (*types[:number], *_kept_types(program.used(kept.value), lanes))
            hooks.append(Hook(f"keep_{kept.name}", where, lanes, registers, kept.value))
        registers = (*types[:number], *_kept_types(program.used(phase.value), lanes))
        hooks.append(Hook(f"phase_{phase.name}", where, lanes, registers, phase.value))
        hooks.append(Hook(f"initial_{phase.name}", (), 1, (), start))
        hooks += combine_hooks(f"{phase.name}", _COMBINE[phase.kind], phase.value.dtype, row_lanes, column_lanes)
        if _wraps(phase, dtype):
            last = wrap(ex.register("value", phase.value.dtype), dtype)
            hooks.append(Hook(f"finish_{phase.name}", (), row_lanes, (("value", types[number][1]),), last))
    return hooks


def combine_hooks(name: str, operation: str, compute: str, row_lanes: int, column_lanes: int) -> list[Hook]:
    """Return the hooks ``combine_NAME`` of two partial results and ``join_NAME`` of four lanes along a row."""
    result = ex.binary(operation, ex.register("left", compute), ex.register("right", compute))
    lanes = max(row_lanes, column_lanes)
    both = tuple((side, _type(compute, lanes)) for side in ("left", "right"))
    hooks = [Hook(f"combine_{name}", (), lanes, both, result)]
    if column_lanes == LANES:
        both = tuple((side, _type(compute, 1)) for side in ("left", "right"))
        hooks.append(Hook(f"join_{name}", (), 1, both, result))
    return hooks


def _dtype(context: GroupContext, number: int) -> DType:
    region = context.group.region
    assert region is not None
    return region.reductions[number].operand(0).dtype


def _wraps(phase: Phase, dtype: DType) -> bool:
    return phase.kind in ("sum", "prod") and dtype.is_integer and dtype.bits < 32


def _shapes(context: GroupContext, program: RowProgram, row_lanes: int, column_lanes: int) -> tuple[PhaseShape, ...]:
    lanes = max(row_lanes, column_lanes)

    def names(value: Expr) -> tuple[str, ...]:
        return tuple(kept.name for kept in program.used(value))

    return tuple(
        PhaseShape(
            phase.name,
            _type(phase.value.dtype, lanes),
            _type(phase.value.dtype, row_lanes),
            phase.value.dtype,
            _wraps(phase, _dtype(context, number)),
            tuple(
                KeptShape(kept.name, _type(kept.value.dtype, lanes), names(kept.value))
                for kept in program.kept_by(number)
            ),
            names(phase.value),
        )
        for number, phase in enumerate(program.phases)
    )


def _work(phases: list[Phase], store: Store, stores_row: bool) -> int:
    """Return the operations per element of the domain."""
    values: list[Expr] = [phase.value for phase in phases]
    if not stores_row:
        values.append(store.value)
    return len(phases) + sum(1 for value in values for node in ex.walk(value) if node.args)


# -- packed results whose words cross rows ---------------------------------------------------------------------------


def _build_words(context: GroupContext, rows: Rows, row_lanes: int, column_lanes: int) -> Built:
    region = context.group.region
    assert region is not None
    phases, final_store = context.results.row_program(rows.coordinates(row_lanes, column_lanes))
    if any(phase.value.dtype not in VECTOR_TYPES for phase in phases):
        raise UnsupportedError(
            f"a reduction of 64-bit integers to {context.group.output.dtype}", origin=context.anchor.origin
        )
    output = region.exit
    axes = output.layout.physical_axes(output.shape)
    elements = ix.product([size for _, size in axes])
    words = ix.ceildiv(elements, LANES)
    types = _register_types(phases, 1)
    program = RowProgram(phases, final_store)
    hooks = _phase_hooks(context, program, _row_names(rows), types, 1, column_lanes)
    element = ix.variable("element", 0, max(ix.bounds(elements)[1] - 1, 0))
    at = exit_to_domain(context, unflatten(element, [size for _, size in axes]), [axis for axis, _ in axes])
    hooks += [
        Hook(f"find_{name}", ("element",), 1, (), ex.coordinate(at[axis]))
        for name, axis in zip(_row_names(rows), rows.row_axes, strict=True)
    ]
    word = ix.variable("word", 0, max(ix.bounds(words)[1] - 1, 0))
    at = exit_to_domain(context, unflatten(lanes_of(word), [size for _, size in axes]), [axis for axis, _ in axes])
    final_phases, store = context.results.row_program(at)
    hooks.append(Hook("store", ("word",), LANES, _register_types(final_phases, LANES), None, (store,)))
    columns = ix.ceildiv(rows.columns, column_lanes)
    steps = ix.bounds(columns)[1]
    config = ReduceConfig(
        "words", 64, 1, 1, column_lanes, PARTIALS, BLOCK * PARTIALS if steps > 2 * BLOCK * PARTIALS else 0
    )
    return context.built(
        Draft(
            "reduce_words",
            config,
            hooks,
            dims={"elements": elements, "words": words, "columns": columns},
            workgroup=(config.rows, 1, 1),
            grid=linear_grid(words, config.rows, context.target),
            rounds=LANES * _rounds(config, columns, len(phases), 0),
            calls=LANES * upper_bound(columns),
            flops=ix.multiply(ix.product(region.domain), _work(phases, store, context.results.exit_is_row)),
            parameters={"phases": _shapes(context, program, 1, column_lanes), "row_names": _row_names(rows)},
        )
    )


class Reduce(KernelFamily):
    """``loom.Reduce``, and the reductions and elementwise nodes of softmax and normalisations that follow."""

    name = "reduce"
    is_row_program = True
    stores_halves = True

    def domain(self, anchor: Node) -> Shape:
        return anchor.operand(0).shape

    def result_coordinates(self, anchor: Node) -> Shape:
        axes = set(anchor.attributes.axes)
        names = domain_variables(anchor.operand(0).shape)
        if anchor.attributes.keepdims:
            return tuple(0 if axis in axes else name for axis, name in enumerate(names))
        return tuple(name for axis, name in enumerate(names) if axis not in axes)

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``ONCE`` for a single reduction; further phases read each element again."""
        return Reuse.ONCE if len(region.reductions) == 1 and region.exit.producer is region.anchor else Reuse.MANY

    def overflow(self, node: Node, operands: Sequence[OverflowFlags]) -> OverflowFlags:
        return extremum_overflow(node.attributes.kind, operands[0])

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return reduce_array(operands[0], node.attributes, node.operand(0).dtype)

    def can_store(self, context: GroupContext, dtype: DType) -> bool:
        return dtype.packing == 1 or _owns_words(context, _walk(context)[-1])

    def build(self, context: GroupContext) -> Built:
        return _build(context)


register_family(Reduce())
