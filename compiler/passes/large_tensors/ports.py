"""Inputs and outputs beyond a binding: several of the graph, each a window of the model's.

A window is rows of the outermost axis: neighbours in memory, at an offset that a binding may begin at.  The plan has
the whole as one input or output, of which kernels bind ranges.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ....runtime.plan.dtypes import DType
from ...ir.graph import Graph, PortWindow, Shape, Value
from ...rewriting.builder import GraphBuilder
from ...symbolic import polynomial as ix
from ...target import Target


def binding_bytes(value: Value) -> int:
    """Return the most bytes of a tensor; the type that the file declares counts."""
    return _most(value.shape) * (value.storage or value.dtype).itemsize


def _most(shape: Shape) -> int:
    return math.prod(ix.bounds(size)[1] for size in shape)


def is_fixed(value: Value) -> bool:
    """Return whether no declared dimension is in the shape of a tensor."""
    return all(isinstance(size, int) for size in value.shape)


def exceeds(value: Value, target: Target) -> bool:
    """Return whether a tensor may be larger than a binding.

    One of open size that may be larger than a buffer, too, does not count: a run has the last word on its size.
    """
    return _is_beyond(value, binding_bytes(value), target)


def _is_beyond(value: Value, size: int, target: Target) -> bool:
    return size > target.largest_tensor and (is_fixed(value) or size <= target.limit("max-buffer-size"))


def outermost(shape: Shape) -> int:
    """Return the first axis with more than one element."""
    return next((axis for axis, size in enumerate(shape) if size != 1), 0)


def window_rows(shape: Shape, dtype: DType, target: Target) -> tuple[int, int]:
    """Return of how many rows those of a window are a multiple, and how many it has at most.

    Windows begin where a binding may begin on any device, whatever the sizes of the other axes.
    """
    inner = shape[outermost(shape) + 1 :]
    row = ix.content(ix.product(inner)) * dtype.itemsize
    alignment = math.lcm(target.storage_alignment, 256)
    multiple = alignment // math.gcd(row, alignment)
    most = target.largest_tensor // max(_most(inner) * dtype.itemsize, 1)
    return multiple, most // multiple * multiple


def divide_inputs(graph: Graph, target: Target, whole: Collection[str]) -> int:
    """Replace inputs of fixed size beyond a binding by windows, which readers read side by side; return the number of
    such inputs.

    Those named in ``whole`` stay.
    """
    count = 0
    for value in list(graph.inputs):
        if is_fixed(value) and may_be_read_in_windows(graph, value, target, whole):
            _divide_input(graph, value, window_rows(value.shape, value.storage or value.dtype, target)[1])
            count += 1
    return count


def may_be_read_in_windows(graph: Graph, value: Value, target: Target, whole: Collection[str]) -> bool:
    """Return whether a value is a large input of the graph that several may replace; it is none of ``whole``."""
    if value not in graph.inputs or value.name in whole or not value.uses or value in graph.outputs:
        return False
    return _is_divisible(value, value.storage or value.dtype, target)


def input_window(graph: Graph, value: Value, start: int, stop: int) -> Value:
    """Return a new input of the graph: the rows ``start`` to ``stop`` of the input ``value``."""
    axis = outermost(value.shape)
    shape = (*value.shape[:axis], ix.between(start, stop, value.shape[axis]), *value.shape[axis + 1 :])
    part = graph.new_value(f"{value.name}[{start}:{stop}]", value.dtype, shape)
    part.storage = value.storage
    graph.windows[part.name] = PortWindow(value.name, value.shape, axis, start)
    graph.inputs.insert(graph.inputs.index(value), part)
    return part


def remove_unread(graph: Graph) -> None:
    """Remove inputs that are read in windows alone."""
    divided = {window.whole for window in graph.windows.values()}
    graph.inputs = [each for each in graph.inputs if each.uses or each in graph.outputs or each.name not in divided]


def _divide_input(graph: Graph, value: Value, most: int) -> None:
    axis = outermost(value.shape)
    extent = ix.number(value.shape[axis])
    parts = [input_window(graph, value, start, min(start + most, extent)) for start in range(0, extent, most)]
    readers = list(value.uses)
    whole = GraphBuilder(graph, value.user.origins).op("Concat", *parts, axis=axis)
    for node, at in readers:
        graph.set_input(node, at, whole)
    remove_unread(graph)
    graph.sort()


def may_be_windows(graph: Graph, value: Value, target: Target, whole: Collection[str]) -> bool:
    """Return whether a value is a large output of the graph that several may replace; it is none of ``whole``."""
    if graph.outputs.count(value) != 1 or graph.output_names[graph.outputs.index(value)] in whole:
        return False
    return _is_divisible(value, output_dtype(graph, value), target)


def output_dtype(graph: Graph, value: Value) -> DType:
    """Return the element type of an output in memory: that of the file, where a pass has computed in another."""
    return graph.output_types[graph.outputs.index(value)] if graph.output_types else value.dtype


def _is_divisible(value: Value, dtype: DType, target: Target) -> bool:
    """Return whether a tensor may be larger than a binding, and no larger than a buffer, with rows that a window
    holds.
    """
    size = _most(value.shape) * dtype.itemsize
    return (
        _is_beyond(value, size, target)
        and size <= target.limit("max-buffer-size")
        and window_rows(value.shape, dtype, target)[1] > 0
    )


def replace_output(graph: Graph, value: Value, parts: Sequence[Value], starts: Sequence[int]) -> None:
    """Let ``parts``, which begin at the rows ``starts``, be outputs of the graph in place of ``value``."""
    position = graph.outputs.index(value)
    name, axis = graph.output_names[position], outermost(value.shape)
    names = [f"{name}[{start}:]" for start in starts]
    for part, start, of_part in zip(parts, starts, names, strict=True):
        part.name = of_part
        graph.windows[of_part] = PortWindow(name, value.shape, axis, start)
    graph.outputs[position : position + 1] = parts
    graph.output_names[position : position + 1] = names
    if graph.output_types:
        graph.output_types[position : position + 1] = [graph.output_types[position]] * len(parts)
