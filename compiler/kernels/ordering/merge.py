"""Pairs of sorted runs become runs of twice the length.

Each place of the result finds by binary search how many of the positions before it are of the first run (the crossing
of the merge path), and reads its own: all places are independent, and each is written by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...codegen.types import WGSL_TYPES
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.internal.sorting import merge_runs_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, Reuse, register_family
from ..geometry import linear_grid, unflatten
from ..groups import Region
from ..loop_trips import upper_bound
from ..rows.rows import rows_along
from .rank import precedes


@record
class MergeConfig:
    """One thread a place, ``workgroup`` threads a group."""

    workgroup: int = 64


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a MergeRuns with its fused consumers."""
    node = context.anchor
    keys, order, attributes = node.operand(0), node.operand(1), node.attributes
    axis = attributes.axis
    if attributes.key_axis is not None:
        axis -= attributes.key_axis < axis
    rows = rows_along(context, order, axis)
    coordinates = rows.coordinates()
    threads = ix.multiply(rows.rows, rows.columns)
    thread = ix.variable("thread", 0, max(ix.bounds(threads)[1] - 1, 0))
    row, column = unflatten(thread, [rows.rows, rows.columns])
    of_key: list[Dim] = list(coordinates)
    of_key[axis] = ix.coordinate("place", order.shape[axis])
    parts: Dim = 1
    if attributes.key_axis is not None:
        parts = keys.shape[attributes.key_axis]
        of_key.insert(attributes.key_axis, ix.coordinate("part", parts))
    searches = (2 * attributes.run).bit_length() + 1
    rounds = searches * (upper_bound(parts) + 1)
    limit = context.target.max_loop_trips
    if limit is not None and rounds > limit:  # another provider may run the node
        raise UnsupportedError(
            f"slices of {upper_bound(parts):,} elements are sorted; "
            f"the loops of a software driver end after {limit:,} rounds",
            origin=node.origin,
        )
    value = context.operands.read(keys, of_key)
    wgsl_type = WGSL_TYPES[value.dtype]
    both = (("one", wgsl_type), ("other", wgsl_type))
    position = context.results.stores(coordinates, ex.register("value", "i32"))
    hooks = [
        *rows.find_hooks(),
        Hook("row_of", ("thread",), 1, (), ex.coordinate(row)),
        Hook("column_of", ("thread",), 1, (), ex.coordinate(column)),
        Hook("position", (*rows.names, "column"), 1, (), context.operands.read(order, coordinates)),
        Hook("key", (*rows.names, "place", "part"), 1, (), value),
        Hook("precedes", (), 1, both, precedes(value.dtype, attributes.largest)),
        Hook("store", (*rows.names, "column"), 1, (("value", "i32"),), None, position),
    ]
    config = MergeConfig()
    return context.built(
        Draft(
            "merge",
            config,
            hooks,
            dims={"threads": threads, "columns": rows.columns, "parts": parts},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=rounds,
            flops=ix.multiply(threads, 2 * searches),
            parameters={"row_names": rows.names, "run": attributes.run, "many_parts": parts != 1},
        )
    )


class Merge(KernelFamily):
    """``loom.MergeRuns``."""

    name = "merge"

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``MANY``: elements are compared with each other, so each is read several times."""
        return Reuse.MANY

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return merge_runs_array(operands[0], operands[1], node.attributes)

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Merge())
