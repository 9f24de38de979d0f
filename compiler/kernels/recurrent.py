"""Recurrent layers: a loop over time inside one kernel.

A workgroup has one sequence of the batch in one direction; its threads share the units of the hidden state, which is
in workgroup memory.  States that are each unit's own are there too or, where it is too small, in memory of the thread:
with 16 KiB an LSTM may have 4,096 units.  The products of the inputs with their weights are made beforehand for all
steps at once; what is left is the product of the state with the recurrence weights, the activations and the new state.

The result has the output of every step, then the last hidden state, and for an LSTM the last cell state:
[steps + 1 (+ 1), directions, batch, units].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes
from ..ir.graph import Node, Value
from ..ir.layout import Layout
from ..ops.math.activation_functions import activation
from ..ops.onnx.recurrent import recurrent_array
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, by_position, register_family

#: Positions of the operands of ``loom.Recurrent``
GATES, RECURRENCE, LENGTHS, HIDDEN, CELL, PEEPHOLES, RESET_BIAS = range(7)


@record
class RecurrentConfig:
    """``threads`` share the units of one sequence; ``unroll`` terms of a sum are written out."""

    threads: int
    unroll: int

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 256:
            raise ValueError(f"a workgroup of {self.threads} threads")
        if not 1 <= self.unroll <= 32:
            raise ValueError(f"{self.unroll} terms in a round")


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a Recurrent with its fused consumers."""
    node = context.anchor
    attributes = node.attributes
    steps, directions, batch, units = _sizes(node)
    most = max(ix.bounds(units)[1], 1)
    is_narrow = most <= context.target.narrow_recurrent_units
    threads = 64 if is_narrow else context.target.max_workgroup_threads
    config = RecurrentConfig(threads, 16 if most >= 64 else 4)
    shared = 2 if attributes.kind == "gru" and not attributes.linear_before_reset else 1
    owned = 2 if attributes.kind == "lstm" else 1
    private = 4 * (shared + owned) * most > context.target.limit("max-compute-workgroup-storage-size")
    return context.built(
        Draft(
            "recurrent",
            config,
            _hooks(context),
            dims={"steps": steps, "units": units},
            workgroup=(config.threads, 1, 1),
            grid=(batch, directions, 1),
            workgroup_bytes=4 * (shared if private else shared + owned) * most,
            rounds=_rounds(node, ix.bounds(steps)[1], most, config),
            calls=1,
            flops=ix.product([2, steps, directions, batch, node.operand(RECURRENCE).shape[1], units]),
            parameters={
                "kind": attributes.kind,
                "most_units": most,
                "unroll": config.unroll,
                "private": private,
                "reverse": _reverse(attributes.direction),
                "linear_before_reset": attributes.linear_before_reset,
                "input_forget": attributes.input_forget,
                "has_peepholes": node.optional(PEEPHOLES) is not None,
                "quantised": attributes.quantised,
            },
        )
    )


def _hooks(context: GroupContext) -> list[Hook]:
    """Return the hooks for elements of the operands (zeros for absent ones), for the activations, and for the store."""
    node, attributes = context.anchor, context.anchor.attributes
    steps, directions, batch, units = _sizes(node)
    time, direction = ix.coordinate("time", node.output.shape[0]), ix.coordinate("direction", directions)
    image, unit = ix.coordinate("batch", batch), ix.coordinate("unit", units)
    row, inner = ix.coordinate("row", node.operand(RECURRENCE).shape[1]), ix.coordinate("inner", units)

    def read(position: int, *coordinates: Dim) -> Expr:
        operand = node.optional(position)
        return ex.const(0.0, "f32") if operand is None else context.operands.read(operand, coordinates)

    state = ("direction", "batch", "unit")
    gate = read(GATES, direction, time, image, row)
    hooks = [
        Hook("gate", ("time", "direction", "batch", "row"), 1, (), gate),
        Hook("recurrence", ("direction", "row", "inner"), 1, (), read(RECURRENCE, direction, row, inner)),
        Hook("length", ("batch",), 1, (), _length(context, steps, image)),
        Hook("initial_hidden", state, 1, (), read(HIDDEN, direction, image, unit)),
        *_activations(attributes),
    ]
    stores = context.results.stores((time, direction, image, unit), ex.register("value", "f32"))
    hooks.append(Hook("store", ("time", *state), 1, (("value", "f32"),), None, stores))
    if attributes.kind == "lstm":
        hooks.append(Hook("initial_cell", state, 1, (), read(CELL, direction, image, unit)))
        hooks.append(Hook("peephole", ("direction", "row"), 1, (), read(PEEPHOLES, direction, row)))
    if attributes.linear_before_reset:
        hooks.append(Hook("reset_bias", ("direction", "unit"), 1, (), read(RESET_BIAS, direction, unit)))
    return hooks


def _rounds(node: Node, steps: int, units: int, config: RecurrentConfig) -> int:
    whole, rest = divmod(units, config.unroll)
    sums = 2 if node.attributes.kind == "gru" or node.attributes.quantised else 1
    own = -(-units // config.threads)
    return steps * (own * (sums * (whole + rest + 2) + 4) + whole + rest)


def _sizes(node: Node) -> tuple[Dim, Dim, Dim, Dim]:
    gates: Value = node.operand(GATES)
    directions, steps, batch, _ = gates.shape
    return steps, directions, batch, node.operand(RECURRENCE).shape[2]


def _length(context: GroupContext, steps: Dim, image: Dim) -> Expr:
    lengths = context.anchor.optional(LENGTHS)
    if lengths is None:
        return ex.coordinate(steps)
    return ex.binary("min", ex.cast(context.operands.read(lengths, (image,)), "i32"), ex.coordinate(steps))


def _reverse(direction: str) -> str:
    """Return the WGSL condition that a direction runs from the end to the start."""
    return {"forward": "false", "reverse": "true"}.get(direction, "direction == 1")


def _activations(attributes: Any) -> list[Hook]:
    """Return the hooks ``activate_0``, ``activate_1`` ... of the functions f, g, h.

    In a bidirectional operator the second half of the list is of the second direction.
    """
    functions = attributes.activations
    directions = 2 if attributes.direction == "bidirectional" else 1
    count = len(functions) // directions
    value = ex.register("value", "f32")
    second = ex.compare("eq", ex.coordinate(ix.variable("direction", 0, 1)), ex.const(1, "i32"))
    hooks = []
    for number in range(count):
        argument = _clipped(value, attributes.clip if number < 2 else None)
        of_direction: Sequence[Expr] = [
            activation(name, alpha, beta, argument)
            for name, alpha, beta in (functions[number + each * count] for each in range(directions))
        ]
        result = of_direction[0]
        if directions == 2:
            result = ex.select(second, of_direction[1], result)
        hooks.append(Hook(f"activate_{number}", ("direction",), 1, (("value", "f32"),), result))
    return hooks


def _clipped(value: Expr, clip: float | None) -> Expr:
    if clip is None:
        return value
    return ex.binary("max", ex.binary("min", value, ex.const(clip, "f32")), ex.const(-clip, "f32"))


class Recurrent(KernelFamily):
    """``loom.Recurrent``."""

    name = "recurrent"

    def weight_layouts(self, node: Node) -> dict[int, Layout]:
        """Return the layout of the recurrence weights [directions, gates * units, units]: rows of the gates innermost.

        Neighbouring threads compute neighbouring rows.
        """
        return {RECURRENCE: Layout((0, 2, 1))}

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return recurrent_array(node.attributes, by_position(node, operands))

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Recurrent())
