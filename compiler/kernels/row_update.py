"""Results that are an input but for some elements, in the memory of that input: one thread four of the new elements.

Caches of keys and values with spare capacity are such: a run writes the rows of its own tokens.  Maps do this where
:mod:`~compiler.planning.states` says that the result begins as the input (``Group.states``).
"""

from __future__ import annotations

from ...runtime.plan.record import record
from ..codegen.spec import Hook, Store
from ..ir.graph import Node
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .geometry import lanes_of, linear_grid, unflatten


@record
class UpdateConfig:
    """``lanes`` neighbouring elements a thread, ``workgroup`` threads a group."""

    lanes: int = LANES
    workgroup: int = 64


def build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a map group whose results begin as inputs."""
    shape = context.group.updates[0].operand(1).shape
    elements = ix.product(list(shape))
    threads = ix.ceildiv(elements, LANES)
    coordinates = tuple(unflatten(lanes_of(ix.coordinate("q", threads)), shape))
    stores = [_store(context, node, coordinates) for node in context.group.updates]
    config = UpdateConfig(workgroup=min(64, context.target.max_workgroup_threads))
    return context.built(
        Draft(
            "map",
            config,
            [Hook("store", ("q",), LANES, (), None, tuple(stores))],
            dims={"threads": threads},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=0,
            flops=ix.multiply(elements, sum(1 for store in stores for node in ex.walk(store.value) if node.args)),
        )
    )


def _store(context: GroupContext, node: Node, coordinates: tuple[Dim, ...]) -> Store:
    """Return the store of an element of the update, operand 1, at ``coordinates`` to its place in the result."""
    operands = context.operands
    update = operands.operators.of(node).update
    assert update is not None
    target, condition = update(node, coordinates, lambda position, at: operands.read(node.operand(position), at))
    value = operands.read(node.operand(1), coordinates)
    return context.results.store_part(target, value, node.output, condition)
