"""Running sums and products along an axis.

One thread a row, or ``strips`` threads that share one: each combines its own run of columns, the runs before it give
where it starts, and it walks its columns again and stores.  The order of operations depends on the configuration alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...codegen.types import WGSL_TYPES
from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...ops.onnx.cumulative import cumulate_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, register_family
from ..geometry import linear_grid
from ..loop_trips import filter_by_trips
from .rows import rows_along

_COMBINE = {"sum": "add", "prod": "mul"}
#: Columns that a thread walks before it pays to share a row
_LONG = 256


@record
class ScanConfig:
    """A workgroup covers ``rows`` rows with ``strips`` threads each; one of the two is 1."""

    rows: int
    strips: int

    def __post_init__(self) -> None:
        if min(self.rows, self.strips) != 1 or not 1 <= self.rows * self.strips <= 256:
            raise ValueError(f"a workgroup of {self.rows} x {self.strips} threads")


def _rounds(config: ScanConfig, columns: int) -> int:
    run = -(-columns // config.strips)
    return run if config.strips == 1 else 2 * run + config.strips


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a Cumulate with its fused consumers."""
    node = context.anchor
    operand, attributes = node.operand(0), node.attributes
    rows = rows_along(context, operand, attributes.axis)
    coordinates = rows.coordinates()
    value = context.operands.read(operand, coordinates)
    many, long = (max(ix.bounds(size)[1], 1) for size in (rows.rows, rows.columns))
    config = ScanConfig(1, 64) if long > _LONG and many < 1024 else ScanConfig(64, 1)
    (config, *_) = filter_by_trips(
        context.target, [config, ScanConfig(1, 64), ScanConfig(1, 256)], lambda each: _rounds(each, long)
    )
    wgsl_type = WGSL_TYPES[value.dtype]
    both = (("left", wgsl_type), ("right", wgsl_type))
    left, right = (ex.register(name, value.dtype) for name, _ in both)
    hooks = [
        *rows.find_hooks(),
        Hook("element", (*rows.names, "column"), 1, (), value),
        Hook("combine", (), 1, both, ex.binary(_COMBINE[attributes.kind], left, right)),
        Hook("initial", (), 1, (), ex.const(int(attributes.kind == "prod"), value.dtype)),
        Hook(
            "store",
            (*rows.names, "column"),
            1,
            (("value", wgsl_type),),
            None,
            context.results.stores(coordinates, ex.register("value", value.dtype)),
        ),
    ]
    return context.built(
        Draft(
            "scan",
            config,
            hooks,
            dims={"rows": rows.rows, "columns": rows.columns, "run": ix.ceildiv(rows.columns, config.strips)},
            threads=config.rows * config.strips,
            grid=linear_grid(ix.ceildiv(rows.rows, config.rows), 1, context.target),
            rounds=_rounds(config, long),
            workgroup_bytes=0 if config.strips == 1 else config.strips * (8 if wgsl_type.startswith("vec2") else 4),
            flops=operand.elements,
            parameters={
                "element_type": wgsl_type,
                "row_names": rows.names,
                "exclusive": attributes.exclusive,
                "reverse": attributes.reverse,
            },
        )
    )


class Scan(KernelFamily):
    """``loom.Cumulate``."""

    name = "scan"
    keeps_positions = True

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return cumulate_array(operands[0], node.attributes)

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Scan())
