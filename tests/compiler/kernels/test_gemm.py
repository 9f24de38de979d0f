"""Matrix products on the device: odd sizes, broadcasting, views, epilogues, every template."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.target import WEB_TARGET, WorkgroupCosts, target_of
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.compiler.tuning.depthwise_tiles import DepthwiseTile
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile

from ...support.kernels import make_model, run_kernels
from ...support.running import compile_for, run_plan

SIZES = (1, 3, 7, 17, 63, 65, 130)


def matmul(device, left: np.ndarray, right: np.ndarray, **options):
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    feeds = {"a": left, "b": right}
    return run_kernels(device, make_model([node], feeds, ["y"]), feeds, **options)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def check(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-3)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("m", SIZES)
def test_sizes(device, kind, m):
    generator = np.random.default_rng(m)
    for n, k in [(size, int(generator.choice(SIZES))) for size in SIZES] + [(64, 64), (8, 32)]:
        left, right = random(m, k), random(k, n)
        check(matmul(device, left, right, kind=kind).outputs["y"], left @ right)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3, 5, 8), (2, 3, 8, 4)),
        ((2, 1, 5, 7), (3, 7, 3)),
        ((4, 3, 8), (8, 9)),
        ((5, 12), (2, 3, 12, 8)),
        ((1, 0), (0, 5)),
    ],
)
def test_batches(device, kind, left, right):
    a, b = random(*left), random(*right)
    check(matmul(device, a, b, kind=kind).outputs["y"], a @ b)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("perm", [(1, 0), (0, 1)])
def test_transposed_operands(device, kind, perm):
    """Views on the way into the product only change where it reads."""
    feeds = {"a": random(20, 36), "b": random(36, 24) if perm == (0, 1) else random(24, 36)}
    nodes = [
        helper.make_node("Transpose", ["a"], ["s"], perm=[1, 0]),
        helper.make_node("Transpose", ["s"], ["l"], perm=[1, 0]),
        helper.make_node("Transpose", ["b"], ["r"], perm=list(perm)),
        helper.make_node("MatMul", ["l", "r"], ["y"]),
    ]
    ran = run_kernels(device, make_model(nodes, feeds, ["y"]), feeds, kind=kind)
    check(ran.outputs["y"], feeds["a"] @ feeds["b"].transpose(perm))
    assert len(ran.kernels) == 1


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("columns", [24, 7])
def test_epilogue(device, kind, columns):
    """Bias, residual and activation are pushed through the store."""
    feeds = {"a": random(19, 12), "b": random(12, columns), "c": random(columns), "d": random(19, columns, seed=2)}
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Add", ["p", "c"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("Add", ["r", "d"], ["y"]),
    ]
    ran = run_kernels(device, make_model(nodes, feeds, ["y"]), feeds, kind=kind)
    check(ran.outputs["y"], np.maximum(feeds["a"] @ feeds["b"] + feeds["c"], 0) + feeds["d"])
    assert len(ran.kernels) == 1


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_integers_are_exact(device, kind, dtype):
    generator = np.random.default_rng(5)
    low = 0 if dtype == "uint32" else -1000
    left, right = (generator.integers(low, 1000, shape).astype(dtype) for shape in ((9, 20), (20, 13)))
    ran = matmul(device, left, right, kind=kind)
    np.testing.assert_array_equal(ran.outputs["y"], left @ right)
    assert ran.templates == ["gemm_element"] if dtype == "int64" else ran.templates != ["gemm_element"]


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("columns", [8, 7])
def test_half_precision(device, kind, columns):
    left, right = random(9, 20).astype(np.float16), random(20, columns).astype(np.float16)
    expected = (left.astype(np.float32) @ right.astype(np.float32)).astype(np.float16)
    found = matmul(device, left, right, kind=kind).outputs["y"]
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_garbage_beyond_an_operand_stays_outside(device, kind):
    """Infinities in the rows that follow must not reach a sum through the tail of a tile."""
    feeds = {"a": random(5, 10), "b": random(12, 6)}
    feeds["b"][10:] = np.inf
    nodes = [
        helper.make_node("Slice", ["b", "from", "to"], ["s"]),
        helper.make_node("MatMul", ["a", "s"], ["y"]),
    ]
    constants = {"from": np.array([0], np.int64), "to": np.array([10], np.int64)}
    ran = run_kernels(device, make_model(nodes, feeds, ["y"], constants=constants), feeds, kind=kind)
    check(ran.outputs["y"], feeds["a"] @ feeds["b"][:10])


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("rows", [1, 6, 33])
def test_dynamic_rows(device, kind, rows):
    feeds = {"a": random(rows, 16), "b": random(16, 20)}
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    model = make_model([node], feeds, ["y"], dims={"a": ["rows", 16]})
    ran = run_kernels(device, model, feeds, kind=kind, dynamic={"rows": (1, 64)})
    check(ran.outputs["y"], feeds["a"] @ feeds["b"])


# -- tiles -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: gemm_tiles.RegisterTile(33, 1, 8, 1),
        lambda: gemm_tiles.RegisterTile(16, 8, 8, 1),
        lambda: gemm_tiles.RegisterTile(4, 1, 64, 8),
        lambda: gemm_tiles.SharedTile(60, 64, 16, 8, 2),
        lambda: gemm_tiles.SharedTile(128, 128, 16, 4, 1),
        lambda: gemm_tiles.SharedTile(64, 64, 6, 8, 2),
        lambda: gemm_tiles.SharedTile(48, 64, 16, 6, 1),
        lambda: gemm_tiles.SharedTile(64, 64, 256, 8, 2),
        lambda: gemm_tiles.SplitTile(16, 8, 8),
        lambda: gemm_tiles.SplitTile(1, 8, 3),
        lambda: DepthwiseTile(17, 8, 1),
        lambda: DepthwiseTile(4, 8, 1, rows=9),
        lambda: gemm_tiles.ElementTile(2),
    ],
)
def test_illegal_tiles_are_refused(wrong):
    with pytest.raises(ValueError):
        wrong()


@pytest.mark.parametrize("kind", ["cpu", "discrete", "unknown"])
def test_every_problem_has_a_tile_within_the_limits(kind):
    target = target_of(replace(WEB, kind=kind))
    limit = target.limit("max-compute-workgroups-per-dimension")
    for m in (1, 2, 8, 9, 100, 3136, 1 << 20):
        for n in (1, 5, 64, 1000):
            for k in (0, 1, 27, 4608):
                tile = gemm_tiles.ranked(gemm_tiles.Problem(m, n, k), target)[0]
                assert tile.threads <= 256
                assert getattr(tile, "workgroup_bytes", 0) <= target.limit("max-compute-workgroup-storage-size")
                rows = tile.block_m if isinstance(tile, gemm_tiles.SharedTile) else tile.rows * getattr(tile, "down", 1)
                assert -(-m // rows) <= limit


def check_shared_tile(device, tile, terms, written_out):
    """Compute a product with this tile; loads are of one element of A unless ``terms`` are whole vectors."""
    left, right = random(70, terms), random(terms, 140)
    costs = WEB_TARGET.costs
    assert isinstance(costs, WorkgroupCosts)
    target = replace(WEB_TARGET, profile=device.profile, costs=replace(costs, written_out=written_out))
    with (
        mock.patch.object(gemm_tiles, "ranked", return_value=[tile]),
        mock.patch("tests.support.kernels.target_of", return_value=target),
    ):
        check(matmul(device, left, right).outputs["y"], left @ right)


@pytest.mark.parametrize("size", ["m", "n"])
def test_tiles_have_no_more_workgroups_than_the_device_allows(size):
    """262,144 vectors of columns are more than 65,535 of one vector."""
    lavapipe = target_of(DeviceProfile(kind="cpu", adapter="llvmpipe", subgroup_size=8))
    problem = replace(gemm_tiles.Problem(64, 64, 16), **{size: 1 << 20})
    tiles = [tile for tile in gemm_tiles.ranked(problem, lavapipe) if isinstance(tile, gemm_tiles.SubgroupTile)]
    assert tiles
    for tile in tiles:
        assert -(-problem.m // (8 * tile.rows)) <= 65535 and -(-problem.n // (4 * tile.columns)) <= 65535


@pytest.mark.parametrize("terms", [36, 35])
def test_parts_of_a_shared_tile_exchange_their_sums(device, terms):
    check_shared_tile(device, gemm_tiles.SharedTile(16, 64, 32, 4, 1, 2, 4), terms, 4)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("columns", [132, 133])
def test_results_are_read_for_before_any_is_stored(device, parts, columns):
    """A sum with what the result takes over the memory of: a load behind a store of the same tensor would wait."""
    x, w, bias = random(70, 36), random(36, columns), random(columns)
    z = random(70, columns)
    nodes = [
        helper.make_node("Exp", ["z"], ["residual"]),
        helper.make_node("ReduceMax", ["residual"], ["most"], keepdims=0),
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["biased"]),
        helper.make_node("Add", ["biased", "residual"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"], axis=1),
    ]
    feeds = {"x": x, "z": z}
    model = make_model(nodes, feeds, ["y", "most"], constants={"w": w, "bias": bias})
    tile = (
        gemm_tiles.SharedTile(16, 64, 32, 4, 1, 2, 4) if parts == 2 else gemm_tiles.SharedTile(32, 32, 16, 4, 1, 1, 4)
    )
    with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
        plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    (kernel,) = (kernel for kernel in plan.kernels if kernel.template == "gemm_shared")
    if columns == 132:  # all of each vector is stored
        assert "read_write" in next(line for line in kernel.wgsl.splitlines() if " y:" in line)
        assert re.search(r"fn result\([^}]* y\[", kernel.wgsl)
        assert kernel.wgsl.rindex(" = result(") < kernel.wgsl.index("\n  put(")
    else:
        assert "result(" not in kernel.wgsl
    found, most = run_plan(device, plan, model, feeds)
    total = x.astype(np.float64) @ w + bias + np.exp(z.astype(np.float64))
    power = np.exp(total - total.max(1, keepdims=True))
    check(found, power / power.sum(1, keepdims=True))
    check(most, np.exp(z.max()))


@pytest.mark.slow
@pytest.mark.parametrize("terms", [36, 35])
@pytest.mark.parametrize("written_out", [1, 4])
def test_every_shared_tile(device, terms, written_out):
    """Each tile of the table, whichever the model prefers."""
    costs = WEB_TARGET.costs
    assert isinstance(costs, WorkgroupCosts)
    for tile in gemm_tiles.shared_tiles(costs):
        if tile.workgroup_bytes <= device.profile.limit("max-compute-workgroup-storage-size"):
            check_shared_tile(device, tile, terms, written_out)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("columns", [1, 3, 8])
def test_subgroup_tiles(each_device, rows, columns):
    """Every thread of a subgroup gets the elements that another one has loaded."""
    size = each_device.profile.subgroup_size
    if not size:
        pytest.skip("the size of a subgroup is not known on this device")
    tile = gemm_tiles.SubgroupTile(rows, columns, size)
    with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
        for m, k, n in ((1, 8, 4), (7, 3, 17), (65, 63, 40), (130, 32, 64)):
            left, right = random(m, k), random(k, n)
            check(matmul(each_device, left, right).outputs["y"], left @ right)
