"""Recurrent layers of many units: a dispatch for each step, whose work all workgroups share.

WGSL has no barrier across workgroups, so the kernel runs once a step, and its dispatches see the results of those
before.  A thread has a vector of four units in some sequences of the batch, and a part of the terms of their sums; the
first of its parts adds these and computes the units.  The state is in the result [steps + 1 (+ 1), directions, batch,
units] itself: a step reads the hidden state in the row of the step before, and the cell state is kept in the last row.
A GRU whose reset gate multiplies the state before the product takes two dispatches a step; the first leaves the product
of gate and state in the row of the final state.  One more dispatch at the end writes that row.
"""

from __future__ import annotations

from ...runtime.plan.plan import MOST_ITERATIONS
from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.graph import Node
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .geometry import lanes_of
from .recurrent_hooks import (
    CELL,
    GATES,
    HIDDEN,
    PEEPHOLES,
    RECURRENCE,
    RESET_BIAS,
    SCALE,
    activation_hooks,
    flops_of,
    length_of,
    parameters_of,
    read,
    sizes_of,
)

#: Units from which some targets take a dispatch for each step
FEWEST_UNITS = 64
#: Sequences of a thread, which share the loads of the weights
MOST_ROWS = 4
#: Threads of a workgroup that share sums
SHARING_THREADS = 128


@record
class RecurrentStepConfig:
    """``across`` vectors of units a workgroup, ``parts`` threads for the sums of each, ``rows`` sequences a thread."""

    across: int
    parts: int
    rows: int

    def __post_init__(self) -> None:
        if self.threads & (self.threads - 1) or not 1 <= self.threads <= 256:
            raise ValueError(f"a workgroup of {self.across} by {self.parts} threads")
        if not 1 <= self.rows <= MOST_ROWS:
            raise ValueError(f"{self.rows} sequences are too many for one thread")

    @property
    def threads(self) -> int:
        return self.across * self.parts


def suits(node: Node) -> bool:
    """Return whether a Recurrent has enough units for some target, and not too many steps."""
    steps, _, _, units = sizes_of(node)
    return ix.bounds(units)[0] >= FEWEST_UNITS and ix.bounds(_iterations(node, steps))[1] <= MOST_ITERATIONS


def applies(context: GroupContext) -> bool:
    """Return whether a step of a Recurrent is more work on the target than a dispatch costs."""
    units = sizes_of(context.anchor)[3]
    enough = ix.bounds(units)[0] >= context.target.stepped_recurrent_units
    return enough and suits(context.anchor) and not context.group.constant


def _iterations(node: Node, steps: Dim) -> Dim:
    return ix.add(ix.multiply(steps, _dispatches(node)), 1)


def _dispatches(node: Node) -> int:
    """Return the number of dispatches of a step."""
    return 2 if node.attributes.kind == "gru" and not node.attributes.linear_before_reset else 1


def _sums(node: Node) -> int:
    """Return the sums of a unit in one dispatch, at most."""
    if node.attributes.kind == "gru":
        return 3 if node.attributes.linear_before_reset else 2
    return 4 if node.attributes.kind == "lstm" else 1


def _config(context: GroupContext, batch: Dim) -> RecurrentStepConfig:
    target = context.target
    most = max(ix.bounds(batch)[1], 1)
    if not target.uses_workgroup_memory:
        return RecurrentStepConfig(target.group_threads, 1, min(most, MOST_ROWS))
    loads = list(ex.loads(read(context, RECURRENCE, *(0,) * 3)))
    across = 4 if any(load.payload.dtype != "float32" for load in loads) else 2
    room = target.limit("max-compute-workgroup-storage-size") // (16 * SHARING_THREADS * _sums(context.anchor))
    return RecurrentStepConfig(across, SHARING_THREADS // across, max(min(most, MOST_ROWS, room), 1))


def build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a step of a Recurrent that it :func:`suits`."""
    node, attributes = context.anchor, context.anchor.attributes
    steps, directions, batch, units = sizes_of(node)
    config = _config(context, batch)
    vectors = ix.ceildiv(units, LANES)
    shared = 16 * config.threads * config.rows * _sums(node) if config.parts > 1 else 0
    if attributes.quantised:
        shared += 8 * config.threads * config.rows
    terms = -(-ix.bounds(vectors)[1] // config.parts)
    return context.built(
        Draft(
            "recurrent_step",
            config,
            _hooks(context),
            dims={"steps": steps, "units": units, "vectors": vectors, "batch": batch},
            threads=config.threads,
            grid=(ix.ceildiv(vectors, config.across), ix.ceildiv(batch, config.rows), directions),
            workgroup_bytes=shared,
            rounds=3 * terms + 32,
            calls=1,
            flops=flops_of(node),
            parameters={
                **parameters_of(node),
                "dispatches": _dispatches(node),
            },
            iterations=_iterations(node, steps),
        )
    )


def _hooks(context: GroupContext) -> list[Hook]:
    """Return the hooks: four units of operands and of the state, the activations, and the store."""
    node, attributes = context.anchor, context.anchor.attributes
    steps, directions, batch, units = sizes_of(node)
    time, direction = ix.coordinate("time", node.output.shape[0]), ix.coordinate("direction", directions)
    image = ix.coordinate("batch", batch)
    unit = lanes_of(ix.coordinate("vector", ix.ceildiv(units, LANES)))
    inner = ix.coordinate("inner", ix.round_up(units, LANES))
    gate = ix.coordinate("gate", ix.floordiv(node.operand(RECURRENCE).shape[1], units))
    row = ix.add(ix.multiply(gate, units), unit)
    exists = ex.in_range(unit, 0, units)
    zero = ex.const(0.0, "f32")

    def of_unit(value: Expr) -> Expr:
        return ex.guard(exists, value, zero)

    def of_result(step: Dim) -> Expr:
        return of_unit(context.operands.load(node.output, (step, direction, image, unit)))

    weight = ex.guard(ex.in_range(inner, 0, units), of_unit(read(context, RECURRENCE, direction, row, inner)), zero)
    state = ("direction", "batch", "vector")
    of_gate = ("direction", "gate", "vector")
    hooks = [
        Hook(
            "gate_input",
            ("time", "batch", *of_gate),
            LANES,
            (),
            of_unit(read(context, GATES, direction, time, image, row)),
        ),
        Hook("recurrence", (*of_gate, "inner"), LANES, (), weight),
        Hook("length", ("batch",), 1, (), length_of(context, steps, image)),
        Hook("initial_hidden", state, LANES, (), of_unit(read(context, HIDDEN, direction, image, unit))),
        Hook("result", ("time", *state), LANES, (), of_result(time)),
        *activation_hooks(attributes, LANES),
    ]
    stores = context.results.stores((time, direction, image, unit), ex.register("value", "f32"), exists)
    hooks.append(Hook("store", ("time", *state), LANES, (("value", "vec4<f32>"),), None, stores))
    if attributes.kind == "lstm":
        hooks.append(Hook("initial_cell", state, LANES, (), of_unit(read(context, CELL, direction, image, unit))))
        hooks.append(Hook("peephole", of_gate, LANES, (), of_unit(read(context, PEEPHOLES, direction, row))))
    if node.optional(SCALE) is not None:
        hooks.append(Hook("scale", of_gate, LANES, (), of_unit(read(context, SCALE, direction, row))))
    if attributes.linear_before_reset:
        bias = of_unit(read(context, RESET_BIAS, direction, unit))
        hooks.append(Hook("reset_bias", ("direction", "vector"), LANES, (), bias))
    return hooks
