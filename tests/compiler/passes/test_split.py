"""Products whose terms are shared among workgroups: same results, only where it pays, never on software drivers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.options import CompileOptions
from shaderloom.compiler.target import target_of
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.source_files import SourceFiles
from shaderloom.runtime.plan.caps import Caps, MemoryAccount
from shaderloom.runtime.plan.device_profile import DeviceProfile

from ...support.kernels import make_model

GPU = target_of(DeviceProfile(kind="discrete"))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def windows(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A 3x3 convolution with padding 1 in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    return sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + height, j : j + width], weight[:, :, i, j].astype(np.float64))
        for i in range(3)
        for j in range(3)
    )


def run(device, model, feeds) -> tuple[np.ndarray, list[str]]:
    """The output of a model compiled as if the device were a GPU, and the templates of its calls."""
    data = model.SerializeToString()
    imported = load_model(data)
    bound = bind_shapes(imported, {name: array.shape for name, array in feeds.items()})
    plan = compile_model(
        imported, bound, Compilation(target_of(replace(device.profile, kind="discrete")), CompileOptions(verify=True))
    )
    pool = WeightPool(device, SourceFiles(None, data, {}), MemoryAccount(Caps().device_memory))
    try:
        with Executor(device, plan, pool, poison=True) as executor:
            (result,) = executor.run(feeds).values()
    finally:
        pool.close()
    kernels = {kernel.key: kernel for kernel in plan.kernels}
    return result, [kernels[call.kernel].template for call in plan.calls]


def check(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def test_a_convolution_is_split_with_its_epilogue(device):
    x, weight = random(1, 256, 5, 6), random(20, 256, 3, 3, seed=1)
    bias, residual = random(20), random(1, 20, 5, 6, seed=2)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["t"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["t", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    model = make_model(nodes, {"x": x, "r": residual}, ["y"], constants={"w": weight, "b": bias})
    result, templates = run(device, model, {"x": x, "r": residual})
    assert [template.partition("_")[0] for template in templates] == ["gemm", "reduce"]
    check(result, np.maximum(windows(x, weight) + bias[:, None, None] + residual, 0))


@pytest.mark.parametrize("batch", [2, 3])
def test_batches_of_pictures(device, batch):
    x, weight = random(batch, 512, 3, 3), random(12, 512, 3, 3, seed=1)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    model = make_model(nodes, {"x": x}, ["y"], constants={"w": weight})
    result, templates = run(device, model, {"x": x})
    assert len(templates) == 2
    check(result, windows(x, weight))


@pytest.mark.parametrize("constant", [True, False])
def test_a_matrix_product_is_split(device, constant):
    x, weight = random(17, 2048), random(2048, 39, seed=1)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    feeds = {"x": x} if constant else {"x": x, "w": weight}
    model = make_model(nodes, feeds, ["y"], constants={"w": weight} if constant else {})
    result, templates = run(device, model, feeds)
    assert len(templates) == 2
    check(result, np.tanh(x.astype(np.float64) @ weight))


def test_parts_divide_what_is_split_and_leave_enough():
    for extent in (32, 48, 64, 96, 160, 512, 1000, 4608):
        parts = gemm_tiles.split_parts(gemm_tiles.Problem(49, 64, 9 * extent), extent, GPU)
        assert parts == 1 or (extent % (4 * parts) == 0 and extent // parts >= 32)


def test_only_few_workgroups_with_long_sums_are_split():
    assert gemm_tiles.split_parts(gemm_tiles.Problem(49, 512, 4608), 512, GPU) > 1
    assert gemm_tiles.split_parts(gemm_tiles.Problem(49, 512, 64), 64, GPU) == 1
    assert gemm_tiles.split_parts(gemm_tiles.Problem(4096, 4096, 4096), 4096, GPU) == 1
    assert gemm_tiles.split_parts(gemm_tiles.Problem(49, 512, 4608), 512, target_of(DeviceProfile(kind="cpu"))) == 1


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (1000, 2048), (32, 1280), (8, 64), (3, 5), (50000, 768)])
def test_rows_alone_fill_the_device_where_they_can(n, k):
    tile = gemm_tiles.ranked(gemm_tiles.Problem(1, n, k), GPU)[0]
    assert isinstance(tile, gemm_tiles.SplitTile)
    assert tile.threads >= 64
    assert tile.parts <= 8 or 4 * tile.parts <= k
    if n * k >= 4096 * 4096:
        assert -(-n // (4 * tile.across)) >= 128
        assert tile.threads >= 256
