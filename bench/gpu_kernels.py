"""Single kernels against what a GPU can reach: rates of products, and of kernels that memory bounds.

    python -m bench.gpu_kernels

prints a line of JSON: the device's measured peaks and, for each kernel, its least time by timestamps, FLOPs, bytes that
it must move, and its largest difference from numpy in relation to the largest result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.target import target_of
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.device.opening import open_device
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.roofline import measure_roofline
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.source_files import SourceFiles
from shaderloom.runtime.plan.caps import Caps, MemoryAccount

#: A GPU at rest takes a while to raise its clock
WARM_SECONDS = 0.3
RUNS = 10


@dataclass(frozen=True)
class KernelTime:
    name: str
    checked: bool
    microseconds: float
    flops: float
    bytes: float
    difference: float


@dataclass(frozen=True)
class _Case:
    """A model of one kernel; ``reference`` gives the expected rows of the first output from the inputs and weights."""

    name: str
    model: ModelProto
    feeds: dict[str, np.ndarray]
    reference: Callable[[], np.ndarray]  #: of the first rows
    flops: float
    bytes: float


def _model(nodes: list[Any], feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray], element: int) -> ModelProto:
    inputs = [helper.make_tensor_value_info(name, element, array.shape) for name, array in feeds.items()]
    output = helper.make_tensor_value_info("y", element, None)
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "kernel", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def cases(half: bool) -> list[_Case]:
    """The kernels of one float type; memory-bound ones move over 100 MB, so that no cache holds them."""
    dtype, element = (np.float16, TensorProto.FLOAT16) if half else (np.float32, TensorProto.FLOAT)
    width = np.dtype(dtype).itemsize
    suffix = " f16" if half else " f32"
    generator = np.random.default_rng(0)

    def random(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (generator.standard_normal(shape, dtype=np.float32) * scale).astype(dtype)

    cases = []
    size = 4096
    a, b = random(size, size, scale=0.25), random(size, size, scale=0.25)
    first = a[:16].astype(np.float64) @ b.astype(np.float64)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    feeds = {"x": a}
    cases.append(
        _Case(f"gemm 4096{suffix}", _model([node], feeds, {"w": b}, element), feeds, lambda: first,
              2.0 * size**3, 3.0 * width * size**2)
    )  # fmt: skip
    for megabytes in (64, 256):  # of weights in either type
        terms = (megabytes << 20) // (width * size)
        vector = random(1, terms, scale=0.25)
        matrix = np.tile(random(terms // 16, size, scale=0.25), (16, 1))
        product = vector.astype(np.float64) @ matrix.astype(np.float64)
        feeds = {"x": vector}
        model = _model([node], feeds, {"w": matrix}, element)
        cases.append(
            _Case(f"gemv {megabytes} MB{suffix}", model, feeds, lambda product=product: product,  # type: ignore[misc]
                  2.0 * terms * size, width * (terms * size + 2.0 * size))
        )  # fmt: skip
    rows, columns = 32768, 1024
    x, z = random(rows, columns), random(rows, columns)
    few, few_z = x[:16].astype(np.float64), z[:16].astype(np.float64)
    moved = float(width * rows * columns)
    chain = [
        helper.make_node("Add", ["x", "z"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["t"]),
        helper.make_node("Mul", ["s", "t"], ["y"]),
    ]
    feeds = {"x": x, "z": z}
    cases.append(
        _Case(f"elementwise{suffix}", _model(chain, feeds, {}, element), feeds,
              lambda: (few + few_z) / (1 + np.exp(-(few + few_z))), 0.0, 3 * moved)
    )  # fmt: skip

    def softmax() -> np.ndarray:
        power = np.exp(few - few.max(1, keepdims=True))
        return power / power.sum(1, keepdims=True)

    feeds = {"x": x}
    node = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    cases.append(_Case(f"softmax{suffix}", _model([node], feeds, {}, element), feeds, softmax, 0.0, 2 * moved))
    scale, shift = random(columns), random(columns)
    node = helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["y"], axis=-1)

    def normalised() -> np.ndarray:
        centred = few - few.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + shift

    weights = {"scale": scale, "shift": shift}
    cases.append(
        _Case(f"layer norm{suffix}", _model([node], feeds, weights, element), feeds, normalised, 0.0, 2 * moved)
    )
    return cases


def measure(device: Device, case: _Case, *, checked: bool) -> KernelTime:
    data = case.model.SerializeToString()
    imported = load_model(data)
    bound = bind_shapes(imported, {name: array.shape for name, array in case.feeds.items()})
    plan = compile_model(imported, bound, Compilation(target_of(device.profile)))
    pool = WeightPool(device, SourceFiles(None, data, {}), MemoryAccount(Caps().device_memory))
    try:
        with Executor(device, plan, pool, checked=checked) as executor:
            (result,) = executor.run(case.feeds).values()
            end = time.perf_counter() + WARM_SECONDS
            while time.perf_counter() < end:
                executor.profile(case.feeds)
            least = min(executor.profile(case.feeds).nanoseconds for _ in range(RUNS))
    finally:
        pool.close()
    wanted = case.reference()
    difference = np.abs(result[: len(wanted)].astype(np.float64) - wanted).max() / np.abs(wanted).max()
    return KernelTime(case.name, checked, least / 1e3, case.flops, case.bytes, float(difference))


def _hold_clock() -> object:
    """A CUDA context, where PyTorch is there: the driver keeps the full clock while one is open."""
    try:
        import torch
    except ImportError:
        return None
    return torch.zeros(1, device="cuda") if torch.cuda.is_available() else None


def main() -> None:
    held = _hold_clock()
    device = open_device()
    peaks = measure_roofline(device)
    halves = (False, True)  # halves are packed in words, which needs no feature
    times = []
    for half in halves:
        for case in cases(half):
            for checked in (True, False):
                try:
                    times.append(asdict(measure(device, case, checked=checked)))
                except Exception as error:
                    times.append({"name": case.name, "checked": checked, "error": f"{type(error).__name__}: {error}"})
    print(json.dumps({"device": device.name, "clock_held": held is not None, "peaks": asdict(peaks), "kernels": times}))


if __name__ == "__main__":
    main()
