"""Windows of pools and convolutions at their edges, against the specification written with numpy in float64.

Drawn are kernels smaller than the stride, dilations, sizes of 1, windows of padding alone, and windows of ``ceil_mode``
that reach or start beyond the padding.  :func:`departs` is the list of what onnxruntime does otherwise, which
``docs/guide/onnxruntime-api.md`` has in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom.compiler.compilation import PassReport
from shaderloom.compiler.ir.graph import Graph
from shaderloom.compiler.passes.pipeline import LAST_REWRITE
from shaderloom.compiler.reference.interpreter import run_graph

from ...support.cases import run_onnxruntime
from ...support.passes import lower_model
from ...support.running import run_model

SAME = ("SAME_UPPER", "SAME_LOWER")
POOLS = ("MaxPool", "AveragePool", "LpPool")


@dataclass(frozen=True)
class Window:
    """A window along one axis of ``size`` elements."""

    size: int
    kernel: int
    stride: int
    dilation: int
    pads: tuple[int, int]  #: without ``auto_pad``

    @property
    def extent(self) -> int:
        return (self.kernel - 1) * self.dilation + 1


@dataclass(frozen=True)
class Sliding:
    """Windows along one or two axes, and what they share."""

    op: str
    windows: tuple[Window, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    include: bool = False  #: count_include_pad

    def node(self, name: str, value: str) -> onnx.NodeProto:
        attributes: dict[str, Any] = {
            "kernel_shape": [window.kernel for window in self.windows],
            "strides": [window.stride for window in self.windows],
            "dilations": [window.dilation for window in self.windows],
        }
        if self.auto_pad == "NOTSET":
            attributes["pads"] = [window.pads[side] for side in (0, 1) for window in self.windows]
        else:
            attributes["auto_pad"] = self.auto_pad
        if self.op in POOLS:
            attributes["ceil_mode"] = int(self.ceil_mode)
        if self.op == "AveragePool":
            attributes["count_include_pad"] = int(self.include)
        operands = [value] if self.op in POOLS else [value, f"w{name}"]
        return helper.make_node(self.op, operands, [name], **attributes)

    def weight(self) -> np.ndarray:
        shape = (2, 2, *(window.kernel for window in self.windows))
        return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def placed(sliding: Sliding, window: Window) -> tuple[int, int, int] | None:
    """The number of windows and the padding before and after, as the standard has it; None where none fits."""
    size, stride, extent = window.size, window.stride, window.extent
    if sliding.auto_pad in SAME:
        count = -(-size // stride)
        total = max((count - 1) * stride + extent - size, 0)
        begin = total // 2 if sliding.auto_pad == "SAME_UPPER" else total - total // 2
        return count, begin, total - begin
    begin, end = (0, 0) if sliding.auto_pad == "VALID" else window.pads
    room = size + begin + end - extent
    if room < 0:
        return None
    if sliding.auto_pad == "VALID":
        return -(-(size - extent + 1) // stride), 0, 0
    if not sliding.ceil_mode:
        return room // stride + 1, begin, end
    count = -(-room // stride) + 1
    return count - ((count - 1) * stride >= size + begin), begin, end


def specified(sliding: Sliding, value: np.ndarray) -> np.ndarray:
    """The result in float64, window by window."""
    places = [placed(sliding, window) for window in sliding.windows]
    weight = sliding.weight().astype(np.float64)
    channels = 2 if sliding.op == "Conv" else value.shape[1]
    result = np.zeros((value.shape[0], channels, *(count for count, _, _ in places)))
    for at in np.ndindex(result.shape[2:]):
        taps, counted = [], 1
        for index, window, (_, begin, end) in zip(at, sliding.windows, places):
            positions = [index * window.stride - begin + k * window.dilation for k in range(window.kernel)]
            taps.append([(k, place) for k, place in enumerate(positions) if 0 <= place < window.size])
            counted *= sum(-begin <= place < window.size + end for place in positions)
        inside = [[place for _, place in axis] for axis in taps]
        seen = value[np.ix_(*map(range, value.shape[:2]), *inside)].astype(np.float64)
        axes = tuple(range(2, value.ndim))
        if sliding.op == "MaxPool":
            found = seen.max(axes, initial=-np.inf)
        elif sliding.op == "LpPool":
            found = np.sqrt((seen**2).sum(axes))
        elif sliding.op == "AveragePool":
            found = seen.sum(axes) / max(counted if sliding.include else seen[0, 0].size, 1)
        else:
            factors = weight[np.ix_(*map(range, weight.shape[:2]), *([k for k, _ in axis] for axis in taps))]
            found = np.tensordot(seen, factors, (range(1, value.ndim), range(1, value.ndim)))
        result[(slice(None), slice(None), *at)] = found
    return result


def departs(sliding: Sliding) -> bool:
    """Whether onnxruntime may do otherwise, or refuses."""
    if sliding.auto_pad == "VALID":
        return sliding.ceil_mode
    if sliding.auto_pad in SAME:
        larger = sliding.op in POOLS and any(window.kernel < window.stride for window in sliding.windows)
        return larger or any(window.dilation > 1 for window in sliding.windows)
    padded = any(max(window.pads) >= window.kernel for window in sliding.windows)
    return sliding.op in POOLS and padded


def draw(op: str, count: int) -> list[Sliding]:
    """Of every way of padding and rounding as many."""
    generator = np.random.default_rng(len(op))
    ways = list(itertools.product((*SAME, "VALID", "NOTSET", "NOTSET"), (False, True), (False, True)))
    found: list[Sliding] = []
    while len(found) < count:
        auto_pad, ceil_mode, include = ways[len(found) % len(ways)]
        windows = []
        for _ in range(generator.integers(1, 3)):
            size, kernel, stride, dilation = (int(generator.integers(1, high)) for high in (9, 5, 5, 4))
            begin, end = (int(pad) for pad in generator.integers(0, kernel, 2))
            windows.append(Window(size, kernel, stride, dilation, (begin, end)))
        sliding = Sliding(op, tuple(windows), auto_pad, ceil_mode and op in POOLS, include)
        if None not in [placed(sliding, window) for window in windows]:
            found.append(sliding)
    return found


def model_of(several: Sequence[Sliding]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model with one output each, and its inputs."""
    generator = np.random.default_rng(0)
    shapes = {(1, 2, *(window.size for window in sliding.windows)) for sliding in several}
    names = {shape: "x" + "_".join(map(str, shape)) for shape in sorted(shapes)}
    feeds = {name: generator.uniform(-2, 2, shape).astype(np.float32) for shape, name in names.items()}
    nodes, weights = [], []
    for number, sliding in enumerate(several):
        shape = (1, 2, *(window.size for window in sliding.windows))
        nodes.append(sliding.node(f"y{number}", names[shape]))
        weights.append(numpy_helper.from_array(sliding.weight(), f"wy{number}"))
    graph = helper.make_graph(
        nodes,
        "windows",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, None) for number in range(len(several))],
        weights if several[0].op == "Conv" else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), feeds


def compare(several: Sequence[Sliding], feeds: dict[str, np.ndarray], results: Sequence[np.ndarray]) -> None:
    for sliding, result in zip(several, results, strict=True):
        name = "x1_2_" + "_".join(str(window.size) for window in sliding.windows)
        expected = specified(sliding, feeds[name])
        assert result.shape == expected.shape, sliding
        lowest = np.where(result == np.finfo(np.float32).min, -np.inf, result)
        np.testing.assert_allclose(lowest, expected, rtol=1e-5, atol=1e-6, err_msg=str(sliding))


def interpret(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Results of the graph that fusion gets."""
    results: list[np.ndarray] = []

    def run(report: PassReport, lowered: Graph) -> None:
        if report.name == LAST_REWRITE:
            results.extend(run_graph(lowered, feeds))

    lower_model(model, {name: array.shape for name, array in feeds.items()}, observer=run)
    return results


@pytest.mark.parametrize("op", [*POOLS, "Conv"])
@pytest.mark.parametrize("count", [40, pytest.param(800, marks=pytest.mark.slow)])
def test_windows_of_the_specification(op: str, count: int) -> None:
    drawn = draw(op, count)
    for first in range(0, count, 40):
        several = drawn[first : first + 40]
        model, feeds = model_of(several)
        compare(several, feeds, interpret(model, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("op", [*POOLS, "Conv"])
def test_windows_on_devices(op: str, each_device) -> None:
    several = draw(op, 60)
    model, feeds = model_of(several)
    compare(several, feeds, run_model(each_device, model, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("op", [*POOLS, "Conv"])
def test_onnxruntime_departs_where_we_say(op: str) -> None:
    several = [sliding for sliding in draw(op, 400) if not departs(sliding)]
    assert len(several) > 80
    for sliding in several:
        model, feeds = model_of([sliding])
        compare([sliding], feeds, run_onnxruntime(model, feeds))
