"""Row programs and arg reductions: every variant against numpy, into poisoned memory."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.kernels.rows.arg_reduce import ArgReduceConfig
from shaderloom.compiler.kernels.rows.reduce_config import ReduceConfig, configurations
from shaderloom.compiler.ops.internal.reduction import ArgReduceAttributes, arg_reduce_array
from shaderloom.compiler.target import WEB_TARGET, target_of
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile
from shaderloom.runtime.plan.errors import ShapeError

from ...support.effort import quick_first, slow
from ...support.golden import check_golden
from ...support.kernels import compile_kernels, make_model, run_kernels

SIZES = (1, 3, 7, 17, 63, 65, 1000)
#: software drivers walk rows with one thread, others share them: both variants run everywhere
KINDS = ("cpu", "discrete")
CPU = DeviceProfile(kind="cpu")


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    seed = np.random.default_rng(sum(shape) * 31 + len(shape))
    if np.issubdtype(dtype, np.integer):
        information = np.iinfo(dtype)
        return seed.integers(information.min, information.max, shape, dtype, endpoint=True)
    return seed.standard_normal(shape).astype(dtype)


def reduction(op: str, axes: tuple[int, ...], keepdims: int = 0) -> tuple[list, dict[str, np.ndarray]]:
    return [helper.make_node(op, ["x", "axes"], ["y"], keepdims=keepdims)], {"axes": np.array(axes, np.int64)}


def run(device, nodes, feeds, *, constants=None, kind="cpu", **options):
    model = make_model(nodes, feeds, ["y"], constants=constants)
    ran = run_kernels(device, model, feeds, kind=kind, **options)
    return ran.outputs["y"], ran


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    x = x.astype(np.float64)
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


# -- plain reductions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("size", SIZES)
def test_sum_of_rows_and_of_columns(size, keepdims, kind, each_device):
    x = numbers(6, size)
    for axis, operand in ((1, x), (0, np.ascontiguousarray(x.T))):
        nodes, constants = reduction("ReduceSum", (axis,), keepdims)
        found, ran = run(each_device, nodes, {"x": operand}, constants=constants, kind=kind)
        expected = operand.astype(np.float64).sum(axis, keepdims=bool(keepdims))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
        assert len(ran.kernels) == 1


RULES = {"ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("op", RULES)
def test_kinds_axes_and_types(op, dtype, axes, kind, device):
    x = numbers(5, 70, 3, dtype=dtype)
    if dtype is np.float32:
        x = np.exp(x * np.float32(0.05))
    nodes, constants = reduction(op, axes)
    found, _ = run(device, nodes, {"x": x}, constants=constants, kind=kind)
    typed = {"dtype": np.float64 if dtype is np.float32 else dtype} if op in ("ReduceSum", "ReduceProd") else {}
    with np.errstate(over="ignore"):
        expected = RULES[op](x, axis=axes, **typed)
    if dtype is np.float32:
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("axes", [(1,), (0, 1, 2), *slow([((0,),), ((2,),), ((0, 2),)])])
@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint8])
def test_packed_results(dtype, axes, each_device):
    """A thread owns whole words, also where the elements of a word belong to several rows."""
    for shape in ((5, 7, 3), (4, 6, 8)):
        x = (numbers(*shape) * 50).astype(dtype)
        nodes, constants = reduction("ReduceMax", axes)
        for kind in KINDS:
            found, _ = run(each_device, nodes, {"x": x}, constants=constants, kind=kind)
            np.testing.assert_array_equal(found, x.max(axis=axes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_nan_and_infinities(op, kind, each_device):
    x = numbers(8, 100)
    x[0, 50], x[1, 3], x[1, 60], x[2, :], x[3, :], x[4, 99] = np.nan, np.inf, -np.inf, -np.inf, np.inf, np.nan
    nodes, constants = reduction(op, (1,))
    found, _ = run(each_device, nodes, {"x": x}, constants=constants, kind=kind)
    np.testing.assert_array_equal(found, RULES[op](x, axis=1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [5, 100, 1000])
def test_exponentials_of_nan_and_infinities(columns, kind, each_device):
    """Their largest number may lose a NaN; the sum must not."""
    x = numbers(8, columns)
    x[0, 3], x[1, 2], x[2, 0], x[2, 1], x[5, -1] = np.nan, np.inf, np.nan, -np.inf, -np.inf
    x[3, :], x[4, :] = -np.inf, np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = softmax(x, 1)
        finite = np.clip(x.max(1, keepdims=True), np.finfo(np.float32).min, np.finfo(np.float32).max)
        logarithms = np.log(expected)
        total = np.log(np.exp(x - finite).sum(1)) + finite[:, 0]
    assert np.isnan(expected).all(1).tolist() == [True, True, True, True, True, False, False, False]
    for op, wanted in (("Softmax", expected), ("LogSoftmax", logarithms)):
        found, _ = run(each_device, [helper.make_node(op, ["x"], ["y"], axis=1)], {"x": x}, kind=kind)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        turned = {"x": np.ascontiguousarray(x.T)}
        found, _ = run(each_device, [helper.make_node(op, ["x"], ["y"], axis=0)], turned, kind=kind)
        np.testing.assert_allclose(found.T, wanted, rtol=1e-5, atol=1e-6)
    nodes, constants = reduction("ReduceLogSumExp", (1,))
    found, _ = run(each_device, nodes, {"x": x}, constants=constants, kind=kind)
    np.testing.assert_allclose(found, total, rtol=1e-5)


@pytest.mark.parametrize("op", RULES)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_empty_rows_give_the_identity(op, dtype, device):
    nodes, constants = reduction(op, (1,))
    found, _ = run(device, nodes, {"x": np.zeros((3, 0, 5), dtype)}, constants=constants)
    if op in ("ReduceSum", "ReduceProd"):
        expected = op == "ReduceProd"
    elif dtype is np.float32:
        expected = -np.inf if op == "ReduceMax" else np.inf
    else:
        expected = np.iinfo(dtype).min if op == "ReduceMax" else np.iinfo(dtype).max
    np.testing.assert_array_equal(found, np.full((3, 5), expected, dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1_000_000,), (0,)), ((2, 100_000), (1,)), ((100_000, 20), (0,)), ((64, 3136), (1,)), ((3136, 64), (0,))],
)
def test_means_of_long_rows_are_accurate(shape, axes, kind, device):
    x = np.random.default_rng(1).random(shape, np.float32) + np.float32(0.1)
    nodes, constants = reduction("ReduceMean", axes)
    found, _ = run(device, nodes, {"x": x}, constants=constants, kind=kind)
    np.testing.assert_allclose(found, x.astype(np.float64).mean(axes), rtol=1e-6)


def test_results_are_reproducible(device):
    x = numbers(3, 70_001)
    nodes, constants = reduction("ReduceSum", (1,))
    results = {run(device, nodes, {"x": x}, constants=constants, kind="discrete")[0].tobytes() for _ in range(3)}
    assert len(results) == 1


def test_prologue_and_epilogue_are_fused(each_device):
    """sqrt(sum((a - b)^2)) * scale in one kernel."""
    a, b, scale = numbers(9, 40), numbers(9, 40) + 1, np.array([0.25], np.float32)
    nodes = [
        helper.make_node("Sub", ["a", "b"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["s"]),
        helper.make_node("ReduceSum", ["s", "axes"], ["t"], keepdims=0),
        helper.make_node("Sqrt", ["t"], ["r"]),
        helper.make_node("Mul", ["r", "scale"], ["y"]),
    ]
    constants = {"axes": np.array([1], np.int64), "scale": scale}
    for kind in KINDS:
        found, ran = run(each_device, nodes, {"a": a, "b": b}, constants=constants, kind=kind)
        assert len(ran.kernels) == 1
        difference = (a - b).astype(np.float64)
        np.testing.assert_allclose(found, np.sqrt((difference * difference).sum(1)) * 0.25, rtol=1e-5)


def test_declared_dynamic_rows_and_columns(each_device):
    x = numbers(5, 23)
    nodes, constants = reduction("ReduceSum", (1,))
    model = make_model(nodes, {"x": x}, ["y"], constants=constants, dims={"x": ["rows", "columns"]})
    for rows, columns in ((5, 23), (1, 1), (70, 64)):
        operand = numbers(rows, columns)
        for kind in KINDS:
            ran = run_kernels(
                each_device, model, {"x": operand}, kind=kind, dynamic={"rows": (1, 128), "columns": (1, 512)}
            )
            np.testing.assert_allclose(ran.outputs["y"], operand.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)


def test_dynamic_softmax(each_device):
    x = numbers(3, 20)
    model = make_model([helper.make_node("Softmax", ["x"], ["y"])], {"x": x}, ["y"], dims={"x": [3, "n"]})
    for size in (1, 20, 67):
        operand = numbers(3, size)
        ran = run_kernels(each_device, model, {"x": operand}, kind="discrete", dynamic={"n": (1, 1000)})
        np.testing.assert_allclose(ran.outputs["y"], softmax(operand, -1), rtol=1e-5, atol=1e-7)


# -- row programs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_softmax_of_odd_rows(size, kind, each_device):
    x = numbers(5, size) * 10
    found, ran = run(each_device, [helper.make_node("Softmax", ["x"], ["y"])], {"x": x}, kind=kind)
    assert len(ran.kernels) == 1, ran.templates
    np.testing.assert_allclose(found, softmax(x, -1), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_softmax_of_every_axis(axis, kind, each_device):
    for shape in ((2, 5, 7, 3), (4, 8, 4, 12)):
        x = numbers(*shape)
        found, ran = run(each_device, [helper.make_node("Softmax", ["x"], ["y"], axis=axis)], {"x": x}, kind=kind)
        assert len(ran.kernels) == 1
        np.testing.assert_allclose(found, softmax(x, axis), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_masked_softmax(kind, each_device):
    """An added mask of minus infinity gives zeros, as in causal attention."""
    scores = numbers(3, 32, 32)
    mask = np.triu(np.full((32, 32), -np.inf, np.float32), 1)
    nodes = [helper.make_node("Add", ["x", "m"], ["s"]), helper.make_node("Softmax", ["s"], ["y"])]
    found, ran = run(each_device, nodes, {"x": scores, "m": mask}, kind=kind)
    assert len(ran.kernels) == 1
    assert not found[:, np.triu(np.ones((32, 32), bool), 1)].any()
    np.testing.assert_allclose(found, softmax(scores + mask, -1), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_precision_softmax(axis, each_device):
    for shape in ((3, 7, 5), (4, 8, 4)):
        x = numbers(*shape).astype(np.float16)
        for kind in KINDS:
            found, _ = run(each_device, [helper.make_node("Softmax", ["x"], ["y"], axis=axis)], {"x": x}, kind=kind)
            np.testing.assert_allclose(found.astype(np.float64), softmax(x, axis), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [7, 64, 768])
def test_layer_norm_spelled_out(size, kind, each_device):
    x, scale, bias = numbers(10, 3, size) + 2, numbers(size), numbers(size) - 1
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["x", "axes"], ["mean"]),
        node("Sub", ["x", "mean"], ["d"]),
        node("Mul", ["d", "d"], ["square"]),
        node("ReduceMean", ["square", "axes"], ["variance"]),
        node("Add", ["variance", "epsilon"], ["shifted"]),
        node("Sqrt", ["shifted"], ["deviation"]),
        node("Div", ["d", "deviation"], ["normal"]),
        node("Mul", ["normal", "scale"], ["scaled"]),
        node("Add", ["scaled", "bias"], ["y"]),
    ]
    constants = {"axes": np.array([-1], np.int64), "epsilon": np.array(1e-5, np.float32), "scale": scale, "bias": bias}
    found, ran = run(each_device, nodes, {"x": x}, constants=constants, kind=kind)
    assert len(ran.kernels) == 1, ran.templates
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, normal * scale + bias, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [3, 8])
def test_instance_norm_after_a_channels_last_kernel(channels, kind, each_device):
    """The pool stores channels last, so rows of the normalisation are neighbours in memory, not columns."""
    x, scale, bias = numbers(2, channels, 9, 11), numbers(channels), numbers(channels)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("InstanceNormalization", ["p", "scale", "bias"], ["n"], epsilon=1e-4),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    found, ran = run(each_device, nodes, {"x": x}, constants={"scale": scale, "bias": bias}, kind=kind)
    assert ran.templates[0] == "window" and len(ran.kernels) == 2
    pooled = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).max((-2, -1)).astype(np.float64)
    normal = (pooled - pooled.mean((2, 3), keepdims=True)) / np.sqrt(pooled.var((2, 3), keepdims=True) + 1e-4)
    expected = np.maximum(normal * scale[:, None, None] + bias[:, None, None], 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_global_average_after_a_channels_last_kernel(kind, each_device):
    x = numbers(2, 12, 15, 10)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("GlobalAveragePool", ["p"], ["y"]),
    ]
    found, ran = run(each_device, nodes, {"x": x}, kind=kind)
    assert dict(ran.kernels[-1].config)["row_lanes"] == 4
    np.testing.assert_allclose(found, x.astype(np.float64).mean((2, 3), keepdims=True), rtol=1e-5, atol=1e-6)


# -- arg reductions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("keepdims", quick_first([False, True]))
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg_reductions(op, keepdims, last, kind, each_device):
    for shape in ((1,), (3,), (7, 17), (65, 3), (2, 1000), (3, 5, 63)):
        x = np.round(numbers(*shape) * 3)  # many ties
        for axis in range(len(shape)):
            node = helper.make_node(op, ["x"], ["y"], axis=axis, keepdims=int(keepdims), select_last_index=int(last))
            found, _ = run(each_device, [node], {"x": x}, kind=kind)
            attributes = ArgReduceAttributes(op[3:].lower(), axis, keepdims, last)
            np.testing.assert_array_equal(found, arg_reduce_array(x, attributes))
            assert found.dtype == np.int64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.int8, np.float16, np.uint64])
def test_arg_reductions_of_types(dtype, kind, device):
    x = numbers(5, 70, dtype=dtype) if np.issubdtype(dtype, np.integer) else numbers(5, 70).astype(dtype)
    for op, rule in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        found, _ = run(device, [helper.make_node(op, ["x"], ["y"], axis=1, keepdims=0)], {"x": x}, kind=kind)
        np.testing.assert_array_equal(found, rule(x, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_nan_is_found_first(kind, each_device):
    x = numbers(4, 90)
    x[0, 40] = x[0, 70] = x[1, 0] = x[2, 89] = np.nan
    x[3, 10] = np.inf
    for op, rule in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        found, _ = run(each_device, [helper.make_node(op, ["x"], ["y"], axis=1, keepdims=0)], {"x": x}, kind=kind)
        np.testing.assert_array_equal(found, rule(x, 1))


def test_no_elements_have_no_largest():
    feeds = {"x": np.zeros((3, 0), np.float32)}
    model = make_model([helper.make_node("ArgMax", ["x"], ["y"], axis=1)], feeds, ["y"])
    with pytest.raises(ShapeError, match="no elements"):
        compile_kernels(model, feeds, WEB)


# -- configurations ----------------------------------------------------------------------------------------------------


def test_illegal_configurations_are_refused():
    for arguments in (
        ("serial", 64, 2),
        ("workgroup", 1, 48),
        ("workgroup", 64, 64),
        ("serial", 64, 1, 4, 4),
        ("serial", 64, 1, 1, 1, 3),
        ("parallel", 64, 1),
    ):
        with pytest.raises(ValueError):
            ReduceConfig(*arguments)
    with pytest.raises(ValueError):
        ArgReduceConfig(1, 3)


@pytest.mark.parametrize("profile", [WEB, CPU], ids=["web", "cpu"])
@pytest.mark.parametrize("contiguous", [True, False])
def test_configurations_stay_within_web_limits(profile, contiguous):
    for rows in (1, 5, 64, 4096, 1 << 20):
        for columns in (0, 1, 7, 49, 197, 3136, 1 << 20):
            config = configurations(target_of(profile), rows, columns, contiguous, 1, 1)[0]
            assert config.rows * config.strips <= 256


def test_few_long_rows_are_shared():
    assert configurations(WEB_TARGET, 1, 1 << 20, True, 1, 4)[0].strips == 256
    assert configurations(target_of(CPU), 1, 1 << 20, True, 1, 4)[0].strips == 16
    assert configurations(target_of(CPU), 4096, 768, True, 1, 4)[0].variant == "serial"


@pytest.mark.parametrize(
    ("name", "node", "shape", "dtype", "profile"),
    [
        ("softmax_serial", ("Softmax", {}), (64, 32), np.float32, CPU),
        ("softmax_workgroup", ("Softmax", {}), (5, 300), np.float32, WEB),
        ("softmax_rows", ("Softmax", {"axis": 0}), (33, 64), np.float32, WEB),
        ("softmax_half_odd", ("Softmax", {}), (3, 7), np.float16, WEB),
        ("argmax", ("ArgMax", {"axis": 1}), (4, 300), np.float32, WEB),
    ],
)
def test_golden(name, node, shape, dtype, profile):
    feeds = {"x": np.zeros(shape, dtype)}
    model = make_model([helper.make_node(node[0], ["x"], ["y"], **node[1])], feeds, ["y"])
    _, made, _ = compile_kernels(model, feeds, profile)
    ((kernel, _),) = made
    check_golden(f"wgsl/{name}.wgsl", kernel.wgsl)


# -- loops that a driver would write out -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "size", "adapter", "is_hidden"),
    [
        ("ReduceSum", 49, "llvmpipe (LLVM 15.0.6, 256 bits)", True),
        ("ReduceSum", 8, "llvmpipe (LLVM 15.0.6, 256 bits)", False),
        ("Softmax", 49, "llvmpipe (LLVM 15.0.6, 256 bits)", False),
        ("ReduceSum", 49, "SwiftShader Device (Subzero)", False),
    ],
)
def test_lavapipe_does_not_know_the_length_of_long_sums(op, size, adapter, is_hidden):
    """Mesa writes out loops with bounds that it knows, and LLVM takes 3 ms to compile each of their loads."""
    x = numbers(40, size)
    nodes, constants = reduction(op, (1,)) if op == "ReduceSum" else ([helper.make_node(op, ["x"], ["y"])], {})
    model = make_model(nodes, {"x": x}, ["y"], constants=constants)
    _, kernels, _ = compile_kernels(model, {"x": x}, DeviceProfile(kind="cpu", adapter=adapter))
    ((kernel, _),) = kernels
    assert kernel.template == "reduce_serial"
    assert ("let columns = 49 + i32(groups.z >> 31u);" in kernel.wgsl) == is_hidden
