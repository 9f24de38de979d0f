"""Merging the parts of an attention: a workgroup for each query of a head, whose threads share its parts.

``load_part(row, part, step)``   four neighbouring elements of a part; behind the last of its sums the vector with its
                                 highest score and its sum of powers
``store(row, step, value)``      four neighbouring results, pushed through the epilogue
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes
from ..ir.graph import Node, Shape
from ..ops.internal.softmax_product import merged_array, padded_size
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, register_family
from .geometry import lanes_of, linear_grid, unflatten

#: Threads of a workgroup
THREADS = 128


@record
class PartsConfig:
    """``slices`` of the parts have threads of their own, one for each of ``vectors`` vectors of the result."""

    vectors: int
    slices: int

    @property
    def threads(self) -> int:
        return self.vectors * self.slices


class AttentionMerge(KernelFamily):
    """``loom.MergeParts``."""

    name = "attention_merge"
    stores_halves = True
    stores_once = True

    def vector_axis(self, anchor: Node) -> int | None:
        return -1

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return merged_array(operands[0], node.attributes, sizes)

    def stored_run(self, context: GroupContext) -> Shape | None:
        *rows, size = context.anchor.output.shape
        whole = ix.number(size) % LANES == 0
        return (*unflatten(ix.coordinate("row", ix.product(rows)), tuple(rows)), _elements(size)) if whole else None

    def build(self, context: GroupContext) -> BuiltKernel:
        node = context.anchor
        *rows, size = node.output.shape
        count, parts = ix.product(rows), ix.number(node.operand(0).shape[-2])
        vectors = -(-ix.number(size) // LANES)
        threads = min(THREADS, context.target.max_workgroup_threads)
        config = PartsConfig(vectors, max(min(threads // vectors, parts), 1))
        attributes = node.attributes
        return context.built(
            Draft(
                "attention_merge",
                config,
                _hooks(context),
                dims={"rows": count, "keys": attributes.keys},
                threads=config.threads,
                grid=linear_grid(count, 1, context.target),
                rounds=-(-parts // config.slices) + config.slices,
                workgroup_bytes=24 * config.threads,
                flops=ix.product([4, parts, count, size]),
                parameters={
                    "parts": parts,
                    "zero_rows": attributes.zero_rows,
                    "may_be_empty": ix.bounds(attributes.keys)[0] < 1,
                },
            )
        )


def _elements(size: Dim) -> Dim:
    return lanes_of(ix.coordinate("step", -(-ix.number(size) // LANES)))


def _hooks(context: GroupContext) -> list[Hook]:
    node = context.anchor
    *rows, size = node.output.shape
    row = unflatten(ix.coordinate("row", ix.product(rows)), tuple(rows))
    vectors = padded_size(ix.number(size)) // LANES
    part, step = ix.coordinate("part", node.operand(0).shape[-2]), ix.coordinate("step", vectors + 1)
    value = context.operands.read(node.operand(0), (*row, part, lanes_of(step)))
    at = _elements(size)
    inside = None if ix.number(size) % LANES == 0 else ex.in_range(at, 0, size)
    stores = context.results.stores((*row, at), ex.register("value", "f32"), inside)
    return [
        Hook("load_part", ("row", "part", "step"), LANES, (), value),
        Hook("store", ("row", "step"), LANES, (("value", "vec4<f32>"),), None, stores),
    ]


register_family(AttentionMerge())
