"""Windows of pools and convolutions at their edges, against the specification written with numpy in float64.

Drawn are kernels smaller than the stride, dilations, sizes of 1, windows of padding alone, and windows of ``ceil_mode``
that reach or start beyond the padding.  :func:`departs` is the list of what onnxruntime does otherwise, which
``docs/guide/onnxruntime-api.md`` has in words.

Of ConvTranspose and MaxUnpool every way to state the size of the result is drawn: ``auto_pad``, ``output_padding``, and
an ``output_shape`` that is smaller or larger than what the windows reach.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
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


# -- windows of the result ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A ConvTranspose: every element of the input is spread over a window of the result."""

    windows: tuple[Window, ...]
    auto_pad: str
    group: int
    extra: tuple[int, ...]  #: output_padding
    wanted: tuple[int, ...] | None  #: output_shape

    def places(self) -> list[tuple[int, int]]:
        """The size of the result, and the padding before, along each axis, as the standard has it."""
        found = []
        for axis, (window, extra) in enumerate(zip(self.windows, self.extra)):
            full = window.stride * (window.size - 1) + extra + window.extent
            if self.wanted is None and self.auto_pad not in SAME:
                begin, end = (0, 0) if self.auto_pad == "VALID" else window.pads
                found.append((full - begin - end, begin))
                continue
            size = window.size * window.stride if self.wanted is None else self.wanted[axis]
            total = max(full - size, 0)  # a larger result has zeros at the end
            found.append((size, total // 2 if self.auto_pad == "SAME_UPPER" else total - total // 2))
        return found

    def result(self, value: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The result in float64, element by element of the input and tap by tap."""
        places = self.places()
        channels = value.shape[1] // self.group
        outputs = weight.shape[1]
        result = np.zeros((1, outputs * self.group, *(size for size, _ in places)))
        for at in np.ndindex(value.shape[2:]):
            for tap in np.ndindex(weight.shape[2:]):
                axes = zip(at, tap, self.windows, places)
                to = [i * window.stride + k * window.dilation - begin for i, k, window, (_, begin) in axes]
                if not all(0 <= place < size for place, (size, _) in zip(to, places)):
                    continue
                for group in range(self.group):
                    read = slice(group * channels, (group + 1) * channels)
                    factors = weight[(read, slice(None), *tap)].astype(np.float64)
                    written = slice(group * outputs, (group + 1) * outputs)
                    result[(0, written, *to)] += value[(0, read, *at)].astype(np.float64) @ factors
        return result

    def case(self, number: int) -> tuple[onnx.NodeProto, dict[str, np.ndarray], np.ndarray]:
        """The node, what it reads, and the result."""
        generator = np.random.default_rng(number)
        value = generator.uniform(-2, 2, (1, 4, *(window.size for window in self.windows))).astype(np.float32)
        weight = generator.uniform(-1, 1, (4, 2, *(window.kernel for window in self.windows))).astype(np.float32)
        attributes: dict[str, Any] = {
            "strides": [window.stride for window in self.windows],
            "dilations": [window.dilation for window in self.windows],
            "group": self.group,
            "auto_pad": self.auto_pad,
            "output_padding": self.extra,
        }
        if self.wanted is not None:
            attributes["output_shape"] = self.wanted
        elif self.auto_pad == "NOTSET":
            attributes["pads"] = [window.pads[side] for side in (0, 1) for window in self.windows]
        node = helper.make_node("ConvTranspose", [f"x{number}", f"w{number}"], [f"y{number}"], **attributes)
        return node, {f"x{number}": value, f"w{number}": weight}, self.result(value, weight)


@dataclass(frozen=True)
class Unpooling:
    """A MaxUnpool of drawn elements and of indices that are distinct, with or without ``output_shape``."""

    windows: tuple[Window, ...]
    more: tuple[int, ...] | None  #: what ``output_shape`` has beyond the windows

    def case(self, number: int) -> tuple[onnx.NodeProto, dict[str, np.ndarray], np.ndarray]:
        """The node, what it reads, and the result: the indices count elements of the shape without ``output_shape``."""
        generator = np.random.default_rng(number)
        shape = (2, 3, *(window.size for window in self.windows))
        inner = [(each.size - 1) * each.stride + each.kernel - sum(each.pads) for each in self.windows]
        value = generator.uniform(-2, 2, shape).astype(np.float32)
        places = generator.permutation(6 * int(np.prod(inner)))[: value.size].reshape(shape)
        flat = np.zeros(6 * int(np.prod(inner)))
        flat[places] = value
        result = flat.reshape(2, 3, *inner)
        feeds = {f"x{number}": value, f"i{number}": places.astype(np.int64)}
        if self.more is not None:
            result = np.pad(result, [(0, 0), (0, 0), *((0, more) for more in self.more)])
            feeds[f"s{number}"] = np.array(result.shape, np.int64)
        attributes: dict[str, Any] = {
            "kernel_shape": [window.kernel for window in self.windows],
            "strides": [window.stride for window in self.windows],
            "pads": [window.pads[side] for side in (0, 1) for window in self.windows],
        }
        return helper.make_node("MaxUnpool", list(feeds), [f"y{number}"], **attributes), feeds, result


def draw_spread(generator: np.random.Generator, number: int) -> Spread:
    auto_pad = ("NOTSET", "VALID", *SAME)[number % 4]
    windows = []
    for _ in range(generator.integers(1, 3)):
        size, kernel, stride, dilation = (int(generator.integers(1, high)) for high in (6, 5, 5, 4))
        extent = (kernel - 1) * dilation + 1
        begin = int(generator.integers(0, extent))
        windows.append(Window(size, kernel, stride, dilation, (begin, int(generator.integers(0, extent - begin)))))
    extra = tuple(int(generator.integers(0, max(window.stride, window.dilation))) for window in windows)
    wanted = None
    if auto_pad != "VALID" and number // 4 % 2:
        reaches = [window.stride * (window.size - 1) + window.extent for window in windows]
        wanted = tuple(int(generator.integers(1, reach + 4)) for reach in reaches)
    return Spread(tuple(windows), auto_pad, int(generator.integers(1, 3)), extra, wanted)


def draw_unpooling(generator: np.random.Generator, number: int) -> Unpooling:
    """Padding leaves the result as many elements as the input has, so that the indices can be distinct."""
    windows = []
    for _ in range(generator.integers(1, 3)):
        size, kernel, stride = (int(generator.integers(1, high)) for high in (6, 5, 5))
        room = min((size - 1) * stride + kernel - size, kernel - 1)
        begin = int(generator.integers(0, room + 1))
        windows.append(Window(size, kernel, stride, 1, (begin, int(generator.integers(0, room - begin + 1)))))
    more = tuple(int(generator.integers(0, 4)) for _ in windows) if number % 2 else None
    return Unpooling(tuple(windows), more)


DRAWS = {"ConvTranspose": draw_spread, "MaxUnpool": draw_unpooling}


def check_inverse(op: str, count: int, run: Callable[[onnx.ModelProto, dict[str, np.ndarray]], Any]) -> None:
    """Draw nodes, run them as one model, and compare each result."""
    generator = np.random.default_rng(len(op))
    drawn = [DRAWS[op](generator, number) for number in range(count)]
    cases = [each.case(number) for number, each in enumerate(drawn)]
    feeds = {name: array for _, read, _ in cases for name, array in read.items() if name[0] in "xi"}
    constants = {name: array for _, read, _ in cases for name, array in read.items() if name not in feeds}
    graph = helper.make_graph(
        [node for node, *_ in cases],
        "inverse",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, None) for number in range(count)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    for each, (_, _, expected), found in zip(drawn, cases, run(model, feeds), strict=True):
        assert found.shape == expected.shape, each
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=str(each))


@pytest.mark.parametrize("op", DRAWS)
@pytest.mark.parametrize("count", [32, pytest.param(400, marks=pytest.mark.slow)])
def test_inverse_windows_of_the_specification(op: str, count: int) -> None:
    check_inverse(op, count, interpret)


@pytest.mark.slow
@pytest.mark.parametrize("op", DRAWS)
def test_inverse_windows_on_devices(op: str, each_device) -> None:
    check_inverse(op, 48, lambda model, feeds: run_model(each_device, model, feeds))
