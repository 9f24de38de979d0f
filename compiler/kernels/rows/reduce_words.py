"""Reductions to packed results whose words cross rows: a thread owns a word, and reduces the row of each element."""

from __future__ import annotations

from ....runtime.plan.errors import UnsupportedError
from ...codegen.spec import Hook
from ...codegen.types import VECTOR_TYPES
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..geometry import find_hooks, lanes_of, linear_grid, logical_coordinates
from ..loop_trips import upper_bound
from .phases import operations, phase_hooks, phase_shapes, register_types
from .reduce_config import PARTIALS, ReduceConfig, block_size, rounds
from .register_reuse import RowProgram
from .rows import RowTraversal, exit_to_domain


def build_words(context: GroupContext, walk: RowTraversal) -> BuiltKernel:
    """Build the kernel of a reduction to a packed result; ``walk`` has one lane along rows."""
    region = context.group.region
    assert region is not None
    rows, columns = walk.rows, walk.columns
    phases, final_store = context.results.row_program(rows.coordinates(1, walk.column_lanes))
    if any(phase.value.dtype not in VECTOR_TYPES for phase in phases):
        raise UnsupportedError(
            f"a reduction of 64-bit integers to {context.group.output.dtype}", origin=context.anchor.origin
        )
    output = region.exit
    axes = output.layout.physical_axes(output.shape)
    elements = ix.product([size for _, size in axes])
    words = ix.ceildiv(elements, LANES)
    program = RowProgram(phases, final_store)
    hooks = phase_hooks(context, program, walk)
    element = ix.variable("element", 0, max(ix.bounds(elements)[1] - 1, 0))
    at = exit_to_domain(context, logical_coordinates(axes, element))
    hooks += find_hooks(rows.names, ("element",), [at[axis] for axis in rows.row_axes])
    word = ix.variable("word", 0, max(ix.bounds(words)[1] - 1, 0))
    at = exit_to_domain(context, logical_coordinates(axes, lanes_of(word)))
    final_phases, store = context.results.row_program(at)
    hooks.append(Hook("store", ("word",), LANES, register_types(final_phases, LANES), None, (store,)))
    config = ReduceConfig("words", 64, 1, 1, walk.column_lanes, PARTIALS, block_size(ix.bounds(columns)[1]))
    return context.built(
        Draft(
            "reduce_words",
            config,
            hooks,
            dims={"elements": elements, "words": words, "columns": columns},
            threads=config.rows,
            grid=linear_grid(words, config.rows, context.target),
            rounds=LANES * rounds(config, columns, len(phases), 0),
            calls=LANES * upper_bound(columns),
            flops=ix.multiply(ix.product(region.domain), operations(phases, store, context.results.exit_is_row)),
            parameters={"phases": phase_shapes(context, program, walk), "row_names": rows.names},
        )
    )
