"""Sliding windows of convolutions and pools: their parameters, shape rules, and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....runtime.plan.errors import ShapeError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Builder
from .nodes import fields_of

#: The axis of [N, C, 1, W] that [N, C, W] lacks
_ROWS = np.array([2], np.int64)


@record
class WindowAttributes:
    """Explicit parameters: ``pads`` holds all begins, then all ends; one number for each spatial axis otherwise."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]


@record
class SizedWindowAttributes(WindowAttributes):
    """Besides, the spatial sizes of the result, which the others leave ambiguous."""

    output_spatial: tuple[Dim, ...]


def per_axis(node: Node, values: Sequence[int] | None, count: int, what: str) -> tuple[int, ...]:
    """Return an attribute with one positive number for each spatial axis, 1 for each where it is absent.

    Raise :class:`ShapeError` for other values.
    """
    if not values:
        return (1,) * count
    checks.require(len(values) == count, node, f"{what} {tuple(values)} does not fit {count} spatial axes")
    checks.require(all(value > 0 for value in values), node, f"{what} {tuple(values)} must be positive")
    return tuple(values)


def dilated(kernel: int, dilation: int) -> int:
    """Return the extent of a dilated kernel: elements from the first to the last that it touches."""
    return dilation * (kernel - 1) + 1


def resolve_pads(
    node: Node,
    auto_pad: str,
    pads: Sequence[int] | None,
    sizes: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """Return the explicit padding, all begins before all ends, of a window over spatial ``sizes``."""
    count = len(kernel)
    if auto_pad in ("", "NOTSET"):
        checks.require(not pads or len(pads) == 2 * count, node, f"pads {tuple(pads or ())} do not fit {count} axes")
        return tuple(pads) if pads else (0,) * (2 * count)
    if auto_pad == "VALID":
        return (0,) * (2 * count)
    checks.require_choice(node, "auto_pad", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    begins, ends = [], []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations):
        if stride == 1:
            total = dilated(extent, dilation) - 1
        else:
            static_size = checks.concrete(node, size, "a spatial size under auto_pad with strides")
            windows = -(-static_size // stride)
            total = max((windows - 1) * stride + dilated(extent, dilation) - static_size, 0)
        small = total // 2
        begin = small if auto_pad == "SAME_UPPER" else total - small
        begins.append(begin)
        ends.append(total - begin)
    return (*begins, *ends)


def window_count(
    node: Node, size: Dim, kernel: int, stride: int, dilation: int, begin: int, end: int, ceil_mode: bool = False
) -> Dim:
    """Return the number of windows along one axis.

    With ``ceil_mode`` the last may exceed the padded input, but never starts in the padding after the end. Raise
    :class:`ShapeError` for a window larger than the padded input.
    """
    room = ix.add(size, begin + end - dilated(kernel, dilation))
    text = f"a window of {dilated(kernel, dilation)} is larger than {ix.text(size)} with padding"
    try:
        checks.require(not ix.less(room, 0), node, text)
    except ix.Undecidable as error:
        raise ShapeError(f"{text} for some sizes", origin=node.origin) from error
    room = ix.maximum(room, 0)
    if not ceil_mode:
        return ix.add(ix.floordiv(room, stride), 1)
    starts_before_end = ix.ceildiv(ix.add(size, begin), stride)
    return ix.minimum(ix.add(ix.ceildiv(room, stride), 1), starts_before_end)


def slide(builder: Builder, op: str, attributes: WindowAttributes, *values: Value) -> Value:
    """Build ``loom.op`` of ``values``: [N, C, W] as [N, C, 1, W], as the kernels take two and three spatial axes."""
    flat = len(attributes.kernel) == 1
    if flat:
        values = tuple(builder.op("Unsqueeze", value, builder.constant(_ROWS)) for value in values)
        attributes = _with_two_axes(attributes)
    result = builder.op(op, *values, domain="loom", **fields_of(attributes))
    return builder.op("Squeeze", result, builder.constant(_ROWS)) if flat else result


def _with_two_axes(attributes: WindowAttributes) -> WindowAttributes:
    """Extend the parameters of one spatial axis to two, the first of which is trivial."""
    begin, end = attributes.pads
    plane = replace(
        attributes,
        kernel=(1, *attributes.kernel),
        strides=(1, *attributes.strides),
        pads=(0, begin, 0, end),
        dilations=(1, *attributes.dilations),
    )
    if isinstance(plane, SizedWindowAttributes):
        return replace(plane, output_spatial=(1, *plane.output_spatial))
    return plane
