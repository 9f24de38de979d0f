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

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import DType
from ...codegen.spec import Hook, Store
from ...codegen.types import VECTOR_TYPES
from ...ir.coordinates import Sizes, domain_variables
from ...ir.graph import Node, Shape, Value
from ...ops.internal.reduction import reduce_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ...tuning.config_choice import problem_key
from ..config_key import extent, loaded_types
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, OverflowFlags, Reuse, extremum_overflow, register_family
from ..geometry import linear_grid
from ..groups import Region
from ..loop_trips import filter_by_trips, upper_bound
from ..results import Phase
from .phases import operations, phase_hooks, phase_shapes, register_types, reused_types
from .reduce_config import ReduceConfig, configurations, rounds
from .reduce_words import build_words
from .register_reuse import RowProgram, reuse_registers
from .rows import Rows, RowTraversal, memory_order

#: Columns from which a sum is long
_LONG_SUM = 32


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a reduction with its fused consumers."""
    region = context.group.region
    assert region is not None
    phases, store, walk = _walk(context)
    rows, threads, columns = walk.rows, walk.threads, walk.columns
    if context.group.output.dtype.packing > 1 and not _owns_words(context, walk):
        return build_words(context, RowTraversal(rows, 1, walk.column_lanes if walk.row_lanes == 1 else 1))
    config = _choose(context, walk, phases, store)
    stores_row = context.results.exit_is_row
    phases, store = context.results.row_program(rows.coordinates(walk.row_lanes, walk.column_lanes))
    work = operations(phases, store, stores_row)
    program = RowProgram(phases, store)
    if config.steps:
        program = reuse_registers(phases, store, stores_row, config.steps, walk.lanes)
    serial = config.variant == "serial"
    size = config.rows * config.strips
    shapes = phase_shapes(context, program, walk)
    parts = sum({shape.element: size * _bytes(shape.type) for shape in shapes}.values())
    used = () if stores_row else tuple(reused.name for reused in program.used(program.store.value))
    return context.built(
        Draft(
            "reduce_serial" if serial else "reduce_workgroup",
            config,
            _hooks(context, walk, program),
            dims={"rows": threads, "columns": columns},
            threads=size,
            grid=linear_grid(ix.ceildiv(threads, config.rows), 1, context.target),
            rounds=rounds(config, columns, len(phases), 0 if stores_row else 1),
            calls=-(-upper_bound(columns) // config.strips),
            workgroup_bytes=0 if serial else parts,
            flops=ix.multiply(ix.product(region.domain), work),
            parameters={
                "phases": shapes,
                "store_uses": used,
                "row_names": rows.names,
                "hides_bounds": context.target.inlines_uniforms and stores_row and _is_long_sum(columns, phases),
                "stores_row": stores_row,
                "columns_are_contiguous": rows.columns_are_contiguous,
                "halves": tuple(1 << level for level in reversed(range(config.strips.bit_length() - 1))),
            },
        )
    )


def _is_long_sum(columns: ix.Dim, phases: Sequence[Phase]) -> bool:
    """Return whether a loop over the columns is as fast as all columns written out, which takes longer to compile.

    Measured on lavapipe: shorter rows take 1.1 to 1.4 times as long, and so do softmaxes and norms.
    """
    return len(phases) == 1 and isinstance(columns, int) and columns >= _LONG_SUM


def _choose(context: GroupContext, walk: RowTraversal, phases: Sequence[Phase], store: Store) -> ReduceConfig:
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
        lambda each: rounds(each, columns, len(phases), 0 if stores_row else 1),
    )
    return context.choose(key, possible)


def _hooks(context: GroupContext, walk: RowTraversal, program: RowProgram) -> list[Hook]:
    """Return the hooks for the coordinates of a row, for the phases, and for the store of a row or of an element."""
    names = walk.rows.names
    types = register_types(program.phases, walk.row_lanes)
    hooks = [
        *walk.rows.find_hooks(walk.row_lanes),
        *phase_hooks(context, program, walk),
    ]
    if context.results.exit_is_row:
        return [*hooks, Hook("store", names, walk.row_lanes, types, None, (program.store,))]
    registers = (*types, *reused_types(program.used(program.store.value), walk.lanes))
    return [*hooks, Hook("store", (*names, "column"), walk.lanes, registers, None, (program.store,))]


def _walk(context: GroupContext) -> tuple[list[Phase], Store, RowTraversal]:
    """Return the row program at the variables of its domain, and how threads walk it."""
    region = context.group.region
    assert region is not None
    phases, store = context.results.row_program(domain_variables(region.domain))
    order = memory_order([phase.value for phase in phases], region.domain)
    rows = Rows.split(region.domain, context.anchor.attributes.axes, order)
    return phases, store, RowTraversal(rows, *_lanes(context, rows))


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


def _owns_words(context: GroupContext, walk: RowTraversal) -> bool:
    """Return whether every store of four lanes is one run of a packed result."""
    if walk.row_lanes != LANES and (context.results.exit_is_row or walk.column_lanes != LANES):
        return False
    return context.results.is_run(walk.rows.coordinates(walk.row_lanes, walk.column_lanes))


def _bytes(wgsl_type: str) -> int:
    return 16 if wgsl_type.startswith("vec4") else 8 if wgsl_type.startswith("vec2") else 4


class Reduce(KernelFamily):
    """``loom.Reduce``, and the reductions and elementwise nodes of softmax and normalisations that follow."""

    name = "reduce"
    is_row_program = True
    stores_halves = True
    stores_once = True

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

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Reduce())
