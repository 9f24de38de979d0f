"""Magnitudes that the tensors of a float32 run were observed to reach.

Tensors are identified by the ONNX node that computes them, so that what was observed for one input shape counts for
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ...runtime.plan.dtypes import FLOAT16_LARGEST, FLOAT32, fits_float16
from ..fusion import Fusion
from ..ir.coordinates import Sizes, shape_of
from ..ir.graph import Graph, Value
from ..reference.interpreter import bind_sizes, run_graph
from .constant_ranges import array_range


class ObservedRange:
    """Largest magnitudes by :func:`node_name`, at least of the tensors that do not fit float16."""

    def __init__(self, magnitudes: Iterable[tuple[str, float]]) -> None:
        self._magnitudes = dict(magnitudes)

    def reason(self, value: Value) -> str | None:
        """Return why ``value`` does not fit float16 with a margin, None if it does."""
        reached = self._magnitudes.get(node_name(value), 0.0)
        if fits_float16(reached):
            return None
        return (
            f"it was seen to reach {reached:.2g} only: float16 has few bits left there"
            if reached < 1.0
            else _excess(reached)
        )

    def excess(self, value: Value) -> str | None:
        """Return why ``value`` may leave the range of float16, None if it does not."""
        reached = self._magnitudes.get(node_name(value), 0.0)
        return None if fits_float16(reached) or reached < 1.0 else _excess(reached)


def _excess(reached: float) -> str:
    return f"it was seen to reach {reached:.2g}, float16 ends at {FLOAT16_LARGEST:.0f}"


def node_name(value: Value) -> str:
    """Return the ONNX node whose result ``value`` is, "" for an input or a constant."""
    origin = value.producer.origin if value.producer else None
    return str(origin or "")


def measure_on_host(graph: Graph, fusion: Fusion, feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Run a float32 graph with numpy; return the largest finite magnitude of its values in memory, by node."""
    magnitudes: dict[str, float] = {}
    run_measured(graph, fusion, feeds, magnitudes)
    return magnitudes


def run_measured(
    graph: Graph, fusion: Fusion, feeds: Mapping[str, np.ndarray], magnitudes: dict[str, float]
) -> dict[str, np.ndarray]:
    """Return the outputs of a float32 graph by name, computed with numpy; raise ``magnitudes`` to those of its values,
    by node.  Of windows it takes and returns the whole.
    """
    stored = {group.output for group in fusion.groups if not group.constant and group.output.dtype is FLOAT32}

    def observe(value: Value, array: np.ndarray) -> None:
        if value in stored:
            node = node_name(value)
            magnitudes[node] = max(magnitudes.get(node, 0.0), array_range(array).magnitude)

    sizes: dict[str, int] = {}
    for window in graph.windows.values():
        if window.whole in feeds:
            bind_sizes(window.shape, feeds[window.whole].shape, sizes)
    parts = {value.name: _part_of(graph, value, feeds, sizes) for value in graph.inputs}
    results: dict[str, list[np.ndarray]] = {}
    for name, array in zip(graph.output_names, run_graph(graph, parts, sizes, on_value=observe), strict=True):
        results.setdefault(graph.whole_name(name), []).append(array)
    axes = {window.whole: window.axis for window in graph.windows.values()}
    return {name: np.concatenate(arrays, axes[name]) if name in axes else arrays[0] for name, arrays in results.items()}


def _part_of(graph: Graph, value: Value, feeds: Mapping[str, np.ndarray], sizes: Sizes) -> np.ndarray:
    """Return what is fed for an input: the array of its name, or a window of that of the model's input."""
    window = graph.windows.get(value.name)
    if window is None:
        return feeds[value.name]
    rows = shape_of(value, sizes)[window.axis]
    return feeds[window.whole][(slice(None),) * window.axis + (slice(window.start, window.start + rows),)]
