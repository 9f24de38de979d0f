"""Inputs and outputs beyond a binding: several of the graph, each a window of the model's.

A window is rows of the outermost axis: neighbours in memory, at an offset that a binding may begin at.  The plan has
the whole as one input or output, of which kernels bind ranges.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ...runtime.plan.dtypes import DType
from ..ir.graph import Graph, PortWindow, Shape, Value
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix
from ..target import Target


def binding_bytes(value: Value) -> int:
    """Return the bytes of a tensor of fixed size; the type that the file declares counts."""
    return math.prod(map(ix.number, value.shape)) * (value.storage or value.dtype).itemsize


def exceeds(value: Value, limit: int) -> bool:
    """Return whether a tensor of fixed size is larger than ``limit`` bytes: of others a run has the last word."""
    return all(isinstance(size, int) for size in value.shape) and binding_bytes(value) > limit


def outermost(shape: Shape) -> int:
    """Return the first axis with more than one element."""
    return next((axis for axis, size in enumerate(shape) if size != 1), 0)


def window_rows(shape: Shape, dtype: DType, target: Target, limit: int) -> tuple[int, int]:
    """Return of how many rows those of a window are a multiple, and how many it has at most.

    Windows begin where a binding may begin on any device.
    """
    row = math.prod(map(ix.number, shape[outermost(shape) + 1 :])) * dtype.itemsize
    alignment = math.lcm(target.storage_alignment, 256)
    multiple = alignment // math.gcd(row, alignment)
    return multiple, limit // row // multiple * multiple


def divide_inputs(graph: Graph, target: Target, limit: int, whole: Collection[str]) -> int:
    """Replace inputs beyond ``limit`` by windows, which readers read side by side; return the number of such inputs.

    Those named in ``whole`` stay.
    """
    count = 0
    for value in list(graph.inputs):
        dtype = value.storage or value.dtype
        if value.name in whole or not value.uses or value in graph.outputs:
            continue
        if _is_divisible(value, dtype, target, limit):
            _divide_input(graph, value, window_rows(value.shape, dtype, target, limit)[1])
            count += 1
    return count


def _divide_input(graph: Graph, value: Value, most: int) -> None:
    axis = outermost(value.shape)
    position, extent = graph.inputs.index(value), ix.number(value.shape[axis])
    row = ix.number(ix.product(value.shape[axis + 1 :]))
    parts = []
    for start in range(0, extent, most):
        stop = min(start + most, extent)
        shape = (*value.shape[:axis], stop - start, *value.shape[axis + 1 :])
        part = graph.new_value(f"{value.name}[{start}:{stop}]", value.dtype, shape)
        part.storage = value.storage
        graph.windows[part.name] = PortWindow(value.name, value.shape, start * row)
        parts.append(part)
    graph.inputs[position : position + 1] = parts
    readers = list(value.uses)
    whole = GraphBuilder(graph, value.user.origins).op("Concat", *parts, axis=axis)
    for node, at in readers:
        graph.set_input(node, at, whole)
    graph.sort()


def may_be_windows(graph: Graph, value: Value, target: Target, whole: Collection[str]) -> bool:
    """Return whether a value is a large output of the graph that several may replace; it is none of ``whole``."""
    if graph.outputs.count(value) != 1 or graph.output_names[graph.outputs.index(value)] in whole:
        return False
    return _is_divisible(value, output_dtype(graph, value), target, target.largest_tensor)


def output_dtype(graph: Graph, value: Value) -> DType:
    """Return the element type of an output in memory: that of the file, where a pass has computed in another."""
    return graph.output_types[graph.outputs.index(value)] if graph.output_types else value.dtype


def _is_divisible(value: Value, dtype: DType, target: Target, limit: int) -> bool:
    """Return whether a tensor of fixed size is larger than ``limit`` bytes, no larger than a buffer, and has rows that
    a window holds.
    """
    if not all(isinstance(size, int) for size in value.shape):
        return False
    size = math.prod(map(ix.number, value.shape)) * dtype.itemsize
    return limit < size <= target.limit("max-buffer-size") and window_rows(value.shape, dtype, target, limit)[1] > 0


def replace_output(graph: Graph, value: Value, parts: Sequence[Value], starts: Sequence[int]) -> None:
    """Let ``parts``, which begin at the rows ``starts``, be outputs of the graph in place of ``value``."""
    position = graph.outputs.index(value)
    name, row = graph.output_names[position], ix.number(ix.product(value.shape[outermost(value.shape) + 1 :]))
    names = [f"{name}[{start}:]" for start in starts]
    for part, start, of_part in zip(parts, starts, names, strict=True):
        part.name = of_part
        graph.windows[of_part] = PortWindow(name, value.shape, start * row)
    graph.outputs[position : position + 1] = parts
    graph.output_names[position : position + 1] = names
    if graph.output_types:
        graph.output_types[position : position + 1] = [graph.output_types[position]] * len(parts)
