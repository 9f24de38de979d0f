"""Element types of 8 bits and fewer: every code and rounding boundary, at the border, moved, packed, in bundles.

Covers: compiler/ops/math/codes, compiler/reference/constant_eval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.bundles.session import load_bundle
from shaderloom.bundles.verify import verify_samples
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.constants import packed
from shaderloom.compiler.reference.constant_eval import evaluate_constant
from shaderloom.runtime.memory.tensor import Tensor
from shaderloom.runtime.plan.dtypes import BY_NAME, DType, from_border, interface_dtype, to_border
from shaderloom.runtime.plan.errors import InputError

from ...support.comparison import relative_error
from ...support.running import run_model

FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
CODES = (*FLOAT8, "float4e2m1", "float8e8m0")
INTEGERS = ("int4", "uint4", "int2", "uint2")
ALL = (*CODES, *INTEGERS)


def every(name: str) -> np.ndarray:
    """Every code of a type, once."""
    dtype = BY_NAME[name]
    return np.arange(1 << dtype.width).astype(np.uint8).view(interface_dtype(dtype))


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def boundaries(name: str) -> np.ndarray:
    """All finite numbers of a float type, what lies in the middle between two, and the f32 numbers next to those."""
    with np.errstate(over="ignore"):
        codes = every(name).astype(np.float32)
    numbers = np.unique(codes[np.isfinite(codes)])
    middles = ((numbers[1:].astype(np.float64) + numbers[:-1]) / 2).astype(np.float32)
    step = numbers[-1] - numbers[-2]
    ends = numbers[-1] + step * np.array([0.25, 0.5, 0.5001, 0.75, 1, 2, 1e6], np.float32)
    near = [np.nextafter(middles, np.float32(side)) for side in (np.inf, -np.inf)]
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-30], np.float32)
    return np.concatenate([numbers, middles, *near, ends, -ends, special])


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, str],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 25,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "narrow",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, BY_NAME[dtype].onnx, None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def cast(x: np.ndarray, to: str, **attributes: Any) -> onnx.ModelProto:
    return model([helper.make_node("Cast", ["x"], ["y"], to=BY_NAME[to].onnx, **attributes)], {"x": x}, {"y": to})


def expected_of(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(proto).run(None, dict(feeds))[0])


def on_host(proto: onnx.ModelProto, x: np.ndarray, dtype: DType) -> np.ndarray:
    """What the host's evaluation of weight transforms gives for the constant ``x``."""
    constant = model(proto.graph.node, {}, {"y": dtype.name}, {"x": x})
    imported = load_model(constant)
    graph = specialise(imported, bind_shapes(imported, {}, None).shapes)
    return to_border(evaluate_constant(graph.outputs[0]), dtype)


def check_bits(results: Sequence[np.ndarray], expected: np.ndarray) -> None:
    """Equal bits; any NaN is as good as another in types that have many."""
    for result in results:
        assert result.dtype == expected.dtype and result.shape == expected.shape
        same = bits(result) == bits(expected)
        if "float" in expected.dtype.name:
            same |= np.isnan(result.astype(np.float32)) & np.isnan(expected.astype(np.float32))
        assert same.all(), (result[~same][:8], expected[~same][:8])


# -- conversions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["float32", "float16", "bfloat16", "bool", "int64", "int8", "int4", "float8e5m2"])
@pytest.mark.parametrize("name", ALL)
def test_every_code_as_another_type(name: str, to: str, each_device):
    x = every(name)
    if "int" in to:  # what an integer cannot hold is undefined
        with np.errstate(invalid="ignore"):
            numbers = x.astype(np.float32)
            x = x[np.isfinite(numbers) & (np.abs(numbers) < 127)]
    proto = cast(x, to)
    # ml_dtypes has no casts between its integers
    expected = x.astype(np.float32).astype(np.int32).astype(ml_dtypes.int4) if to == "int4" else None
    if expected is None:
        expected = expected_of(proto, {"x": x})
    check_bits([*run_model(each_device, proto, {"x": x}), on_host(proto, x, BY_NAME[to])], expected)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("source", ["float32", "float16", "int32"])
@pytest.mark.parametrize("name", [*FLOAT8, "float4e2m1"])
def test_rounding_to_codes(name: str, source: str, saturate: int, each_device):
    if source == "float32":
        x = boundaries(name)
    elif source == "float16":
        x = np.arange(65536).astype(np.uint16).view(np.float16)
    else:
        x = np.arange(-70_000, 70_000, 37, dtype=np.int32)
    proto = cast(x, name, saturate=saturate)
    expected = expected_of(proto, {"x": x})
    with np.errstate(invalid="ignore"):
        nan = np.isnan(x)
    for result in (*run_model(each_device, proto, {"x": x}), on_host(proto, x, BY_NAME[name])):
        np.testing.assert_array_equal(bits(result)[~nan], bits(expected)[~nan])
        if name != "float4e2m1":  # the sign of a NaN is the driver's affair
            assert np.isnan(result[nan].astype(np.float32)).all()


#: (number, up, down, nearest) in powers of two, with saturation; the table of Cast has 0 and infinity
_POWERS = [
    (0.0, -127, -127, -127),
    (2.0**-140, -127, -127, -127),
    (2.0**-127, -127, -127, -127),
    (2.0**-127 * 1.25, -126, -127, -127),
    (2.0**-127 * 1.5, -126, -127, -126),
    (1.0, 0, 0, 0),
    (1.1, 1, 0, 0),
    (1.5, 1, 0, 1),
    (np.nextafter(np.float32(2), np.float32(0)), 1, 0, 1),
    (-3.0, 2, 1, 2),
    (2.0**127, 127, 127, 127),
    (3e38, 127, 127, 127),
    (np.inf, 127, 127, 127),
]


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_rounding_to_powers_of_two(mode: str, each_device):
    column = ["up", "down", "nearest"].index(mode) + 1
    x = np.array([row[0] for row in _POWERS] + [np.nan], np.float32)
    proto = cast(x, "float8e8m0", round_mode=mode)
    expected = np.array([row[column] + 127 for row in _POWERS] + [255], np.uint8)
    for result in (*run_model(each_device, proto, {"x": x}), on_host(proto, x, BY_NAME["float8e8m0"])):
        np.testing.assert_array_equal(bits(result), expected)


def test_powers_of_two_without_saturation(each_device):
    x = np.array([0.0, 2.0**-128, 2.0**-127, 1.0, 1.5, 2.0**127, 3e38, np.inf, np.nan], np.float32)
    proto = cast(x, "float8e8m0", saturate=0, round_mode="nearest")
    (result,) = run_model(each_device, proto, {"x": x})
    np.testing.assert_array_equal(bits(result), [255, 255, 0, 127, 128, 254, 255, 255, 255])


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_keep_their_low_bits(name: str, each_device):
    for x in (np.arange(-70, 300, dtype=np.int64), np.array([-9.9, -8.0, -0.9, 3.99, 7.2, 300.5], np.float32)):
        proto = cast(x, name)
        result = run_model(each_device, proto, {"x": x})
        check_bits([*result, on_host(proto, x, BY_NAME[name])], expected_of(proto, {"x": x}))


def test_a_cast_through_a_code_is_not_removed(device):
    x = boundaries("float8e4m3fn")[:200]
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=17), helper.make_node("Cast", ["c"], ["y"], to=1)]
    proto = model(nodes, {"x": x}, {"y": "float32"})
    check_bits(run_model(device, proto, {"x": x}), expected_of(proto, {"x": x}))


def test_the_last_of_two_casts_keeps_its_attributes(device):
    x = np.array([1.0, 1000.0, 60000.0], np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=1),
        helper.make_node("Cast", ["c"], ["y"], to=17, saturate=0),
    ]
    proto = model(nodes, {"x": x}, {"y": "float8e4m3fn"})
    check_bits(run_model(device, proto, {"x": x}), expected_of(proto, {"x": x}))


# -- moved -----------------------------------------------------------------------------------------------------------


def _moved(name: str) -> dict[str, onnx.ModelProto]:
    x = sample(name, (3, 5, 7))

    def one(op: str, *more: str, **attributes: object) -> onnx.NodeProto:
        return helper.make_node(op, ["x", *more], ["y"], **attributes)

    nodes = {
        "Identity": one("Identity"),
        "Transpose": one("Transpose", perm=[2, 0, 1]),
        "Reshape": one("Reshape", "shape"),
        "Concat": one("Concat", "x", axis=1),
        "Slice": one("Slice", "starts", "ends", "axes", "steps"),
        "Gather": one("Gather", "indices", axis=2),
        "Pad": one("Pad", "pads"),
    }
    constants = {
        "shape": np.array([7, -1]),
        "starts": np.array([4]),
        "ends": np.array([-9]),
        "axes": np.array([1]),
        "steps": np.array([-2]),
        "indices": np.array([[6, 0], [-1, 3]]),
        "pads": np.array([0, 1, 0, 1, 0, 2]),
    }
    return {op: model([node], {"x": x}, {"y": name}, constants) for op, node in nodes.items()}


def sample(name: str, shape: tuple[int, ...]) -> np.ndarray:
    codes = np.random.default_rng(len(shape)).integers(0, 1 << BY_NAME[name].width, shape)
    return codes.astype(np.uint8).view(interface_dtype(BY_NAME[name]))


@pytest.mark.parametrize("name", ALL)
def test_moved_elements_keep_their_bits(name: str, each_device):
    """NaN's payload and sign too: nothing is converted on the way."""
    x = sample(name, (3, 5, 7))
    numbers = bits(x)
    for op, proto in _moved(name).items():
        like = onnx.ModelProto()
        like.CopyFrom(proto)
        like.graph.input[0].type.tensor_type.elem_type = like.graph.output[0].type.tensor_type.elem_type = 2
        (result,) = run_model(each_device, proto, {"x": x})
        np.testing.assert_array_equal(bits(result), expected_of(like, {"x": numbers}), err_msg=op)
        assert result.dtype == x.dtype


@pytest.mark.parametrize("shape", [(), (1,), (3,), (17,), (65,), (1000,), (0, 3)])
@pytest.mark.parametrize("name", ["int4", "uint2", "float8e5m2", "float4e2m1"])
def test_sizes(name: str, shape: tuple[int, ...], device):
    x = sample(name, shape)
    (result,) = run_model(device, cast(x, "float32"), {"x": x})
    check_bits([result], x.astype(np.float32))


# -- quantisation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tensor", "axis", "block"])
@pytest.mark.parametrize("name", [*FLOAT8, "float4e2m1", *INTEGERS])
def test_quantize_and_dequantize(name: str, form: str, each_device):
    """Scales are powers of two: no division is inexact, so results are equal."""
    generator = np.random.default_rng(3)
    x = generator.normal(0, 6, (6, 10)).astype(np.float32)
    shape, attributes = {"tensor": ((), {}), "axis": ((6,), {"axis": 0}), "block": ((6, 3), {"block_size": 4})}[form]
    scale = np.exp2(generator.integers(-3, 2, shape)).astype(np.float32)
    dtype = BY_NAME[name]
    low, high = dtype.integer_range if dtype.is_integer else (0, 0)
    zero = np.asarray(generator.integers(low, high + 1, shape)).astype(interface_dtype(dtype))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **attributes),
    ]
    proto = model(nodes, {"x": x}, {"q": name, "y": "float32"}, {"scale": scale, "zero": zero})
    expected = ReferenceEvaluator(proto).run(None, {"x": x})
    for result, wanted in zip(run_model(each_device, proto, {"x": x}), expected, strict=True):
        check_bits([result], wanted)


@pytest.mark.parametrize("precision", [0, 1, 10])
def test_the_precision_of_the_division(precision: int, device):
    """Quotients rounded to float16 first are other ones in some cases; the scale's type is the default."""
    x = np.random.default_rng(0).normal(0, 3, 4000).astype(np.float16)
    scale = np.array(0.25, np.float16) if precision != 1 else np.array(0.3, np.float16)
    attributes = {"precision": precision} if precision else {}
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=17, **attributes)
    proto = model([node], {"x": x}, {"y": "float8e4m3fn"}, {"scale": scale})
    (result,) = run_model(device, proto, {"x": x})
    expected = expected_of(proto, {"x": x})
    # WGSL divides with an error of 2.5 units: a quotient next to a boundary may fall on its other side
    assert np.count_nonzero(bits(result) != bits(expected)) <= (0 if precision != 1 else 4)


def test_scales_that_are_powers_of_two(device):
    x, scale = sample("float4e2m1", (4, 64)), every("float8e8m0")[120:128].reshape(4, 2)
    node = helper.make_node("DequantizeLinear", ["x", "scale"], ["y"], block_size=32, output_dtype=1)
    proto = model([node], {"x": x}, {"y": "float32"}, {"scale": scale}, opset=28)
    expected = x.astype(np.float32) * np.repeat(scale.astype(np.float32), 32, 1)
    check_bits(run_model(device, proto, {"x": x}), expected)


# -- constants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4e2m1"])
@pytest.mark.parametrize("size", [7, 40_001])
def test_packed_constants(name: str, size: int, device):
    """Small ones are read while compiling, large ones unpacked by the kernels; rows do not begin with a byte."""
    w = sample(name, (1, size))
    proto = model([helper.make_node("Cast", ["w"], ["y"], to=1)], {}, {"y": "float32"}, {"w": w})
    check_bits(run_model(device, proto, {}), w.astype(np.float32))
    source = load_model(proto).graph.constants["w"]
    assert packed(source) == proto.graph.initializer[0].raw_data
    np.testing.assert_array_equal(source.read(), from_border(w, BY_NAME[name]))


@pytest.mark.parametrize("name", ["int4", "uint2", "float4e2m1", "float8e4m3fn"])
def test_weights_stay_packed(name: str, device, tmp_path: Path):
    """A quantised weight takes its packed size in device memory, from a file of external data too."""
    K, N = 192, 256
    x = np.random.default_rng(0).normal(size=(5, K)).astype(np.float32)
    codes = sample(name, (K, N))
    if name == "float8e4m3fn":
        codes = (np.random.default_rng(1).normal(size=(K, N))).astype(ml_dtypes.float8_e4m3fn)
    scale = np.random.default_rng(2).uniform(0.01, 0.1, N).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["wide"], axis=1),
        helper.make_node("MatMul", ["x", "wide"], ["y"]),
    ]
    proto = model(nodes, {"x": x}, {"y": "float32"}, {"w": codes, "scale": scale}, opset=23)
    path = tmp_path / "model.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="data.bin", size_threshold=1024)
    expected = x @ (codes.astype(np.float32) * scale)
    with shaderloom.InferenceSession(path, device=device, cache=False, options={"verify": True}) as session:
        (result,) = session.run(None, {"x": x})
        used = session.report()["device_bytes"]["weights"]
    assert relative_error(result, expected) <= 1e-5
    assert used <= 1.05 * K * N * BY_NAME[name].width // 8 + 4 * N + 256


# -- the border ------------------------------------------------------------------------------------------------------


def _pass(name: str, shape: tuple[int, ...], device: Any) -> shaderloom.InferenceSession:
    proto = model([helper.make_node("Transpose", ["x"], ["y"])], {"x": sample(name, shape)}, {"y": name})
    return shaderloom.InferenceSession(proto.SerializeToString(), device=device, providers=["wgpu"], cache=False)


@pytest.mark.parametrize("name", ALL)
def test_feeds_and_results(name: str, device):
    """Arrays of ml_dtypes, or the bits as uint8; results are arrays of ml_dtypes."""
    x = sample(name, (3, 5))
    with _pass(name, x.shape, device) as session:
        assert session.get_inputs()[0].type == f"tensor({name})"
        for feed in (x, bits(x)):
            (result,) = session.run(None, {"x": feed})
            check_bits([result], x.T)
        if name in ("int4", "int2"):
            (result,) = session.run(None, {"x": x.astype(np.int8)})
            check_bits([result], x.T)
            with pytest.raises(InputError, match="outside"):
                session.run(None, {"x": np.full((3, 5), 9, np.int8)})
        with pytest.raises(InputError, match="dtype float32"):
            session.run(None, {"x": x.astype(np.float32)})


@pytest.mark.parametrize("name", ["int4", "float8e4m3fn", "float8e8m0"])
def test_tensors_on_the_device(name: str, device):
    x = sample(name, (3, 5))
    with Tensor.from_numpy(x, device) as tensor, _pass(name, x.shape, device) as session:
        assert tensor.dtype == x.dtype and tensor.nbytes == 15
        check_bits([tensor.numpy()], x)
        value = shaderloom.OrtValue.ortvalue_from_numpy(x)
        assert value.element_type() == BY_NAME[name].onnx
        binding = session.io_binding()
        binding.bind_input("x", tensor)
        binding.bind_output("y", "gpu")
        session.run_with_iobinding(binding)
        check_bits([binding.copy_outputs_to_cpu()[0]], x.T)


def test_a_constant_output(device):
    x = sample("int4", (3, 5))
    proto = model([helper.make_node("Identity", ["w"], ["y"])], {}, {"y": "int4"}, {"w": x})
    with shaderloom.InferenceSession(proto.SerializeToString(), device=device, cache=False) as session:
        (result,) = session.run(None, {})
    np.testing.assert_array_equal(bits(result), bits(x))


@pytest.mark.parametrize("name", ["int4", "float8e5m2"])
def test_branches_and_crossings(name: str, device):
    """Through an If whose condition is computed, and through a node that only the cpu provider runs."""
    x = sample(name, (6,))
    branches = {
        key: helper.make_graph(
            [helper.make_node("Identity" if key == "then_branch" else "Concat", ["x"], ["b"], **attributes)],
            key,
            [],
            [helper.make_tensor_value_info("b", BY_NAME[name].onnx, None)],
        )
        for key, attributes in (("then_branch", {}), ("else_branch", {"axis": 0}))
    }
    nodes = [helper.make_node("If", ["c"], ["i"], **branches), helper.make_node("Cast", ["i"], ["y"], to=11)]
    inputs = {"x": x, "c": np.array(True)}
    proto = model(nodes, inputs, {"y": "float64"})
    both = ["wgpu", "cpu"]
    with shaderloom.InferenceSession(proto.SerializeToString(), providers=both, device=device, cache=False) as session:
        for condition in (True, False):
            (result,) = session.run(None, {"x": x, "c": np.array(condition)})
            check_bits([result], x.astype(np.float64))


@pytest.mark.parametrize("name", ["int4", "float8e4m3fn"])
def test_bundles(name: str, device, tmp_path: Path):
    """A bundle holds packed weights unpacked, gives the same bits, and verifies its samples."""
    x, w = sample(name, (3, 500)), sample(name, (100, 500))
    node = helper.make_node("Concat", ["x", "w"], ["y"], axis=0)
    proto = model([node], {"x": x}, {"y": name}, {"w": w})
    path = tmp_path / "model.onnx"
    onnx.save_model(proto, path)
    compile_bundle(path, tmp_path / "model.shaderbundle", sample=True, sample_inputs={"x": x}, device=device)
    with load_bundle(tmp_path / "model.shaderbundle", device=device) as session:
        comparisons = list(verify_samples(session))
        assert len(comparisons) == 1 and comparisons[0].reason is None
        (result,) = session.run(None, {"x": x})
        check_bits([result], np.concatenate([bits(x), bits(w)]).view(x.dtype))
