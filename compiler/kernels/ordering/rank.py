"""Positions of the first ``k`` elements of each row in sorted order.

Every element counts how many come before it: that is its place, and no other element has it.  All elements are
independent, so the result is the same on every device.  Elements are compared with those of their row, or with those
of their run of a long row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...codegen.types import WGSL_TYPES
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.onnx.topk import top_indices_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, Reuse, register_family
from ..geometry import linear_grid, unflatten
from ..groups import Region
from ..loop_trips import upper_bound
from ..rows.rows import rows_along


@record
class RankConfig:
    """One thread an element, ``workgroup`` threads a group."""

    workgroup: int = 64


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a TopIndices with its fused consumers."""
    node = context.anchor
    operand, attributes = node.operand(0), node.attributes
    rows = rows_along(context, operand, attributes.axis)
    coordinates = rows.coordinates()
    value = context.operands.read(operand, coordinates)
    threads = ix.multiply(rows.rows, rows.columns)
    thread = ix.variable("thread", 0, max(ix.bounds(threads)[1] - 1, 0))
    row, column = unflatten(thread, [rows.rows, rows.columns])
    stored = node.output.shape[attributes.axis]
    rank = ex.as_index(ex.register("rank", "i32"), 0, max(ix.bounds(stored)[1] - 1, 0))
    result_coordinates = tuple(
        rank if axis == attributes.axis else coordinate for axis, coordinate in enumerate(coordinates)
    )
    wgsl_type = WGSL_TYPES[value.dtype]
    both = (("one", wgsl_type), ("other", wgsl_type))
    hooks = [
        *rows.find_hooks(),
        Hook("row_of", ("thread",), 1, (), ex.coordinate(row)),
        Hook("column_of", ("thread",), 1, (), ex.coordinate(column)),
        Hook("element", (*rows.names, "column"), 1, (), value),
        Hook("precedes", (), 1, both, precedes(value.dtype, attributes.largest)),
        Hook(
            "store",
            rows.names,
            1,
            (("rank", "i32"), ("place", "i32")),
            None,
            context.results.stores(result_coordinates, ex.register("place", "i32")),
        ),
    ]
    config = RankConfig()
    return context.built(
        Draft(
            "rank",
            config,
            hooks,
            dims={"threads": threads, "columns": rows.columns, "k": attributes.k},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=upper_bound(rows.columns if attributes.run is None else attributes.run),
            flops=ix.multiply(threads, ix.multiply(rows.columns, 2)),
            parameters={"row_names": rows.names, "run": attributes.run},
        )
    )


def precedes(compute: str, largest: bool) -> Expr:
    """Return the condition that ``one`` precedes ``other`` by value; NaN counts as larger than any number."""
    one, other = ex.register("one", compute), ex.register("other", compute)
    if not largest:
        one, other = other, one
    larger = ex.compare("gt", one, other)
    if compute != "f32":
        return larger
    not_a_number = ex.binary("and", ex.unary("isnan", one), ex.unary("not", ex.unary("isnan", other)))
    return ex.binary("or", larger, not_a_number)


class Rank(KernelFamily):
    """``loom.TopIndices``."""

    name = "rank"

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``MANY``: elements are compared with each other, so each is read several times."""
        return Reuse.MANY

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return top_indices_array(
            operands[0],
            node.attributes.axis,
            int(ix.evaluate(node.attributes.k, sizes)),
            node.attributes.largest,
            node.attributes.run,
        )

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Rank())
