"""Elements go to places that are read: a permutation, so that each place is written once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...codegen.types import WGSL_TYPES
from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...ops.internal.sorting import permute_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, register_family
from ..geometry import linear_grid


@record
class PermuteConfig:
    """One thread an element, ``workgroup`` threads a group."""

    workgroup: int = 64


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a Permute with its fused consumers."""
    node = context.anchor
    operand, order = node.operand(0), node.operand(1)
    (threads,) = operand.shape
    most = max(ix.bounds(threads)[1] - 1, 0)
    thread = ix.variable("thread", 0, most)
    value = context.operands.read(operand, (thread,))
    goal = ex.as_index(ex.register("goal", "i32"), 0, most)
    stores = context.results.stores((goal,), ex.register("value", value.dtype))
    config = PermuteConfig()
    return context.built(
        Draft(
            "permute",
            config,
            [
                Hook("element", ("thread",), 1, (), value),
                Hook("place", ("thread",), 1, (), context.operands.read(order, (thread,))),
                Hook("store", (), 1, (("goal", "i32"), ("value", WGSL_TYPES[value.dtype])), None, stores),
            ],
            dims={"threads": threads},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=0,
            flops=threads,
        )
    )


class Permute(KernelFamily):
    """``loom.Permute``."""

    name = "permute"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return permute_array(operands[0], operands[1])

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Permute())
