"""Recurrent layers: a loop over time inside one kernel; those of many units take :mod:`.recurrent_steps`.

A workgroup has one sequence of the batch in one direction; its threads share the units of the hidden state, which is
in workgroup memory.  States that are each unit's own are there too or, where it is too small, in memory of the thread:
with 16 KiB an LSTM may have 4,096 units.  The products of the inputs with their weights are made beforehand for all
steps at once; what is left is the product of the state with the recurrence weights, the activations and the new state.

The result has the output of every step, then the last hidden state, and for an LSTM the last cell state:
[steps + 1 (+ 1), directions, batch, units].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes
from ..ir.graph import Node
from ..ir.layout import Layout
from ..ops.onnx.recurrent import recurrent_array
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from . import recurrent_steps
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, by_position, register_family
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
    steps, directions, batch, units = sizes_of(node)
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
            threads=config.threads,
            grid=(batch, directions, 1),
            workgroup_bytes=4 * (shared if private else shared + owned) * most,
            rounds=_rounds(node, ix.bounds(steps)[1], most, config),
            calls=1,
            flops=flops_of(node),
            parameters={
                **parameters_of(node),
                "most_units": most,
                "unroll": config.unroll,
                "private": private,
            },
        )
    )


def _hooks(context: GroupContext) -> list[Hook]:
    """Return the hooks for elements of the operands (zeros for absent ones), for the activations, and for the store."""
    node, attributes = context.anchor, context.anchor.attributes
    steps, directions, batch, units = sizes_of(node)
    time, direction = ix.coordinate("time", node.output.shape[0]), ix.coordinate("direction", directions)
    image, unit = ix.coordinate("batch", batch), ix.coordinate("unit", units)
    row, inner = ix.coordinate("row", node.operand(RECURRENCE).shape[1]), ix.coordinate("inner", units)

    state = ("direction", "batch", "unit")
    gate = read(context, GATES, direction, time, image, row)
    hooks = [
        Hook("gate", ("time", "direction", "batch", "row"), 1, (), gate),
        Hook("recurrence", ("direction", "row", "inner"), 1, (), read(context, RECURRENCE, direction, row, inner)),
        Hook("length", ("batch",), 1, (), length_of(context, steps, image)),
        Hook("initial_hidden", state, 1, (), read(context, HIDDEN, direction, image, unit)),
        *activation_hooks(attributes),
    ]
    stores = context.results.stores((time, direction, image, unit), ex.register("value", "f32"))
    hooks.append(Hook("store", ("time", *state), 1, (("value", "f32"),), None, stores))
    if attributes.kind == "lstm":
        hooks.append(Hook("initial_cell", state, 1, (), read(context, CELL, direction, image, unit)))
        hooks.append(Hook("peephole", ("direction", "row"), 1, (), read(context, PEEPHOLES, direction, row)))
    if node.optional(SCALE) is not None:
        hooks.append(Hook("scale", ("direction", "row"), 1, (), read(context, SCALE, direction, row)))
    if attributes.linear_before_reset:
        hooks.append(Hook("reset_bias", ("direction", "unit"), 1, (), read(context, RESET_BIAS, direction, unit)))
    return hooks


def _rounds(node: Node, steps: int, units: int, config: RecurrentConfig) -> int:
    whole, rest = divmod(units, config.unroll)
    sums = 2 if node.attributes.kind == "gru" or node.attributes.quantised else 1
    own = -(-units // config.threads)
    return steps * (own * (sums * (whole + rest + 2) + 4) + whole + rest)


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

    def reads_result(self, anchor: Node) -> bool:
        return recurrent_steps.suits(anchor)

    def build(self, context: GroupContext) -> BuiltKernel:
        """Return the kernel of a step for many units, else one that loops over the steps."""
        return recurrent_steps.build(context) if recurrent_steps.applies(context) else _build(context)


register_family(Recurrent())
