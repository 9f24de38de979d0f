#!/usr/bin/env python3
"""Time every tile configuration of matrix products and convolutions on a device.

    bench/tune_gemm.py [--device NAME] [--unchecked] [--runs N] [PROBLEM ...]

A problem is ``MxKxN`` or ``conv:C,H,W,O,kernel,stride``; without any a list of common ones.  Each line gives the time
and the rate of one configuration; ``*`` marks the one that the analytic model chooses.  The figures belong into
docs/performance.md with the device's name.
"""

from __future__ import annotations

import argparse
import time
from unittest import mock

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.target import Target, ThreadCosts, target_of
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.device.opening import open_device
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.source_files import SourceFiles
from shaderloom.runtime.plan.caps import Caps, MemoryAccount

#: A GPU at rest takes a while to raise its clock
WARM_SECONDS = 0.2

COMMON = (
    "3136x576x64",
    "1024x1024x1024",
    "197x768x3072",
    "128x768x768",
    "1x4096x4096",
    "8x4096x4096",
    "conv:3,224,224,64,7,2",
    "conv:64,56,56,64,3,1",
    "conv:128,28,28,128,3,1",
    "conv:256,14,14,256,3,1",
    "conv:512,7,7,512,3,1",
    "conv:256,56,56,64,1,1",
    "conv:1024,14,14,256,1,1",
    "conv:512,7,7,2048,1,1",
)


def model_of(problem: str):
    """A model of one operator with a constant second operand, and the array to feed it."""
    generator = np.random.default_rng(0)
    if problem.startswith("conv:"):
        channels, height, width, outputs, kernel, stride = map(int, problem[5:].split(","))
        shape, weight_shape = (1, channels, height, width), (outputs, channels, kernel, kernel)
        pads = [kernel // 2] * 4
        node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, strides=[stride, stride])
    else:
        m, k, n = map(int, problem.split("x"))
        shape, weight_shape = (m, k), (k, n)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    x = generator.standard_normal(shape, dtype=np.float32)
    weight = generator.standard_normal(weight_shape, dtype=np.float32)
    nodes = [node]
    weights = [numpy_helper.from_array(weight, "w")]
    if len(shape) == 4 and shape[1] > 4:  # channels are last in memory where another convolution wrote them
        node.input[0] = "t"
        weights.append(numpy_helper.from_array(np.eye(shape[1], dtype=np.float32)[:, :, None, None], "eye"))
        nodes.insert(0, helper.make_node("Conv", ["x", "eye"], ["t"]))
    graph = helper.make_graph(
        nodes,
        "problem",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), x


def candidates(target: Target) -> list[gemm_tiles.Tile | None]:
    """Configurations to try besides the model's own choice (None)."""
    costs = target.costs
    if isinstance(costs, ThreadCosts):
        return [
            None,
            *(
                gemm_tiles.RegisterTile(rows, columns, across, 8 // across)
                for rows, columns in ((4, 2), (8, 1), (8, 2), (16, 1), (8, 4), (16, 2), (14, 2))
                for across in (2, 4, 8)
            ),
        ]
    memory = target.limit("max-compute-workgroup-storage-size")
    shared = [tile for tile in gemm_tiles.shared_tiles(costs) if tile.workgroup_bytes <= memory]
    split = [
        gemm_tiles.SplitTile(rows, across, parts)
        for rows in (1, 2, 4, 8)
        for across, parts in ((4, 32), (8, 16), (8, 32), (16, 16), (32, 8))
    ]
    return [None, *shared, *(tile for tile in split if tile.workgroup_bytes <= memory)]


def measure(device: Device, problem: str, tile: gemm_tiles.Tile | None, *, checked: bool, runs: int):
    """Seconds of the last kernel of the problem (best of ``runs``), of compiling it, its flops and configuration."""
    model, x = model_of(problem)
    imported = load_model(model.SerializeToString())
    bound = bind_shapes(imported, {"x": x.shape})
    choose = gemm_tiles.ranked if tile is None else (lambda problem, profile: [tile])
    with mock.patch.object(gemm_tiles, "ranked", choose):
        plan = compile_model(imported, bound, Compilation(target_of(device.profile)))
    account = MemoryAccount(Caps().device_memory)
    pool = WeightPool(device, SourceFiles(None, model.SerializeToString(), {}), account)
    began = time.perf_counter()
    try:
        with Executor(device, plan, pool, checked=checked) as executor:
            executor.run({"x": x})
            compiled = time.perf_counter() - began
            while time.perf_counter() - began < compiled + WARM_SECONDS:
                executor.run({"x": x})
            last = min(executor.profile({"x": x}).calls[-1].nanoseconds for _ in range(runs))
    finally:
        pool.close()
    call = plan.calls[-1]
    kernel = next(kernel for kernel in plan.kernels if kernel.key == call.kernel)
    return last * 1e-9, compiled, call.flops, f"{kernel.template} {dict(kernel.config)}"


def few_rows(problem: str) -> bool:
    return not problem.startswith("conv:") and int(problem.split("x")[0]) <= 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=None)
    parser.add_argument("--unchecked", action="store_true", help="without the shaders' bounds checks")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("problems", nargs="*", default=COMMON)
    arguments = parser.parse_args()
    device = open_device(arguments.device)
    print(device.name)
    for problem in arguments.problems or COMMON:
        print(problem)
        for tile in candidates(target_of(device.profile)):
            if isinstance(tile, gemm_tiles.SplitTile) and (
                not few_rows(problem) or tile.rows > int(problem.split("x")[0])
            ):
                continue
            seconds, compiled, flops, name = measure(
                device, problem, tile, checked=not arguments.unchecked, runs=arguments.runs
            )
            mark = "*" if tile is None else " "
            print(
                f" {mark} {seconds * 1e6:10.1f} us {flops / max(seconds, 1e-9) / 1e9:9.1f} GFLOP/s  "
                f"first run {compiled:5.2f} s  {name}",
                flush=True,
            )


if __name__ == "__main__":
    main()
