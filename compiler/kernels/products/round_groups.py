"""Activations rounded to bytes with a scale for each group of terms (``loom.RoundGroups``), which threads share.

Their numbers stay in registers from the search for the largest magnitude to the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT8
from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.internal.byte_products import LARGEST_BYTE, WORD_BYTES, group_scales, rounded_groups
from ...ops.onnx.quantize import quantized_integer
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, register_family
from ..geometry import lanes_of, linear_grid, unflatten
from ..groups import Region

#: Terms of a thread: four words of bytes
_TERMS = 16
#: Operations for a number: its magnitude, the comparison, the quotient, and the rounding
_OPERATIONS = 4


@record
class RoundGroupsConfig:
    """Neighbouring threads, of ``workgroup`` in a workgroup, round a ``group`` of terms, a multiple of 32 up to 128."""

    group: int
    workgroup: int = 64


class RoundGroups(KernelFamily):
    """``loom.RoundGroups``."""

    name = "round_groups"

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        value = region.anchor.operand(0)
        return [(value, value.rank - 1)]

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return rounded_groups(operands[0], node.attributes.group, node.attributes.stride)

    def build(self, context: GroupContext) -> BuiltKernel:
        node, config = context.anchor, RoundGroupsConfig(context.anchor.attributes.group)
        value, vectors = node.operand(0), config.group // LANES
        scales = group_scales(value.shape, config.group)
        groups = ix.product(list(scales))
        group = ix.coordinate("number", groups)
        *row, number = unflatten(group, scales)
        term = ix.add(ix.multiply(number, config.group), lanes_of(ix.coordinate("vector", vectors)))
        words = ix.multiply(groups, config.group // WORD_BYTES)
        word = lanes_of(ix.coordinate("quad", ix.floordiv(words, LANES)))
        vector, scale = ex.register("value", "f32"), ex.register("scale", "f32")
        magnitude = ex.binary("max", ex.register("largest", "f32"), ex.unary("abs", vector))
        stored = context.results.stores((word,), ex.register("value", "u32"))
        stored_scale = context.results.stores((ix.add(words, group),), ex.bitcast(scale, "u32"))
        values, one_scale = ("value", "vec4<f32>"), ("scale", "f32")
        hooks = [
            Hook("terms", ("number", "vector"), LANES, (), context.operands.read(value, (*row, term))),
            Hook("larger", (), LANES, (("largest", "vec4<f32>"), values), magnitude),
            Hook("codes", (), LANES, (values, one_scale), quantized_integer(vector, scale, None, INT8)),
            Hook("store_words", ("quad",), LANES, (("value", "vec4<u32>"),), None, stored),
            Hook("store_scale", ("number",), 1, (one_scale,), None, stored_scale),
        ]
        return context.built(
            Draft(
                "round_groups",
                config,
                hooks,
                dims={"groups": groups},
                threads=config.workgroup,
                grid=linear_grid(ix.multiply(groups, config.group // _TERMS), config.workgroup, context.target),
                rounds=0,
                workgroup_bytes=4 * config.workgroup,
                flops=ix.multiply(_OPERATIONS * config.group, groups),
                parameters={"stride": node.attributes.stride, "steps": LARGEST_BYTE},
            )
        )


register_family(RoundGroups())
