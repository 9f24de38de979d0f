"""Ranges of whole tensors, and quantisation by them (:mod:`..ops.internal.ranges`).

A workgroup finds the range of a part of the tensor, in the order of memory.  Who needs the range of all of it finds
that of the parts' ends: a workgroup that computes scale and zero point, or each of those that quantise, so that no call
stands between.  Most kernels find the range of what they store besides (:mod:`..planning.kernel_ranges`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.dtypes import UINT8
from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes, shape_of
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
from .family import KernelFamily, Reuse, register_family
from .geometry import lanes_of, linear_grid, logical_coordinates, unflatten
from .groups import Region
from .loop_trips import upper_bound

#: Bytes of workgroup memory in which threads join their ranges
RANGE_BYTES = 8

#: Workgroups that quantise, at the most: each finds the range of all parts (three on each multiprocessor of an H200)
_MOST_WORKGROUPS = 396


@record
class RangeConfig:
    """``threads`` of a workgroup find one range."""

    threads: int

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 256:
            raise ValueError(f"a range is not found by {self.threads} threads")


def _configuration(target: Target) -> RangeConfig:
    return RangeConfig(target.max_workgroup_threads if target.has_cheap_barriers else target.group_threads)


def _built(
    context: GroupContext, template: str, hooks: Sequence[Hook], dims: dict[str, Dim], steps: Dim, grid: Dim
) -> BuiltKernel:
    """Build a kernel of ``grid`` workgroups that find ranges, whose threads share ``steps`` vectors."""
    config = _configuration(context.target)
    return context.built(
        Draft(
            template,
            config,
            hooks,
            dims=dims,
            threads=config.threads,
            grid=linear_grid(grid, 1, context.target),
            rounds=-(-upper_bound(steps) // config.threads),
            workgroup_bytes=RANGE_BYTES,
            flops=ix.product([2 * LANES, grid, steps]),
            parameters={"steps_of_range": STEPS},
        )
    )


def _guarded(context: GroupContext, operand: Value, coordinates: Sequence[Dim], flat: Dim, elements: Dim) -> Expr:
    """Return the element at ``coordinates``, the one of number ``flat``; 0 behind the last."""
    inside = ex.const(True, "bool") if ix.divide(elements, LANES) is not None else ex.in_range(flat, 0, elements)
    return ex.guard(inside, context.operands.read(operand, tuple(coordinates)), ex.const(0.0, "f32"))


def _element(context: GroupContext, operand: Value) -> tuple[Hook, Dim]:
    """Return the hook that loads vectors of a tensor in the order of its memory, and how many there are."""
    axes = operand.layout.physical_axes(operand.shape)
    elements = ix.product([size for _, size in axes])
    vectors = ix.ceildiv(elements, LANES)
    flat = lanes_of(ix.coordinate("vector", vectors))
    element = _guarded(context, operand, logical_coordinates(axes, flat), flat, elements)
    return Hook("element", ("vector",), LANES, (), element), vectors


class PartialRange(KernelFamily):
    """``loom.PartialRange``: a workgroup has a run of the tensor's memory."""

    name = "partial_range"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        (ends,) = shape_of(node.output, sizes)
        return partial_range(operands[0], ends // 2)

    def build(self, context: GroupContext) -> BuiltKernel:
        node, parts = context.anchor, context.anchor.attributes.parts
        loads, vectors = _element(context, node.operand(0))
        run = ix.ceildiv(vectors, parts)
        place = ix.coordinate("place", ix.multiply(parts, 2))
        stores = context.results.stores((place,), ex.register("value", "f32"))
        hooks = [loads, Hook("store_range", ("place",), 1, (("value", "f32"),), None, stores)]
        return _built(context, "partial_range", hooks, {"vectors": vectors, "run": run}, run, parts)


class RangeParameters(KernelFamily):
    """``loom.RangeParameters``: one workgroup."""

    name = "range_parameters"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        scale, zero = range_parameters(operands[0])
        return np.array([scale.view(np.int32), zero], np.int32)

    def build(self, context: GroupContext) -> BuiltKernel:
        loads, vectors = _element(context, context.anchor.operand(0))
        stores = context.results.stores((ix.coordinate("place", 2),), ex.register("value", "i32"))
        hooks = [loads, Hook("store", ("place",), 1, (("value", "i32"),), None, stores)]
        return _built(context, "range_parameters", hooks, {"vectors": vectors}, vectors, 1)


class QuantizeWords(KernelFamily):
    """``loom.QuantizeWords``: a thread quantises some words."""

    name = "quantize_words"

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        value = region.anchor.operand(0)
        return [(value, value.rank - 1)]

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return MANY for what the range is found of: each workgroup reads all of it."""
        return Reuse.MANY if operand is user.operand(1) else Reuse.ONCE

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return quantized_words(operands)

    def build(self, context: GroupContext) -> BuiltKernel:
        value = context.anchor.operand(0)
        loads, vectors = _element(context, context.anchor.operand(1))
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
            loads,
            Hook("codes", ("word",), LANES, (("scale", "f32"), ("zero", "i32")), code),
            Hook("store", ("place",), 1, (("value", "u32"),), None, stores),
        ]
        threads = _configuration(context.target).threads
        grid = ix.maximum(ix.minimum(ix.ceildiv(words, threads), _MOST_WORKGROUPS), 1)
        steps = ix.add(vectors, ix.ceildiv(words, grid))
        return _built(context, "quantize_words", hooks, {"vectors": vectors, "words": words}, steps, grid)


register_family(PartialRange())
register_family(RangeParameters())
register_family(QuantizeWords())
