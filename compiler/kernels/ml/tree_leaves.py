"""Walks through decision trees, one thread for each row and tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.internal.tree_leaves import (
    CHILDREN,
    CODES,
    COMPARISONS,
    FEATURE_BIT,
    FEATURES,
    MISSING_BIT,
    ROOTS,
    THRESHOLDS,
    tree_leaves_array,
)
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, Reuse, register_family
from ..geometry import linear_grid, unflatten
from ..groups import Region


@record
class TreeLeavesConfig:
    """``workgroup`` threads a group; neighbours walk through neighbouring trees with one row."""

    workgroup: int = 64


class TreeLeaves(KernelFamily):
    """``loom.TreeLeaves``."""

    name = "tree_leaves"

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``MANY``: every tree reads the features of a row again."""
        return Reuse.MANY if user is region.anchor else Reuse.ONCE

    def why_exact(self, anchor: Node) -> str | None:
        return "leaves are positions"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return tree_leaves_array(list(operands), node.attributes.levels)

    def build(self, context: GroupContext) -> BuiltKernel:
        node, config = context.anchor, TreeLeavesConfig()
        shape, levels = node.output.shape, node.attributes.levels
        threads = ix.product(list(shape))
        return context.built(
            Draft(
                "tree_leaves",
                config,
                _hooks(context),
                dims={"threads": threads, "levels": levels},
                threads=config.workgroup,
                grid=linear_grid(threads, config.workgroup, context.target),
                rounds=levels,
                flops=ix.product([4 * max(levels, 1), threads]),
                parameters={
                    "comparisons": COMPARISONS,
                    "missing_bit": MISSING_BIT,
                    "feature_bit": FEATURE_BIT,
                },
            )
        )


def _hooks(context: GroupContext) -> list[Hook]:
    """Return the hooks: what a node holds, a feature of a thread's row, the root of its tree, and the store."""
    node, read = context.anchor, context.operands.read
    row, tree = unflatten(ix.coordinate("thread", ix.product(list(node.output.shape))), node.output.shape)
    at = ix.coordinate("at", node.operand(CODES).shape[0])
    column = ix.coordinate("column", node.operand(FEATURES).shape[1])
    side = ix.coordinate("side", 2)
    stores = context.results.stores((row, tree), ex.register("leaf", "i32"))
    return [
        Hook("root", ("thread",), 1, (), read(node.operand(ROOTS), (tree,))),
        Hook("code", ("at",), 1, (), read(node.operand(CODES), (at,))),
        Hook("threshold", ("at",), 1, (), read(node.operand(THRESHOLDS), (at,))),
        Hook("child", ("at", "side"), 1, (), read(node.operand(CHILDREN), (at, side))),
        Hook("feature", ("thread", "column"), 1, (), read(node.operand(FEATURES), (row, column))),
        Hook("store", ("thread",), 1, (("leaf", "i32"),), None, stores),
    ]


register_family(TreeLeaves())
