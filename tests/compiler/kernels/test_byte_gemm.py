"""Products of bytes: exact ones of quantised tensors, and those of weights in blocks with rounded activations."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from onnx import TensorProto, helper

from shaderloom.compiler.passes import byte_products
from shaderloom.compiler.target import target_of
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.compiler.tuning.gemm_tiles import Problem, SharedTile
from shaderloom.runtime.plan.device_profile import BYTE_PRODUCTS, DeviceProfile

from ...support.comparison import reference
from ...support.kernels import make_model
from ...support.running import compile_for, run_plan
from ...support.sessions import leave_groups_out
from .test_packed_gemm import Case, model_of, nbits, rounded

RANGES = {"uint8": (0, 256), "int8": (-128, 128)}


@pytest.fixture(autouse=True)
def without_groups(monkeypatch):
    leave_groups_out(monkeypatch)


def labels(plan) -> str:
    return " ".join(call.label for call in plan.calls)


# -- integers --------------------------------------------------------------------------------------------------------


def integers(
    shape: tuple[int, ...], columns: int, types: tuple[str, str], zeros: tuple[object, object]
) -> tuple[Case, list[np.ndarray]]:
    """MatMulInteger with a weight that is too large to fold; zero points are None, a number, or "rows" or "columns"."""
    rng = np.random.default_rng((*shape, columns))
    x, w = (rng.integers(*RANGES[kind], size).astype(kind) for kind, size in zip(types, (shape, (shape[-1], columns))))
    constants, inputs, found = {"w": w}, ["x", "w", "", ""], []
    for number, (zero, kind) in enumerate(zip(zeros, types)):
        size = {"rows": shape[-2:-1], "columns": (columns,)}.get(zero, ())
        array = rng.integers(*RANGES[kind], size) if isinstance(zero, str) else np.array(zero or 0)
        found.append(array.reshape(-1, 1) if zero == "rows" else array)
        if zero is not None:
            constants[f"z{number}"], inputs[2 + number] = array.astype(kind), f"z{number}"
    expected = (x.astype(np.int64) - found[0]) @ (w.astype(np.int64) - found[1])
    return Case(model_of([helper.make_node("MatMulInteger", inputs, ["y"])], x, constants), x, w, expected), found


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(
    ("shape", "columns", "types", "zeros"),
    [
        ((3, 37, 145), 122, ("uint8", "int8"), (3, None)),
        ((2, 256), 76, ("int8", "int8"), (None, None)),
        pytest.param((70, 640), 36, ("uint8", "uint8"), (130, "columns"), marks=pytest.mark.slow),
        pytest.param((9, 257), 121, ("int8", "uint8"), ("rows", 7), marks=pytest.mark.slow),
        pytest.param((70, 640), 36, ("uint8", "uint8"), (128, 128), marks=pytest.mark.slow),
        pytest.param((1, 1030), 100, ("uint8", "uint8"), (None, None), marks=pytest.mark.slow),
    ],
)
def test_integers(device, kind, shape, columns, types, zeros):
    """Terms that are no whole words, rows and columns that no tile divides; software drivers multiply integers."""
    case, _ = integers(shape, columns, types, zeros)
    plan = compile_for(case.model, {"x": case.x}, replace(device.profile, kind=kind))
    assert ("ByteMatMul" in labels(plan)) == (kind == "discrete")
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("zeros", [(3, None), (7, -5)])
def test_a_large_weight_of_the_run_is_packed(device, zeros):
    """Packing, sums of columns, and the product; a small product multiplies integers."""
    rng = np.random.default_rng(11)
    feeds = {"x": rng.integers(0, 256, (40, 145)).astype(np.uint8), "w": rng.integers(-128, 128, (145, 122))}
    feeds["w"] = feeds["w"].astype(np.int8)
    constants = {"zx": np.array(zeros[0], np.uint8), "zw": np.array(zeros[1] or 0, np.int8)}
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])]
    model = make_model(nodes, feeds, ["y"], constants=constants)
    expected = (feeds["x"].astype(np.int64) - zeros[0]) @ (feeds["w"].astype(np.int64) - (zeros[1] or 0))
    for large in (0, 1 << 30):
        with mock.patch.object(byte_products, "_LARGE_PRODUCT", large):
            plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
        assert ("ByteMatMul" in labels(plan)) == (not large)
        (found,) = run_plan(device, plan, model, feeds)
        np.testing.assert_array_equal(found, expected)


def without_instruction(profile: DeviceProfile) -> DeviceProfile:
    return replace(profile, features=profile.features - {BYTE_PRODUCTS})


@pytest.mark.slow
def test_the_instruction_is_a_feature(each_device):
    """Each device gives the same integers with it and without it."""
    case, _ = integers((33, 260), 68, ("int8", "uint8"), (-128, 255))
    profile = replace(each_device.profile, kind="discrete")
    for each, has_instruction in ((profile, True), (without_instruction(profile), False)):
        plan = compile_for(case.model, {"x": case.x}, each)
        (kernel,) = (found for found in plan.kernels if "dot_bytes" in found.wgsl)
        assert ("dot4I8Packed" in kernel.wgsl) == has_instruction == (BYTE_PRODUCTS in kernel.features)
        (found,) = run_plan(each_device, plan, case.model, {"x": case.x})
        np.testing.assert_array_equal(found, case.expected)


@pytest.mark.slow
def test_tiles_of_integers(device):
    case, _ = integers((65, 300), 132, ("uint8", "int8"), (3, None))
    profile = replace(device.profile, kind="discrete")
    for tile in gemm_tiles.ranked(Problem(64, 64, 64), target_of(profile))[::3]:
        with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
            plan = compile_for(case.model, {"x": case.x}, profile)
        (found,) = run_plan(device, plan, case.model, {"x": case.x})
        np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("turned", [False, True])
def test_dequantised_factors(device, turned):
    """A tensor and a weight that are dequantised, bias and quantisation behind: one kernel, which joins bytes to words
    where it reads them, and is as exact as float64."""
    rng = np.random.default_rng(5)
    x, w = rng.integers(0, 256, (24, 200)).astype(np.uint8), rng.integers(-127, 128, (200, 96)).astype(np.int8)
    scales, bias = rng.uniform(0.01, 0.02, 96).astype(np.float32), rng.standard_normal(96).astype(np.float32)
    number = {"sx": np.float32(0.03), "zx": np.uint8(117), "sy": np.float32(0.25), "zy": np.uint8(128)}
    constants = {
        "w": w.T.copy() if turned else w,
        "sw": scales,
        "b": bias,
        **{name: np.array(each) for name, each in number.items()},
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["wf"], axis=0 if turned else 1),
        helper.make_node("Gemm", ["xf", "wf"], ["p"], transB=int(turned)),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("QuantizeLinear", ["s", "sy", "zy"], ["y"]),
    ]
    model = model_of(nodes, x, constants)
    plan = compile_for(model, {"x": x}, replace(device.profile, kind="discrete"))
    assert labels(plan).count("ByteMatMul") == len(plan.calls) == 1
    (found,) = run_plan(device, plan, model, {"x": x})
    exact = (x.astype(np.float64) - 117) * 0.03 @ (w.astype(np.float64) * scales) + bias
    expected = np.clip(np.rint(exact / 0.25) + 128, 0, 255)
    difference = np.abs(found.astype(int) - expected)
    assert difference.max() <= 1 and (difference > 0).mean() < 1e-3


@pytest.mark.parametrize("columns", [96, pytest.param(97, marks=pytest.mark.slow)])
def test_quantised_products_of_onnxruntime(device, columns):
    """QLinearMatMul whose zero points are in no special place, on whole vectors and without."""
    rng = np.random.default_rng(6)
    x = rng.integers(0, 256, (21, 200)).astype(np.uint8)
    constants = {
        "w": rng.integers(0, 256, (200, columns)).astype(np.uint8),
        **{name: np.array(each, np.float32) for name, each in (("sx", 0.02), ("sw", 0.01), ("sy", 0.3))},
        **{name: np.array(each, np.uint8) for name, each in (("zx", 120), ("zw", 131), ("zy", 127))},
    }
    model = model_of(
        [helper.make_node("QLinearMatMul", ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["y"])], x, constants
    )
    (expected,) = reference(model, {"x": x}, optimised=True)
    for kind in ("cpu", "discrete"):
        plan = compile_for(model, {"x": x}, replace(device.profile, kind=kind))
        assert ("ByteMatMul" in labels(plan)) == (kind == "discrete")
        (found,) = run_plan(device, plan, model, {"x": x})
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize(
    ("form", "scale"), [("Cast", (68,)), ("Cast", (1, 68)), ("DequantizeLinear", (68,)), ("DequantizeLinear", ())]
)
@pytest.mark.parametrize("terms", [640, 636])
def test_scales_of_a_weight_alone(device, form, scale, terms):
    """Software drivers scale the sums, whose loop converts bytes; the weight stays as narrow as it is."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((9, terms)).astype(np.float32)
    w = rng.integers(-127, 128, (terms, 68)).astype(np.int8)
    constants = {"w": w, "sw": rng.uniform(0.01, 0.02, scale).astype(np.float32), "zw": np.full(scale, 5, np.int8)}
    if form == "Cast":
        del constants["zw"]
        factors = [
            helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["c", "sw"], ["f"]),
        ]
    else:
        factors = [helper.make_node(form, ["w", "sw", "zw"], ["f"], axis=1)]
    model = model_of([*factors, helper.make_node("MatMul", ["x", "f"], ["y"])], x, constants)
    plan = compile_for(model, {"x": x}, replace(device.profile, kind="cpu"))
    (call,) = plan.calls
    assert call.label.index("MatMul") < call.label.index("Mul", call.label.index("MatMul") + len("MatMul"))
    assert sum(weight.bytes for weight in plan.weights) < 2 * w.nbytes
    (found,) = run_plan(device, plan, model, {"x": x})
    weight = (w.astype(np.float64) - (0 if form == "Cast" else 5)) * constants["sw"]
    expected = x.astype(np.float64) @ weight
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


# -- weights in blocks -----------------------------------------------------------------------------------------------


def coarse(case: Case) -> Case:
    """Let the model say that activations may have 8 bits."""
    case.model.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", 4))
    return case


def grouped(x: np.ndarray, group: int) -> np.ndarray:
    """Return ``x`` with each group of terms rounded to 255 numbers."""
    groups = x.astype(np.float64).reshape(*x.shape[:-1], -1, group)
    scale = np.maximum(np.abs(groups).max(-1, keepdims=True), 1e-30) / 127
    return (np.rint(groups / scale) * scale).reshape(x.shape)


def check_blocks(device, case: Case, group: int, plan) -> None:
    assert "ByteMatMul" in labels(plan)
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    expected = grouped(case.x, group) @ case.weight
    assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("shape", "columns", "block", "bits", "zeros"),
    [
        ((33, 352), 68, 32, 4, "uint8"),
        pytest.param((3, 7, 64), 12, 32, 4, None, marks=pytest.mark.slow),
        pytest.param((130, 96), 68, 32, 2, "uint8", marks=pytest.mark.slow),
        pytest.param((20, 192), 36, 64, 8, None, marks=pytest.mark.slow),
        pytest.param((40, 256), 36, 128, 4, "uint8", marks=pytest.mark.slow),
        pytest.param((40, 512), 44, 256, 4, None, marks=pytest.mark.slow),
    ],
)
def test_blocks(device, shape, columns, block, bits, zeros):
    case = coarse(nbits(shape, columns, block, bits, zeros=zeros))
    check_blocks(device, case, min(block, 128), compile_for(case.model, {"x": case.x}, rounded(device)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_scales_of_few_bits(device, dtype):
    """Halves take one operation less for each sum, with the same result."""
    case = coarse(nbits((33, 1024), 516, zeros="uint8", dtype=dtype))
    case.model.graph.node.append(helper.make_node("Cast", ["rough"], ["y"], to=TensorProto.FLOAT))
    case.model.graph.node[0].output[0] = "rough"
    case.model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    plan = compile_for(case.model, {"x": case.x}, rounded(device))
    (kernel,) = (found for found in plan.kernels if "dot_bytes" in found.wgsl)
    assert ("* -12582912.0" in kernel.wgsl) == (dtype == "float16")
    check_blocks(device, case, 32, plan)


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [None, "uint8"])
def test_tiles_of_blocks(device, zeros):
    case = coarse(nbits((65, 288), 132, zeros=zeros))
    problem = Problem(64, 64, 64, factors="scaled words")
    for tile in gemm_tiles.ranked(problem, target_of(rounded(device)))[bool(zeros) :: 2]:
        with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
            check_blocks(device, case, 32, compile_for(case.model, {"x": case.x}, rounded(device)))


@pytest.mark.slow
def test_blocks_without_tiles(device):
    """No tile fits into the memory of a workgroup: a thread computes a result by itself."""
    case = coarse(nbits((20, 64), 36, zeros="uint8"))
    with mock.patch.object(gemm_tiles, "ranked", return_value=[SharedTile(128, 128, 32, 8, 2)]):
        limits = {**device.profile.limits, "max-compute-workgroup-storage-size": 16384}
        plan = compile_for(case.model, {"x": case.x}, replace(rounded(device), limits=limits))
    assert "gemm_element" in {kernel.template for kernel in plan.kernels}
    check_blocks(device, case, 32, plan)


@pytest.mark.slow
def test_declared_rows_of_blocks(device):
    case = coarse(nbits((40, 64), 12))
    case.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    plan = compile_for(case.model, {"x": case.x}, rounded(device), dynamic={"rows": (1, 40)})
    assert "ByteMatMul" in labels(plan)
    feeds = [{"x": case.x[:rows]} for rows in (40, 1, 13)]
    expected = grouped(case.x, 32) @ case.weight
    for (found,), each in zip(run_plan(device, plan, case.model, feeds), feeds, strict=True):
        np.testing.assert_allclose(found, expected[: len(each["x"])], rtol=0, atol=2e-6 * np.abs(expected).max())


def test_rows_whose_activations_stay_as_they_are(monkeypatch, device):
    """Groups of rows are predicted to take less than rounding activations, and multiply exact ones."""
    monkeypatch.undo()
    case = coarse(nbits((17, 1056), 33, zeros="uint8"))
    plan = compile_for(case.model, {"x": case.x}, rounded(device))
    assert "ByteMatMul" not in labels(plan) and "PackedMatMul" in labels(plan)
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    assert np.abs(found - case.expected).max() <= 2e-6 * np.abs(case.expected).max()


def test_what_says_that_activations_are_rounded(device):
    """The model by its accuracy level, or the option; and the device must gain by it, and there be many rows."""
    plain, model = nbits((20, 64), 12), coarse(nbits((20, 64), 12))
    few, floats = coarse(nbits((8, 64), 12)), coarse(nbits((20, 64), 12, zeros="float"))
    cases = [
        (plain, "auto", False),
        (plain, "int8", True),
        (model, "auto", True),
        (model, "float", False),
        (few, "int8", False),
        (floats, "int8", False),
    ]
    for case, activations, rounds in cases:
        for profile, gains in ((rounded(device), True), (replace(device.profile, kind="discrete"), False)):
            plan = compile_for(case.model, {"x": case.x}, profile, activations=activations)
            assert ("ByteMatMul" in labels(plan)) == (rounds and gains)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_rounded_activations_that_are_no_numbers(device, number):
    case = coarse(nbits((20, 64), 12))
    case.x[1, 37] = number
    case.x[2] = 0
    plan = compile_for(case.model, {"x": case.x}, rounded(device))
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    assert not np.isfinite(found[1]).any() and (found[2] == 0).all()
    assert np.isfinite(np.delete(found, 1, 0)).all()


@pytest.mark.slow
def test_blocks_as_onnxruntime_rounds_them(device):
    """Accuracy level 4 of the CPU: the same rounding, but for numbers half way between two."""
    case = coarse(nbits((40, 512), 64))
    case.model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    (expected,) = reference(case.model, {"x": case.x}, optimised=True)
    plan = compile_for(case.model, {"x": case.x}, rounded(device))
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    largest = np.abs(case.expected).max()
    assert np.abs(found - case.expected).max() <= 0.01 * largest
    assert np.abs(expected - case.expected).max() <= 0.01 * largest
    assert np.abs(found - expected).max() <= 0.003 * largest
