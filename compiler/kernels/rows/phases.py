"""The phases of a row program in a kernel: their hooks, and what its template needs to know of them."""

from __future__ import annotations

from collections.abc import Iterable

from ....runtime.plan.dtypes import DType
from ....runtime.plan.record import record
from ...codegen.spec import Hook, Store
from ...codegen.types import WGSL_TYPES
from ...ops.checks import wrap
from ...ops.internal.reduction import identity
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ..context import GroupContext
from ..results import Phase
from .register_reuse import ReusedValue, RowProgram
from .rows import RowTraversal

_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "max_number": "max_number"}


@record
class ReusedShape:
    """A value in registers as a template sees it: its name and WGSL type, and the others that it is computed from."""

    name: str
    type: str
    uses: tuple[str, ...]


@record
class PhaseShape:
    """A phase as a template sees it: WGSL types of a partial result and of the register, and how to finish it."""

    name: str
    partial: str
    type: str
    element: str  #: compute type, names its workgroup array
    wraps: bool
    reused: tuple[ReusedShape, ...] = ()  #: what this phase computes for later ones too
    uses: tuple[str, ...] = ()  #: reused values that an element of this phase is made of


def register_types(phases: list[Phase], row_lanes: int) -> tuple[tuple[str, str], ...]:
    return tuple((phase.name, _type(phase.value.dtype, row_lanes)) for phase in phases)


def reused_types(values: Iterable[ReusedValue], lanes: int) -> tuple[tuple[str, str], ...]:
    return tuple((item.name, _type(item.value.dtype, lanes)) for item in values)


def _type(compute: str, lanes: int) -> str:
    return f"vec4<{WGSL_TYPES[compute]}>" if lanes == LANES else WGSL_TYPES[compute]


def phase_hooks(context: GroupContext, program: RowProgram, walk: RowTraversal) -> list[Hook]:
    """Return the hooks of each phase.

    They are: values for later phases, an element, the combination of partial results, the initial value, and the last
    step if the type wraps.
    """
    types = register_types(program.phases, walk.row_lanes)
    coordinates = (*walk.rows.names, "column")
    hooks = []
    for number, phase in enumerate(program.phases):
        dtype = _dtype(context, number)
        start = ex.const(identity(phase.kind, dtype), phase.value.dtype)
        for reused in program.computed_in(number):
            registers = (*types[:number], *reused_types(program.used(reused.value), walk.lanes))
            hooks.append(Hook(f"keep_{reused.name}", coordinates, walk.lanes, registers, reused.value))
        registers = (*types[:number], *reused_types(program.used(phase.value), walk.lanes))
        hooks.append(Hook(f"phase_{phase.name}", coordinates, walk.lanes, registers, phase.value))
        hooks.append(Hook(f"initial_{phase.name}", (), 1, (), start))
        hooks += _combine_hooks(phase.name, _COMBINE[phase.kind], phase.value.dtype, walk)
        if _wraps(phase, dtype):
            last = wrap(ex.register("value", phase.value.dtype), dtype)
            hooks.append(Hook(f"finish_{phase.name}", (), walk.row_lanes, (("value", types[number][1]),), last))
    return hooks


def _combine_hooks(name: str, operation: str, compute: str, walk: RowTraversal) -> list[Hook]:
    """Return the hooks ``combine_NAME`` of two partial results and ``join_NAME`` of four lanes along a row."""
    result = ex.binary(operation, ex.register("left", compute), ex.register("right", compute))
    both = tuple((side, _type(compute, walk.lanes)) for side in ("left", "right"))
    hooks = [Hook(f"combine_{name}", (), walk.lanes, both, result)]
    if walk.column_lanes == LANES:
        both = tuple((side, _type(compute, 1)) for side in ("left", "right"))
        hooks.append(Hook(f"join_{name}", (), 1, both, result))
    return hooks


def _dtype(context: GroupContext, number: int) -> DType:
    region = context.group.region
    assert region is not None
    return region.reductions[number].operand(0).dtype


def _wraps(phase: Phase, dtype: DType) -> bool:
    return phase.kind in ("sum", "prod") and dtype.is_integer and dtype.bits < 32


def phase_shapes(context: GroupContext, program: RowProgram, walk: RowTraversal) -> tuple[PhaseShape, ...]:
    """Return what the templates need to know of each phase."""

    def names(value: Expr) -> tuple[str, ...]:
        return tuple(reused.name for reused in program.used(value))

    return tuple(
        PhaseShape(
            phase.name,
            _type(phase.value.dtype, walk.lanes),
            _type(phase.value.dtype, walk.row_lanes),
            phase.value.dtype,
            _wraps(phase, _dtype(context, number)),
            tuple(
                ReusedShape(reused.name, _type(reused.value.dtype, walk.lanes), names(reused.value))
                for reused in program.computed_in(number)
            ),
            names(phase.value),
        )
        for number, phase in enumerate(program.phases)
    )


def operations(phases: list[Phase], store: Store, stores_row: bool) -> int:
    """Return the operations per element of the domain."""
    values: list[Expr] = [phase.value for phase in phases]
    if not stores_row:
        values.append(store.value)
    return len(phases) + sum(1 for value in values for node in ex.walk(value) if node.args)
