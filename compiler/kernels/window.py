"""Pools: the largest element, the average or the p-norm of windows slid over the spatial axes.

Each thread computes one element of the result, or four neighbouring channels where channels are innermost.  A packed
result whose words are not runs of channels is computed a word per thread.  Windows are clipped before the loops, so
that padding costs nothing and never counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.errors import UnsupportedError
from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..codegen.types import VECTOR_TYPES, WGSL_TYPES
from ..ir.coordinates import Sizes, domain_variables
from ..ir.graph import Node, Shape, Value
from ..ir.layout import Layout, channels_last
from ..ops.internal.reduction import identity
from ..ops.onnx.pooling import PoolAttributes
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, OverflowFlags, Reuse, extremum_overflow, register_family
from .geometry import find_hooks, lanes_of, linear_grid, logical_coordinates, unflatten
from .groups import Region
from .rows.rows import exit_to_domain, memory_order
from .sliding_reference import pool


@record
class WindowConfig:
    """``lanes`` channels a thread; with ``words`` a thread computes the elements of a packed word one by one."""

    lanes: int
    words: bool
    workgroup: int = 64

    def __post_init__(self) -> None:
        if self.lanes not in (1, LANES) or (self.words and self.lanes != 1):
            raise ValueError(f"{self.lanes} lanes{' of words' if self.words else ''}")
        if not 1 <= self.workgroup <= 256:
            raise ValueError(f"workgroup must be 1 to 256, not {self.workgroup}")


@record
class WindowAxis:
    """A spatial axis as the template sees it: names of its coordinates, and constants."""

    output: str  #: coordinate of the window
    input: str  #: coordinate of an element
    size: str  #: dim of the input's size
    kernel: int
    stride: int
    begin: int
    end: int
    dilation: int


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a pool with its fused consumers."""
    node = context.anchor
    attributes: PoolAttributes = node.attributes
    operand, domain = node.operand(0), node.outputs[0].shape
    compute = operand.dtype.compute
    if attributes.kind != "max" and compute != "f32":
        raise UnsupportedError(f"{attributes.kind} pools of {operand.dtype}", origin=node.origin)
    order = _order(context)
    config = _configure(context, order)
    value_type = f"vec4<{WGSL_TYPES[compute]}>" if config.lanes == LANES else WGSL_TYPES[compute]
    inner = _names("input", node)
    element = context.operands.read(operand, _variables(inner, operand.shape, config.lanes))
    arithmetic = _arithmetic(attributes, element, inner, config.lanes, value_type, node)
    threads, elements, places = (
        _store_words(context, value_type) if config.words else _store_results(context, order, config.lanes, value_type)
    )
    taps = ix.product(attributes.kernel)
    repeats = LANES if config.words else 1
    work = 1 + sum(1 for inner in ex.walk(element) if inner.args)
    return context.built(
        Draft(
            "window",
            config,
            [*arithmetic, *places],
            dims={
                "threads": threads,
                "elements": elements,
                **{f"size_{i}": size for i, size in enumerate(operand.shape[2:])},
            },
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=repeats * _rounds(attributes.kernel),
            calls=repeats * ix.number(taps),
            flops=ix.multiply(ix.product(domain), ix.multiply(taps, work)),
            parameters={
                "axes": _axes(attributes),
                "names": _names("output", node),
                "value_type": value_type,
                "counts": attributes.kind == "average",
                "count_include_pad": attributes.count_include_pad,
            },
        )
    )


def _configure(context: GroupContext, order: list[int]) -> WindowConfig:
    """Return four channels a thread where loads and stores are vectors; a packed word otherwise, or one element."""
    lanes = _lanes(context, order)
    if context.group.output.dtype.packing == 1:
        return WindowConfig(lanes, False)
    owns_words = lanes == LANES and context.results.is_run(_outer(context.anchor, LANES))
    return WindowConfig(LANES, False) if owns_words else WindowConfig(1, True)


def _store_words(context: GroupContext, value_type: str) -> tuple[Dim, Dim, list[Hook]]:
    """Return the threads, the elements, and the hooks of the store and of the coordinates.

    Each thread computes one packed word.
    """
    output = context.group.output
    axes = output.layout.physical_axes(output.shape)
    elements = ix.product([size for _, size in axes])
    threads = ix.ceildiv(elements, LANES)
    coordinates = exit_to_domain(context, logical_coordinates(axes, _flat("element", elements)))
    target = exit_to_domain(context, logical_coordinates(axes, lanes_of(_flat("thread", threads))))
    stores = context.results.stores(target, ex.register("value", context.anchor.operand(0).dtype.compute))
    store = Hook("store", ("thread",), LANES, (("value", f"vec4<{value_type}>"),), None, stores)
    return threads, elements, [store, *_find_hooks(context, coordinates)]


def _store_results(context: GroupContext, order: list[int], lanes: int, value_type: str) -> tuple[Dim, Dim, list[Hook]]:
    """Return the threads, the elements, and the hooks of the store and of the coordinates.

    Each thread computes one result, or four neighbouring channels.
    """
    node = context.anchor
    sizes = [_size(node.outputs[0].shape, axis, lanes) for axis in order]
    threads = ix.product(sizes)
    by_axis = dict(zip(order, unflatten(_flat("element", threads), sizes), strict=True))
    coordinates = [by_axis[axis] for axis in range(len(order))]
    stores = context.results.stores(_outer(node, lanes), ex.register("value", node.operand(0).dtype.compute))
    store = Hook("store", _names("output", node), lanes, (("value", value_type),), None, stores)
    return threads, threads, [store, *_find_hooks(context, coordinates)]


def _flat(name: str, count: Dim) -> Dim:
    return ix.variable(name, 0, max(ix.bounds(count)[1] - 1, 0))


def _find_hooks(context: GroupContext, coordinates: Sequence[Dim]) -> list[Hook]:
    """Return the hooks that compute the coordinates of a result from the index of its element."""
    return find_hooks(_names("output", context.anchor), ("element",), coordinates)


def _rounds(kernel: tuple[int, ...]) -> int:
    """Return the trip count of nested loops over a window."""
    rounds = 0
    for size in reversed(kernel):
        rounds = size * (1 + rounds)
    return rounds


def _size(shape: tuple[Dim, ...], axis: int, lanes: int) -> Dim:
    return ix.floordiv(shape[axis], lanes) if axis == 1 else shape[axis]


def _variables(names: tuple[str, ...], shape: tuple[Dim, ...], lanes: int) -> tuple[Dim, ...]:
    """Return the coordinates called ``names``; the channel counts groups of ``lanes``."""
    coordinates = [
        ix.variable(name, 0, max(ix.bounds(_size(shape, axis, lanes))[1] - 1, 0)) for axis, name in enumerate(names)
    ]
    if lanes == LANES:
        coordinates[1] = lanes_of(coordinates[1])
    return tuple(coordinates)


def _names(side: str, node: Node) -> tuple[str, ...]:
    """Return the names of the coordinates of a window (``output``) or of an element (``input``)."""
    return ("batch", "channel", *(f"{side}_{axis}" for axis in range(node.outputs[0].rank - 2)))


def _outer(node: Node, lanes: int) -> Shape:
    """Return the coordinates of a thread's result."""
    return _variables(_names("output", node), node.outputs[0].shape, lanes)


def _order(context: GroupContext) -> list[int]:
    """Return the axes of the operand from the outermost to the innermost in memory."""
    operand = context.anchor.operand(0)
    return memory_order([context.operands.read(operand, domain_variables(operand.shape))], operand.shape)


def _lanes(context: GroupContext, order: list[int]) -> int:
    """Return four lanes where channels are innermost in memory and every load is a vector, else one."""
    node = context.anchor
    operand = node.operand(0)
    if order[-1] != 1 or ix.modulo(operand.shape[1], LANES) != 0 or operand.dtype.compute not in VECTOR_TYPES:
        return 1
    coordinates = _variables(_names("input", node), operand.shape, LANES)
    return LANES if context.operands.vectorizes(context.operands.read(operand, coordinates)) else 1


def _axes(attributes: PoolAttributes) -> tuple[WindowAxis, ...]:
    count = len(attributes.kernel)
    return tuple(
        WindowAxis(
            f"output_{i}",
            f"input_{i}",
            f"size_{i}",
            attributes.kernel[i],
            attributes.strides[i],
            attributes.pads[i],
            attributes.pads[count + i],
            attributes.dilations[i],
        )
        for i in range(count)
    )


def _arithmetic(
    attributes: PoolAttributes, element: Expr, parameters: tuple[str, ...], lanes: int, value_type: str, node: Node
) -> list[Hook]:
    """Return the hooks for an element's contribution, for combining two, for an empty window, and for the last step."""
    compute = element.dtype
    left, right, value = (ex.register(name, compute) for name in ("left", "right", "value"))
    exponent = ex.const(attributes.p, compute) if attributes.kind == "lp" else None
    start = ex.const(0, compute)
    last: Expr = value
    if attributes.kind == "max":
        start = ex.const(identity("max", node.operand(0).dtype), compute)
    elif attributes.kind == "average":
        last = ex.binary("div", value, ex.cast(ex.register("count", "i32"), compute))
    elif attributes.p == 2:
        element, last = ex.binary("mul", element, element), ex.unary("sqrt", value)
    elif exponent is not None:
        magnitude = ex.unary("abs", element)
        element = ex.binary("pow", magnitude, exponent)
        last = ex.binary("pow", value, ex.const(1.0 / attributes.p, compute))
    combined = ex.binary("max" if attributes.kind == "max" else "add", left, right)
    return [
        Hook("element", parameters, lanes, (), element),
        Hook("initial", (), 1, (), start),
        Hook("combine", (), lanes, (("left", value_type), ("right", value_type)), combined),
        Hook("finish", (), lanes, (("value", value_type), ("count", "i32")), last),
    ]


class Window(KernelFamily):
    """``loom.Pool``."""

    name = "window"
    stores_packed = True
    stores_halves = True
    stores_once = True

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``MANY``: windows overlap."""
        return Reuse.MANY

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the channels of the input as the axis to store innermost."""
        return [(region.anchor.operand(0), 1)]

    def output_layout(self, node: Node) -> Layout:
        return channels_last(node.outputs[0].rank)

    def overflow(self, node: Node, operands: Sequence[OverflowFlags]) -> OverflowFlags:
        return extremum_overflow(node.attributes.kind, operands[0])

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return pool(node, operands, sizes)

    def stored_run(self, context: GroupContext) -> Shape | None:
        return _outer(context.anchor, LANES) if _lanes(context, _order(context)) == LANES else None

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(Window())
