"""Updates of single elements at run-time positions.

Each element of the result looks through the updates that may be meant for it and combines those that are, in order: no
two threads write one place, so the result is the same on every device, sums of floats included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...codegen.types import WGSL_TYPES
from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...ops.math.positions import run_time_index
from ...ops.onnx.scatter import scatter_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, register_family
from ..geometry import find_hooks, linear_grid, unflatten
from ..loop_trips import filter_by_trips, upper_bound

_COMBINE = {"add": "add", "mul": "mul", "max": "max", "min": "min"}


@record
class ScatterConfig:
    """One thread an element of the result, ``workgroup`` threads a group; ``unroll`` updates in a round."""

    workgroup: int = 64
    unroll: int = 1


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a Scatter with its fused consumers."""
    node = context.anchor
    data, updates, attributes = node.operand(0), node.operand(2), node.attributes
    names = tuple(f"at_{axis}" for axis in range(data.rank))
    coordinates = [ix.coordinate(name, size) for name, size in zip(names, data.shape)]
    find = _element_wise(context, coordinates) if attributes.axis is not None else _by_tuples(context, coordinates)
    steps, matches, update = find
    threads = data.elements
    thread = ix.variable("thread", 0, max(ix.bounds(threads)[1] - 1, 0))
    wgsl_type = WGSL_TYPES[data.dtype.compute]
    both = (("current", wgsl_type), ("change", wgsl_type))
    current, change = (ex.register(name, data.dtype.compute) for name, _ in both)
    combined = change if attributes.reduction == "none" else ex.binary(_COMBINE[attributes.reduction], current, change)
    hooks = [
        *find_hooks(names, ("thread",), unflatten(thread, data.shape)),
        Hook("start", names, 1, (), context.operands.read(data, coordinates)),
        Hook("matches", (*names, "step"), 1, (), matches),
        Hook("update", (*names, "step"), 1, (), update),
        Hook("combine", (), 1, both, combined),
        Hook(
            "store",
            names,
            1,
            (("value", wgsl_type),),
            None,
            context.results.stores(coordinates, ex.register("value", data.dtype.compute)),
        ),
    ]
    (config, *_) = filter_by_trips(
        context.target, [ScatterConfig(), ScatterConfig(unroll=16)], lambda each: -(-upper_bound(steps) // each.unroll)
    )
    return context.built(
        Draft(
            "scatter",
            config,
            hooks,
            dims={"threads": threads, "steps": steps},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=-(-upper_bound(steps) // config.unroll),
            calls=upper_bound(steps),
            flops=ix.add(ix.multiply(threads, steps), updates.elements),
            parameters={"names": names},
        )
    )


def _step(steps: Dim) -> Dim:
    return ix.coordinate("step", steps)


def _equals(index: Dim, coordinate: Dim) -> Expr:
    return ex.compare("eq", ex.coordinate(index), ex.coordinate(coordinate))


def _element_wise(context: GroupContext, coordinates: list[Dim]) -> tuple[Dim, Expr, Expr]:
    """Return the trip count over updates, the condition that one addresses the element at ``coordinates``, and its
    value.

    Candidates are the updates along ``axis``; their other coordinates are those of the element.
    """
    node = context.anchor
    data, indices, updates = node.operand(0), node.operand(1), node.operand(2)
    axis = node.attributes.axis
    steps = indices.shape[axis]
    source = [*coordinates[:axis], _step(steps), *coordinates[axis + 1 :]]
    inside = ex.const(True, "bool")
    for other, size in enumerate(indices.shape):
        if other != axis and size != data.shape[other]:
            inside = ex.binary("and", inside, ex.in_range(coordinates[other], 0, size))
    if steps == 0:
        return steps, ex.const(False, "bool"), ex.const(0, data.dtype.compute)
    index = run_time_index(context.operands.read(indices, source), data.shape[axis])
    matches = ex.guard(inside, _equals(index, coordinates[axis]), ex.const(False, "bool"))
    return steps, matches, context.operands.read(updates, source)


def _by_tuples(context: GroupContext, coordinates: list[Dim]) -> tuple[Dim, Expr, Expr]:
    """Return the trip count over index tuples, the condition that one addresses ``coordinates``, and its update.

    A tuple addresses the leading axes; the other coordinates are those of the element.
    """
    node = context.anchor
    data, indices, updates = node.operand(0), node.operand(1), node.operand(2)
    addressed = ix.number(indices.shape[-1])
    batch = indices.shape[:-1]
    steps = ix.product(batch)
    if steps == 0:
        return steps, ex.const(False, "bool"), ex.const(0, data.dtype.compute)
    at = unflatten(_step(steps), batch)
    matches = ex.const(True, "bool")
    for axis in range(addressed):
        index = run_time_index(context.operands.read(indices, [*at, axis]), data.shape[axis])
        matches = ex.binary("and", matches, _equals(index, coordinates[axis]))
    return steps, matches, context.operands.read(updates, [*at, *coordinates[addressed:]])


class Scatter(KernelFamily):
    """``loom.Scatter``."""

    name = "scatter"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return scatter_array(operands[0], operands[1], operands[2], node.attributes)

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Scatter())
