"""What the forms of recurrent kernels share: the operands of ``loom.Recurrent``, sizes, lengths and activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen.spec import Hook
from ..ir.graph import Node, Value
from ..ops.math.activation_functions import activation
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .context import GroupContext

#: Positions of the operands of ``loom.Recurrent``
GATES, RECURRENCE, LENGTHS, HIDDEN, CELL, PEEPHOLES, RESET_BIAS, SCALE = range(8)


def read(context: GroupContext, position: int, *coordinates: Dim) -> Expr:
    """Return an element of an operand, zero where the operand is absent."""
    operand = context.anchor.optional(position)
    return ex.const(0.0, "f32") if operand is None else context.operands.read(operand, coordinates)


def sizes_of(node: Node) -> tuple[Dim, Dim, Dim, Dim]:
    """Return steps, directions, batch and units."""
    gates: Value = node.operand(GATES)
    directions, steps, batch, _ = gates.shape
    return steps, directions, batch, node.operand(RECURRENCE).shape[2]


def length_of(context: GroupContext, steps: Dim, image: Dim) -> Expr:
    """Return the steps of a sequence of the batch."""
    lengths = context.anchor.optional(LENGTHS)
    if lengths is None:
        return ex.coordinate(steps)
    return ex.binary("min", ex.cast(context.operands.read(lengths, (image,)), "i32"), ex.coordinate(steps))


def reverse_of(direction: str) -> str:
    """Return the WGSL condition that a direction runs from the end to the start."""
    return {"forward": "false", "reverse": "true"}.get(direction, "direction == 1")


def flops_of(node: Node) -> Dim:
    """Return the operations of the products with the recurrence weights."""
    steps, directions, batch, units = sizes_of(node)
    return ix.product([2, steps, directions, batch, node.operand(RECURRENCE).shape[1], units])


def parameters_of(node: Node) -> dict[str, Any]:
    """Return the parameters of templates that say which operator it is."""
    attributes = node.attributes
    return {
        "kind": attributes.kind,
        "reverse": reverse_of(attributes.direction),
        "linear_before_reset": attributes.linear_before_reset,
        "input_forget": attributes.input_forget,
        "has_peepholes": node.optional(PEEPHOLES) is not None,
        "quantised": attributes.quantised,
        "has_scale": node.optional(SCALE) is not None,
    }


def activation_hooks(attributes: Any, lanes: int = 1) -> list[Hook]:
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
        kind = "vec4<f32>" if lanes == LANES else "f32"
        hooks.append(Hook(f"activate_{number}", ("direction",), lanes, (("value", kind),), result))
    return hooks


def _clipped(value: Expr, clip: float | None) -> Expr:
    if clip is None:
        return value
    return ex.binary("max", ex.binary("min", value, ex.const(clip, "f32")), ex.const(-clip, "f32"))
