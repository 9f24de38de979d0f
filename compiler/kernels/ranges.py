"""Ranges of whole tensors, and quantisation by them (:mod:`..ops.internal.ranges`).

A workgroup finds the extremes of a part of the tensor, in the order of memory.  Who needs the range of all of it
reduces those of the parts: a workgroup that computes scale and zero point, or each of those that quantise, so that no
call stands between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.dtypes import UINT8
from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes
from ..ir.graph import Node, Value
from ..ops.internal.ranges import STEPS, partial_range, quantized_words, range_parameters, words_shape
from ..ops.onnx.quantize import quantized_integer
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from ..target import Target
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, register_family
from .geometry import lanes_of, linear_grid, logical_coordinates, unflatten
from .groups import Region
from .loop_trips import upper_bound

#: Workgroups that quantise, at the most: each reduces the extremes of all parts
_MOST_WORKGROUPS = 1024


@record
class RangeConfig:
    """``threads`` of a workgroup reduce one range, a power of two."""

    threads: int

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 256 or self.threads & (self.threads - 1):
            raise ValueError(f"a range is not reduced by {self.threads} threads")

    @property
    def levels(self) -> tuple[int, ...]:
        """Distances at which threads combine their extremes, one after another."""
        return tuple(1 << level for level in reversed(range(self.threads.bit_length() - 1)))

    @property
    def workgroup_bytes(self) -> int:
        return 8 * self.threads


def _configuration(target: Target) -> RangeConfig:
    return RangeConfig(target.max_workgroup_threads if target.has_cheap_barriers else target.group_threads)


def _built(
    context: GroupContext, template: str, hooks: Sequence[Hook], dims: dict[str, Dim], steps: Dim, grid: Dim
) -> BuiltKernel:
    """Build a kernel of ``grid`` workgroups that reduce ranges, whose threads share ``steps`` vectors."""
    config = _configuration(context.target)
    combine = ex.binary("max", ex.register("left", "f32"), ex.register("right", "f32"))
    both = [
        Hook(f"combine_{lanes}", (), lanes, (("left", kind), ("right", kind)), combine)
        for lanes, kind in ((1, "f32"), (LANES, "vec4<f32>"))
    ]
    return context.built(
        Draft(
            template,
            config,
            [*both, *hooks],
            dims=dims,
            threads=config.threads,
            grid=linear_grid(grid, 1, context.target),
            rounds=-(-upper_bound(steps) // config.threads),
            workgroup_bytes=config.workgroup_bytes,
            flops=ix.product([2 * LANES, grid, steps]),
            parameters={"levels": config.levels, "steps_of_range": STEPS},
        )
    )


def _guarded(context: GroupContext, operand: Value, coordinates: Sequence[Dim], flat: Dim, elements: Dim) -> Expr:
    """Return the element at ``coordinates``, the one of number ``flat``; 0 behind the last."""
    inside = ex.const(True, "bool") if ix.divide(elements, LANES) is not None else ex.in_range(flat, 0, elements)
    return ex.guard(inside, context.operands.read(operand, tuple(coordinates)), ex.const(0.0, "f32"))


def _extremes(context: GroupContext, operand: Value) -> tuple[list[Hook], Dim]:
    """Return the hooks that load vectors of extremes [2, n], and how many there are."""
    count = operand.shape[1]
    vectors = ix.ceildiv(count, LANES)
    flat = lanes_of(ix.coordinate("vector", vectors))
    hooks = [
        Hook(name, ("vector",), LANES, (), _guarded(context, operand, (row, flat), flat, count))
        for row, name in enumerate(("tops", "bottoms"))
    ]
    return hooks, vectors


class PartialRange(KernelFamily):
    """``loom.PartialRange``: a workgroup has a run of the tensor's memory."""

    name = "partial_range"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return partial_range(operands[0], node.attributes.parts)

    def build(self, context: GroupContext) -> BuiltKernel:
        node, parts = context.anchor, context.anchor.attributes.parts
        value = node.operand(0)
        axes = value.layout.physical_axes(value.shape)
        elements = ix.product([size for _, size in axes])
        vectors = ix.ceildiv(elements, LANES)
        run = ix.ceildiv(vectors, parts)
        flat = lanes_of(ix.coordinate("vector", vectors))
        element = _guarded(context, value, logical_coordinates(axes, flat), flat, elements)
        place = (ix.coordinate("sign", 2), ix.coordinate("part", parts))
        stores = context.results.stores(place, ex.register("value", "f32"))
        hooks = [
            Hook("element", ("vector",), LANES, (), element),
            Hook("store", ("sign", "part"), 1, (("value", "f32"),), None, stores),
        ]
        return _built(context, "partial_range", hooks, {"vectors": vectors, "run": run}, run, parts)


class RangeParameters(KernelFamily):
    """``loom.RangeParameters``: one workgroup."""

    name = "range_parameters"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        scale, zero = range_parameters(operands[0])
        return np.array([scale.view(np.int32), zero], np.int32)

    def build(self, context: GroupContext) -> BuiltKernel:
        loads, vectors = _extremes(context, context.anchor.operand(0))
        stores = context.results.stores((ix.coordinate("place", 2),), ex.register("value", "i32"))
        hooks = [*loads, Hook("store", ("place",), 1, (("value", "i32"),), None, stores)]
        return _built(context, "range_parameters", hooks, {"extremes": vectors}, vectors, 1)


class QuantizeWords(KernelFamily):
    """``loom.QuantizeWords``: a thread quantises some words."""

    name = "quantize_words"

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        value = region.anchor.operand(0)
        return [(value, value.rank - 1)]

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return quantized_words(operands)

    def build(self, context: GroupContext) -> BuiltKernel:
        value = context.anchor.operand(0)
        loads, extremes = _extremes(context, context.anchor.operand(1))
        shape = words_shape(value.shape)
        words = ix.product(list(shape))
        *outer, word = unflatten(ix.coordinate("word", words), shape)
        channel = lanes_of(word)
        element = _guarded(context, value, (*outer, channel), channel, value.shape[-1])
        code = quantized_integer(element, ex.register("scale", "f32"), ex.register("zero", "i32"), UINT8)
        inside = ex.const(True, "bool")
        if ix.divide(value.shape[-1], LANES) is None:
            inside = ex.in_range(channel, 0, value.shape[-1])
        code = ex.select(inside, code, ex.const(128, "i32"))
        stores = context.results.stores((ix.coordinate("place", ix.add(words, 2)),), ex.register("value", "u32"))
        hooks = [
            *loads,
            Hook("codes", ("word",), LANES, (("scale", "f32"), ("zero", "i32")), code),
            Hook("store", ("place",), 1, (("value", "u32"),), None, stores),
        ]
        threads = _configuration(context.target).threads
        grid = ix.maximum(ix.minimum(ix.ceildiv(words, threads), _MOST_WORKGROUPS), 1)
        steps = ix.add(extremes, ix.ceildiv(words, grid))
        return _built(context, "quantize_words", hooks, {"extremes": extremes, "words": words}, steps, grid)


register_family(PartialRange())
register_family(RangeParameters())
register_family(QuantizeWords())
