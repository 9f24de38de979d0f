"""Position of the largest or smallest element along an axis.

One thread a row, or ``strips`` threads that compare their findings as a tree in workgroup memory.  Of equal elements
the first counts, or the last with ``select_last_index``; NaN is larger and smaller than any number, as in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import ShapeError
from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...codegen.types import WGSL_TYPES
from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...ops.internal.reduction import ArgReduceAttributes, arg_reduce_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, register_family
from ..geometry import linear_grid
from ..loop_trips import filter_by_trips
from .reduce_config import share
from .rows import rows_along


@record
class ArgReduceConfig:
    """A workgroup covers ``rows`` rows with ``strips`` threads each."""

    rows: int
    strips: int

    def __post_init__(self) -> None:
        if self.strips < 1 or self.strips & (self.strips - 1):
            raise ValueError(f"strips must be a power of two, not {self.strips}")
        if not 1 <= self.rows * self.strips <= 256:
            raise ValueError(f"a workgroup of {self.rows} x {self.strips} threads")


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of an ArgReduce with its fused consumers."""
    node = context.anchor
    operand, attributes = node.operand(0), node.attributes
    if ix.bounds(operand.shape[attributes.axis])[1] == 0:
        raise ShapeError("there is no largest or smallest of no elements", origin=node.origin)
    rows = rows_along(context, operand, attributes.axis)
    many, long = (max(ix.bounds(size)[1], 1) for size in (rows.rows, rows.columns))
    shared = share(context.target, many, long, rows.columns_are_contiguous)
    (shared, *_) = filter_by_trips(context.target, [shared, (1, 64), (1, 256)], lambda each: -(-long // each[1]))
    config = ArgReduceConfig(*shared)
    coordinates = rows.coordinates()
    value = context.operands.read(operand, coordinates)
    result_coordinates = [
        (0 if axis == attributes.axis else coordinate)
        for axis, coordinate in enumerate(coordinates)
        if attributes.keepdims or axis != attributes.axis
    ]
    place = ex.cast(ex.register("place", "i32"), "i64")
    wgsl_type = WGSL_TYPES[value.dtype]
    hooks = [
        *rows.find_hooks(),
        Hook("element", (*rows.names, "column"), 1, (), value),
        Hook("replaces", (), 1, (("later", wgsl_type), ("earlier", wgsl_type)), _replaces(value.dtype, attributes)),
        Hook("store", rows.names, 1, (("place", "i32"),), None, context.results.stores(result_coordinates, place)),
    ]
    size = config.rows * config.strips
    element_bytes = 8 if wgsl_type.startswith("vec2") else 4
    return context.built(
        Draft(
            "arg_reduce",
            config,
            hooks,
            dims={"rows": rows.rows, "columns": rows.columns},
            threads=size,
            grid=linear_grid(ix.ceildiv(rows.rows, config.rows), 1, context.target),
            rounds=-(-long // config.strips),
            workgroup_bytes=0 if config.strips == 1 else size * (4 + element_bytes),
            flops=ix.multiply(operand.elements, 1 + sum(1 for inner in ex.walk(value) if inner.args)),
            parameters={
                "element_type": wgsl_type,
                "row_names": rows.names,
                "columns_are_contiguous": rows.columns_are_contiguous,
                "halves": tuple(1 << level for level in reversed(range(config.strips.bit_length() - 1))),
            },
        )
    )


def _replaces(compute: str, attributes: ArgReduceAttributes) -> Expr:
    """Return the condition that the element at a later position replaces the one at an earlier position."""
    later, earlier = ex.register("later", compute), ex.register("earlier", compute)
    if attributes.select_last_index:
        return ex.unary("not", _beats(earlier, later, attributes.kind))
    return _beats(later, earlier, attributes.kind)


def _beats(one: Expr, other: Expr, kind: str) -> Expr:
    beats = ex.compare("gt" if kind == "max" else "lt", one, other)
    if one.dtype != "f32":
        return beats
    numbers = ex.binary("or", ex.unary("isnan", one), beats)
    return ex.binary("and", ex.unary("not", ex.unary("isnan", other)), numbers)


class ArgReduce(KernelFamily):
    """``loom.ArgReduce``."""

    name = "arg_reduce"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return arg_reduce_array(operands[0], node.attributes)

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(ArgReduce())
