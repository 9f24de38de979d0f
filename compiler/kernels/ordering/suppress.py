"""Kernel of non-maximum suppression in order of scores: a workgroup for each batch and class.

A block of boxes at a time, one a thread.  Each thread compares its box with those that were chosen before, which are
bits in workgroup memory, and with those in front of it in the block; then one thread decides the block from these bits.
So every box is compared with what was chosen alone, and a class is done as soon as it has enough boxes or the scores
are too low.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.onnx.suppression import BEFORE, CORNERS, MOST, ORDER, OVERLAP, SCORE, SCORES, choose_boxes_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, Reuse, by_position, register_family
from ..groups import Region


@record
class SuppressConfig:
    """``block`` boxes, one a thread, are decided together; their bits fill whole words."""

    block: int

    def __post_init__(self) -> None:
        if self.block % 32 or not 32 <= self.block <= 256:
            raise ValueError(f"a block of {self.block} boxes")


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a ChooseBoxes with its fused consumers."""
    node, attributes = context.anchor, context.anchor.attributes
    batches, classes, size = (ix.number(dim) for dim in node.operand(ORDER).shape)
    config = SuppressConfig(attributes.block)
    words = -(-size // 32)
    rows_of_bits = config.block // 32
    workgroup_bytes = 4 * (words + rows_of_bits * (config.block + 1) + 2)
    allowed = context.target.limit("max-compute-workgroup-storage-size")
    if workgroup_bytes > allowed:
        raise UnsupportedError(
            f"the bits of {size:,} boxes need {workgroup_bytes:,} bytes of workgroup memory, the device allows "
            f"{allowed:,}",
            origin=node.origin,
        )
    return context.built(
        Draft(
            "suppress",
            config,
            _hooks(context),
            dims={"size": size},
            threads=config.block,
            grid=(classes, batches, 1),
            workgroup_bytes=workgroup_bytes,
            rounds=attributes.rounds,
            flops=ix.product([16, batches, classes, size, config.block]),
            parameters={
                "words": words,
                "block": config.block,
                "block_words": rows_of_bits,
                "first": attributes.first,
                "stop": attributes.stop,
                "has_before": node.optional(BEFORE) is not None,
                "has_least": node.optional(SCORE) is not None,
            },
        )
    )


def _hooks(context: GroupContext) -> list[Hook]:
    """Return the hooks for elements of the operands, for thresholds (zero for absent ones), and for the store."""
    node, read = context.anchor, context.operands.read
    order, before = node.operand(ORDER), node.optional(BEFORE)
    batches, classes, size = order.shape
    batch, kind = ix.coordinate("batch", batches), ix.coordinate("kind", classes)
    place, box, side = ix.coordinate("place", size), ix.coordinate("box", size), ix.coordinate("side", 4)
    row = ("batch", "kind")

    def threshold(position: int) -> ex.Expr:
        operand = node.optional(position)
        return ex.const(0.0, "f32") if operand is None else read(operand, (0,))

    hooks = [
        Hook("box_at", (*row, "place"), 1, (), read(order, (batch, kind, place))),
        Hook("corner", ("batch", "box", "side"), 1, (), read(node.operand(CORNERS), (batch, box, side))),
        Hook("most", (), 1, (), read(node.operand(MOST), (0,))),
        Hook("largest_overlap", (), 1, (), threshold(OVERLAP)),
    ]
    stores = context.results.stores((batch, kind, place), ex.register("value", "i32"))
    hooks.append(Hook("store", (*row, "place"), 1, (("value", "i32"),), None, stores))
    if node.optional(SCORE) is not None:
        hooks.append(Hook("score", (*row, "box"), 1, (), read(node.operand(SCORES), (batch, kind, box))))
        hooks.append(Hook("least_score", (), 1, (), threshold(SCORE)))
    if before is not None:
        hooks.append(Hook("was_chosen", (*row, "place"), 1, (), read(before, (batch, kind, place))))
    return hooks


class Suppress(KernelFamily):
    """``loom.ChooseBoxes``."""

    name = "suppress"

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``MANY``: elements are compared with each other, so each is read several times."""
        return Reuse.MANY

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return choose_boxes_array(node, by_position(node, operands))

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Suppress())
