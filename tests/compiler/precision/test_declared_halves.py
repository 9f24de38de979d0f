"""Models that declare float16 or bfloat16: what an operator computes on the way to its outputs is never rounded.

Covers: compiler/precision/declared_halves.py.  Sizes are those at which a sum, a count or a factor leaves float16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from shaderloom import InferenceSession
from shaderloom.compiler.target import target_of

from ...support.running import compile_for, run_plan

HALF = 2.0**-11  #: relative error of one rounding to float16


def half_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
) -> ModelProto:
    """A model with float16 inputs, weights as given, and the output ``y``."""
    half = helper.np_dtype_to_tensor_dtype(np.dtype(np.float16))
    graph = helper.make_graph(
        list(nodes),
        "halves",
        [helper.make_tensor_value_info(name, half, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", half, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def run(device: Any, model: ModelProto, feeds: Mapping[str, np.ndarray], **options: Any) -> np.ndarray:
    with InferenceSession(model, device=device, cache=False, **options) as session:
        (result,) = session.run(None, feeds)
    assert result.dtype == np.float16
    return result.astype(np.float64)


def assert_rounded_once(found: np.ndarray, expected: np.ndarray, roundings: float = 1.5) -> None:
    """Whether ``found`` is ``expected`` rounded to float16, give or take float32 arithmetic."""
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= roundings * HALF * np.abs(expected).max()


def test_the_mean_of_an_image_before_a_convolution(each_device) -> None:
    """The sum of 9,216 elements of about 20 is far beyond float16; it lies in memory between two kernels."""
    generator = np.random.default_rng(0)
    weights = {
        "w1": (generator.standard_normal((32, 3, 3, 3)) * 0.2).astype(np.float16),
        "w2": (generator.standard_normal((8, 32, 1, 1)) * 0.1).astype(np.float16),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["y"]),
    ]
    x = np.abs(generator.standard_normal((1, 3, 96, 96)) * 20).astype(np.float16)
    found = run(each_device, half_model(nodes, {"x": x.shape}, weights), {"x": x})
    padded = np.pad(x.astype(np.float64)[0], ((0, 0), (1, 1), (1, 1)))
    means = np.zeros(32)
    for row in range(3):
        for column in range(3):
            window = padded[:, row : row + 96, column : column + 96].mean((1, 2))
            means += weights["w1"][:, :, row, column].astype(np.float64) @ window
    expected = (weights["w2"][:, :, 0, 0].astype(np.float64) @ means).reshape(1, 8, 1, 1)
    assert_rounded_once(found, expected, roundings=4)  # named tensors in memory are rounded, too


@pytest.mark.parametrize("rows", [2048, 90_001])
def test_the_mean_of_many_rows_before_a_product(each_device, rows: int) -> None:
    """Beyond 65,504 rows neither the count nor its reciprocal is a normal half."""
    generator = np.random.default_rng(1)
    w = (generator.standard_normal((64, 16)) * 0.1).astype(np.float16)
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["a"], axes=[1], keepdims=0),
        helper.make_node("Gemm", ["a", "w"], ["y"]),
    ]
    x = (generator.standard_normal((1, rows, 64)) * 5 + 30).astype(np.float16)
    expected = x.astype(np.float64).mean(1) @ w.astype(np.float64)
    for shape, dynamic in ((x.shape, None), ((1, "n", 64), {"n": (1, 100_000)})):
        found = run(each_device, half_model(nodes, {"x": shape}, {"w": w}), {"x": x}, dynamic=dynamic)
        assert_rounded_once(found, expected, roundings=4)


def _logarithm_of_sum(x: np.ndarray) -> np.ndarray:
    largest = x.max(1, keepdims=True)
    return largest + np.log(np.exp(x - largest).sum(1, keepdims=True))


ROWS = {
    "ReduceMean": ({"axes": [1]}, 20.0, lambda x: x.mean(1, keepdims=True)),
    "ReduceL2": ({"axes": [1]}, 20.0, lambda x: np.sqrt((x * x).sum(1, keepdims=True))),
    "ReduceSumSquare": ({"axes": [1]}, 0.1, lambda x: (x * x).sum(1, keepdims=True)),
    "ReduceLogSumExp": ({"axes": [1]}, 3.0, _logarithm_of_sum),
    "LpNormalization": ({"axis": 1, "p": 2}, 20.0, lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
}


@pytest.mark.parametrize("operator", ROWS)
def test_sums_over_long_rows(each_device, operator: str) -> None:
    """Rows of 250,001 elements: sums and counts leave float16, and a thread of a software driver ends its loops."""
    attributes, scale, reference = ROWS[operator]
    x = (np.random.default_rng(2).standard_normal((2, 250_001)) * scale + scale).astype(np.float16)
    model = half_model([helper.make_node(operator, ["x"], ["y"], **attributes)], {"x": x.shape}, opset=12)
    assert_rounded_once(run(each_device, model, {"x": x}), reference(x.astype(np.float64)))


def test_instance_normalization_of_large_images(each_device) -> None:
    x = (np.random.default_rng(3).standard_normal((1, 2, 300, 301)) * 20 + 20).astype(np.float16)
    weights = {"scale": np.array([0.7, 1.5], np.float16), "bias": np.array([0.1, -1], np.float16)}
    nodes = [helper.make_node("InstanceNormalization", ["x", "scale", "bias"], ["y"])]
    wide = x.astype(np.float64)
    mean, variance = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
    scale, bias = (weights[name].astype(np.float64).reshape(1, 2, 1, 1) for name in ("scale", "bias"))
    expected = (wide - mean) / np.sqrt(variance + 1e-5) * scale + bias
    assert_rounded_once(run(each_device, half_model(nodes, {"x": x.shape}, weights), {"x": x}), expected)


def test_local_response_normalization_of_a_small_alpha(each_device) -> None:
    """alpha / size is below the normal halves, and squares are beyond the largest one."""
    x = (np.random.default_rng(4).standard_normal((1, 16, 9, 9)) * 300).astype(np.float16)
    wide = x.astype(np.float64)
    squares = np.stack([(wide[:, max(0, c - 2) : c + 3] ** 2).sum(1) for c in range(16)], 1)
    model = half_model([helper.make_node("LRN", ["x"], ["y"], size=5, alpha=1e-5, beta=0.75)], {"x": x.shape})
    assert_rounded_once(run(each_device, model, {"x": x}), wide / (1 + 1e-5 / 5 * squares) ** 0.75)


@pytest.mark.parametrize("size", [48, 300])
@pytest.mark.parametrize(("weight", "factor", "scale"), [(200.0, 400.0, 1e-4), (1e-3, 1e-3, 100.0)])
def test_a_factor_folded_into_half_weights(each_device, size: int, weight: float, factor: float, scale: float) -> None:
    """Neither 200 * 400 nor 0.001 * 0.001 is a normal half."""
    generator = np.random.default_rng(5)
    weights = {
        "w": (generator.uniform(0.5, 1.5, (size, 64)) * weight).astype(np.float16),
        "s": np.array([factor], np.float16),
    }
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "s"], ["y"])]
    x = (generator.standard_normal((4, size)) * scale).astype(np.float16)
    found = run(each_device, half_model(nodes, {"x": x.shape}, weights), {"x": x})
    expected = x.astype(np.float64) @ weights["w"].astype(np.float64) * np.float64(weights["s"][0])
    assert_rounded_once(found, expected, roundings=2)


def test_halves_lie_in_memory_where_the_device_converts_them_fast(each_device) -> None:
    """Elsewhere inputs, outputs and tables alone are halves, and the rest has the kernels of a float32 model."""
    generator = np.random.default_rng(8)
    weights = {
        "t": generator.standard_normal((600, 24)).astype(np.float16),
        "v": (generator.standard_normal((24, 64)) * 0.2).astype(np.float16),
        "w": generator.standard_normal((64, 16)).astype(np.float16),
    }
    nodes = [
        helper.make_node("Gather", ["t", "i"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("Softmax", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    model = half_model(nodes, {"x": (5, 24)}, weights)
    model.graph.input.append(helper.make_tensor_value_info("i", helper.np_dtype_to_tensor_dtype(np.dtype(int)), [5]))
    x, i = generator.standard_normal((5, 24)).astype(np.float16), np.array([0, 599, 7, 300, -1])
    with InferenceSession(model, device=each_device, cache=False) as session:
        (y,) = session.run(None, {"x": x, "i": i})
        report = session.report()
    b = (weights["t"][i].astype(np.float64) + x) @ weights["v"].astype(np.float64)
    exponents = np.exp(b - b.max(1, keepdims=True))
    c = exponents / exponents.sum(1, keepdims=True)
    assert_rounded_once(y.astype(np.float64), c @ weights["w"].astype(np.float64), roundings=6)
    converts = target_of(each_device.profile).converts_halves
    types = {row["name"]: row["dtype"] for row in report["tensors"]}
    assert {types[name] for name in "bc" if name in types} == {"float16" if converts else "float32"}
    bytes_of = {name: array.size * (2 if converts or name == "t" else 4) for name, array in weights.items()}
    assert report["weight_bytes"] == sum(bytes_of.values())


def test_weights_that_are_joined_stay_halves(device) -> None:
    """Products of one activation are one, and what is made of their weights loses nothing as halves."""
    generator = np.random.default_rng(9)
    weights = {name: generator.standard_normal((256, 256)).astype(np.float16) * np.float16(1e-3) for name in "uvw"}
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}x"]) for name in "uvw"]
    nodes.append(helper.make_node("Concat", ["ux", "vx", "wx"], ["y"], axis=0))
    x = generator.standard_normal((40, 256)).astype(np.float16)
    model = half_model(nodes, {"x": x.shape}, weights)
    products = [x.astype(np.float64) @ weight.astype(np.float64) for weight in weights.values()]
    assert_rounded_once(run(device, model, {"x": x}), np.concatenate(products), roundings=3)
    plan = compile_for(model, {"x": x})
    read = {each.buffer for call in plan.calls for each in call.ranges if each.buffer.startswith("weight:")}
    (joined,) = [weight for weight in plan.weights if f"weight:{weight.key}" in read]
    assert joined.bytes == 3 * 256 * 256 * 2


@pytest.mark.parametrize(("k", "n"), [(512, 256), (257, 301)])
@pytest.mark.parametrize("scaled", [False, True])
def test_weights_that_are_transposed_are_stored_so(device, k: int, n: int, scaled: bool) -> None:
    """Gemm with transB multiplies by the copy that a float32 model has, of halves; a factor is applied in a load."""
    generator = np.random.default_rng((k, scaled))
    w, s = generator.standard_normal((n, k)).astype(np.float16), generator.uniform(0.5, 2, n).astype(np.float16)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)]
    if scaled:
        nodes = [
            helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
            helper.make_node("Mul", ["t", "s"], ["v"]),
            helper.make_node("MatMul", ["x", "v"], ["y"]),
        ]
    x = generator.standard_normal((5, k)).astype(np.float16)
    model = half_model(nodes, {"x": x.shape}, {"w": w, "s": s} if scaled else {"w": w})
    expected = x.astype(np.float64) @ (w.astype(np.float64).T * (s if scaled else 1.0))
    assert_rounded_once(run(device, model, {"x": x}), expected, roundings=2)
    plan = compile_for(model, {"x": x})
    assert all("Transpose" not in call.label for call in plan.calls)


def test_float32_outputs_that_are_read_inside_lie_in_memory_once(device) -> None:
    """A file of halves with float32 inputs and outputs stores a result that it casts for both once."""
    types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("float16", "float32")}
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=types["float16"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=types["float32"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Cast", ["c"], ["z"], to=types["float32"]),
    ]
    generator = np.random.default_rng(4)
    x, w = generator.standard_normal((7, 33)).astype(np.float32), generator.standard_normal((33, 5))
    graph = helper.make_graph(
        nodes,
        "halves between floats",
        [helper.make_tensor_value_info("x", types["float32"], x.shape)],
        [helper.make_tensor_value_info(name, types["float32"], None) for name in "yz"],
        [numpy_helper.from_array(w.astype(np.float16), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with InferenceSession(model, device=device, cache=False) as session:
        y, z = session.run(None, {"x": x})
    exponents = np.exp(x.astype(np.float16).astype(np.float64))
    expected = exponents / exponents.sum(1, keepdims=True)
    assert_rounded_once(y.astype(np.float64), expected)
    assert_rounded_once(z.astype(np.float64), expected @ w.astype(np.float16).astype(np.float64), roundings=2)
    assert len(compile_for(model, {"x": x}).calls) == 2


@pytest.mark.parametrize("operator", ["Conv", "MatMul"])
def test_tiles_round_floats_behind_their_loads(device, operator: str) -> None:
    """A tile kernel that reads float32 inputs as halves rounds when it stores the tile: before, it would wait."""
    types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("float16", "float32")}
    generator = np.random.default_rng(11)
    shape, weight = ((1, 3, 40, 37), (64, 3, 5, 5)) if operator == "Conv" else ((130, 260), (260, 64))
    x, w = generator.standard_normal(shape).astype(np.float32), generator.integers(-2, 3, weight).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=types["float16"]),
        helper.make_node(operator, ["a", "w"], ["b"], **({"pads": [2, 2, 2, 2]} if operator == "Conv" else {})),
        helper.make_node("Cast", ["b"], ["y"], to=types["float32"]),
    ]
    graph = helper.make_graph(
        nodes,
        "halves of floats",
        [helper.make_tensor_value_info("x", types["float32"], shape)],
        [helper.make_tensor_value_info("y", types["float32"], None)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    plan = compile_for(model, {"x": x}, replace(device.profile, kind="discrete"))
    (kernel,) = [kernel for kernel in plan.kernels if kernel.template == "gemm_shared"]
    assert re.search(r"put_a\(.*, round_float16\w*\(next_a_0\)\)", kernel.wgsl)
    (y,) = run_plan(device, plan, model, {"x": x})
    rounded = x.astype(np.float16).astype(np.float64)
    if operator == "MatMul":
        expected = rounded @ w.astype(np.float64)
    else:
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(rounded[0], ((0, 0), (2, 2), (2, 2))), (3, 5, 5))
        expected = np.einsum("zhwcij,ocij->zohw", windows, w.astype(np.float64))
    assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tiles_convert_joined_tensors_behind_their_loads(device, dtype: str) -> None:
    """A tile kernel that reads one of several tensors converts what it has read when it stores the tile, too."""
    types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("float16", "float32")}
    generator = np.random.default_rng(12)
    parts = {name: generator.standard_normal((130, size)).astype(dtype) for name, size in (("p", 100), ("q", 160))}
    w = generator.integers(-2, 3, (260, 64)).astype(np.float16)
    nodes = [helper.make_node("Cast", [name], [f"{name}h"], to=types["float16"]) for name in parts]
    nodes += [
        helper.make_node("Concat", ["ph", "qh"], ["a"], axis=1),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=types["float32"]),
    ]
    graph = helper.make_graph(
        nodes,
        "joined",
        [helper.make_tensor_value_info(name, types[dtype], part.shape) for name, part in parts.items()],
        [helper.make_tensor_value_info("y", types["float32"], None)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    plan = compile_for(model, parts, replace(device.profile, kind="discrete"))
    (kernel,) = [kernel for kernel in plan.kernels if kernel.template == "gemm_shared"]
    conversion = "unpack_float16" if dtype == "float16" else "round_float16"
    assert re.search(rf"put_a\(.*, {conversion}\w*\(next_a_0\)\)", kernel.wgsl)
    (y,) = run_plan(device, plan, model, parts)
    joined = np.concatenate([part.astype(np.float16) for part in parts.values()], axis=1)
    expected = joined.astype(np.float64) @ w.astype(np.float64)
    assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()


def test_outputs_that_are_read_inside_lie_in_memory_once(device) -> None:
    """An output and the value that other nodes read are one tensor, of the type that the file declares."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Exp", ["r"], ["y"])]
    model = half_model(nodes, {"x": (5, 7)})
    model.graph.output.append(
        helper.make_tensor_value_info("r", model.graph.output[0].type.tensor_type.elem_type, None)
    )
    x = np.random.default_rng(6).standard_normal((5, 7)).astype(np.float16)
    with InferenceSession(model, device=device, cache=False) as session:
        y, r = session.run(None, {"x": x})
    np.testing.assert_array_equal(r, np.maximum(x, np.float16(0)))
    assert r.dtype == y.dtype == np.float16
    assert_rounded_once(y.astype(np.float64), np.exp(r.astype(np.float64)))


def test_casts_keep_their_types(device) -> None:
    """A cast to float32 of a half is a float32 output; one to float16 rounds; CastLike and BitCast see halves."""
    half, single = (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (np.float16, np.float32))
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=single),
        helper.make_node("Mul", ["wide", "factor"], ["scaled"]),
        helper.make_node("CastLike", ["scaled", "x"], ["rounded"]),
        helper.make_node("Cast", ["rounded"], ["z"], to=single),
        helper.make_node("Cast", ["x"], ["y"], to=half),
    ]
    model = half_model(nodes, {"x": (3, 5)}, {"factor": np.array(1.0009, np.float32)})
    for name in ("wide", "z"):
        model.graph.output.append(helper.make_tensor_value_info(name, single, None))
    x = np.random.default_rng(7).standard_normal((3, 5)).astype(np.float16)
    with InferenceSession(model, device=device, cache=False) as session:
        y, wide, z = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    np.testing.assert_array_equal(z, (x.astype(np.float32) * np.float32(1.0009)).astype(np.float16).astype(np.float32))


def test_outputs_made_of_constant_halves_keep_their_types(device) -> None:
    """A float32 output whose elements halves could hold, made once or of the shape of halves, is not stored as them."""
    single = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))
    nodes = [
        helper.make_node("EyeLike", ["w"], ["eye"], dtype=single),
        helper.make_node("Cast", ["w"], ["wide"], to=single),
        helper.make_node("EyeLike", ["x"], ["eye_of_x"], dtype=single),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    w = np.array([[1.5, -2, 0], [4, 5, 6]], np.float16)
    model = half_model(nodes, {"x": (2, 3)}, {"w": w})
    for name in ("eye", "wide", "eye_of_x"):
        model.graph.output.append(helper.make_tensor_value_info(name, single, None))
    with InferenceSession(model, device=device, cache=False) as session:
        y, eye, wide, eye_of_x = session.run(None, {"x": -w})
    assert y.dtype == np.float16
    for found, expected in ((eye, np.eye(2, 3)), (wide, w), (eye_of_x, np.eye(2, 3))):
        np.testing.assert_array_equal(found, expected.astype(np.float32), strict=True)


def test_halves_that_follow_a_convolution_lie_along_its_vectors(device) -> None:
    """A result in the order of the file does not make each thread of a convolution compute one element."""
    weight = np.random.default_rng(8).standard_normal((16, 8, 3, 3)).astype(np.float16)
    model = half_model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": (1, 8, 10, 10)}, {"w": weight})
    plan = compile_for(model, {"x": np.zeros((1, 8, 10, 10), np.float16)}, device.profile)
    assert not {kernel.template for kernel in plan.kernels} & {"gemm_element"}


@pytest.mark.parametrize("columns", [5, 64, 197])
def test_rows_that_no_words_divide_are_reduced_once(each_device, columns: int) -> None:
    """Only short ones are reduced anew for each word of a result; of others float32 lies in memory, and is cast."""
    x = np.random.default_rng(columns).standard_normal((6, columns)).astype(np.float16)
    model = half_model([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {"x": x.shape})
    plan = compile_for(model, {"x": x}, each_device.profile)
    templates = [kernel.template for kernel in plan.kernels]
    assert ("reduce_words" in templates, len(templates)) == (columns == 5, 1 + (columns == 197))
    exponentials = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    (found,) = run_plan(each_device, plan, model, {"x": x})
    assert_rounded_once(found.astype(np.float64), exponentials / exponentials.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize(("columns", "kind", "kernels"), [(64, "discrete", 1), (65, "discrete", 2), (65, "cpu", 1)])
def test_threads_that_share_rows_reduce_long_ones(device, columns: int, kind: str, kernels: int) -> None:
    """Where a workgroup shares a row, no thread reduces two long ones for the halves of a word."""
    x = np.random.default_rng(columns).standard_normal((6, columns)).astype(np.float16)
    model = half_model([helper.make_node("ReduceMean", ["x"], ["y"], axes=[1])], {"x": x.shape}, opset=12)
    plan = compile_for(model, {"x": x}, replace(device.profile, kind=kind))
    assert len(plan.calls) == kernels
    (found,) = run_plan(device, plan, model, {"x": x})
    assert_rounded_once(found, x.astype(np.float64).mean(1, keepdims=True))


def test_constants_computed_from_halves_are_floats(each_device) -> None:
    """Values of an attention that are known are put into its cache when the model is compiled."""
    attention = helper.make_node(
        "GroupQueryAttention", ["q", "k", "v", "", "", "last", "total"], ["y", "keys", "values"],
        domain="com.microsoft", kv_num_heads=1, num_heads=1,
    )  # fmt: skip
    v = np.array([0.125, 0.25, 1.75, -0.875, 1.25, 0.75, -2, -0.375], np.float16).reshape(1, 1, 8)
    constants = {"v": v, "last": np.zeros(1, np.int32), "total": np.array(1, np.int32)}
    model = half_model([attention], {"q": (1, 1, 8), "k": (1, 1, 8)}, constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.output.append(ValueInfoProto(name="values"))
    x = np.random.default_rng(8).standard_normal((2, 1, 1, 8)).astype(np.float16)
    with InferenceSession(model, device=each_device, cache=False) as session:
        y, values = session.run(None, {"q": x[0], "k": x[1]})
    np.testing.assert_array_equal(y, v, strict=True)
    np.testing.assert_array_equal(values, v[None], strict=True)


def test_what_a_float32_model_computes_of_constant_halves_is_no_half(each_device) -> None:
    """A weight of so many elements is computed on the device; only one that is all halves is stored as such."""
    rng = np.random.default_rng(12)
    x, w = rng.uniform(0, 1, (1, 300)).astype(np.float32), rng.standard_normal((300, 64)).astype(np.float16)
    single = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=single),
        helper.make_node("Add", ["wide", "c"], ["sum"]),
        helper.make_node("Abs", ["sum"], ["weight"]),
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "weights of halves",
        [helper.make_tensor_value_info("x", single, x.shape)],
        [helper.make_tensor_value_info("y", single, (1, 64))],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.float32(1.2345), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    expected = x.astype(np.float64) @ np.abs(w.astype(np.float64) + np.float64(np.float32(1.2345)))
    with InferenceSession(model, device=each_device, cache=False) as session:
        (found,) = session.run(None, {"x": x})
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_the_bits_of_a_cast_to_halves(each_device) -> None:
    """What reads the bits of a half reads a half, whatever else reads it as a number."""
    half, bits = (
        helper.np_dtype_to_tensor_dtype(np.dtype(np.float16)),
        helper.np_dtype_to_tensor_dtype(np.dtype(np.int16)),
    )
    nodes = [
        helper.make_node("Cast", ["w"], ["h"], to=half),
        helper.make_node("BitCast", ["h"], ["z"], to=bits),
        helper.make_node("Add", ["h", "x"], ["y"]),
    ]
    model = half_model(nodes, {"x": (3, 5)}, opset=26)
    model.graph.input.append(
        helper.make_tensor_value_info("w", helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), [3, 5])
    )
    model.graph.output.append(helper.make_tensor_value_info("z", bits, None))
    w, x = np.random.default_rng(8).standard_normal((2, 3, 5)).astype(np.float32)
    with InferenceSession(model, device=each_device, cache=False) as session:
        y, z = session.run(None, {"w": w, "x": x.astype(np.float16)})
    np.testing.assert_array_equal(z, w.astype(np.float16).view(np.int16))
    assert_rounded_once(
        y.astype(np.float64), w.astype(np.float16).astype(np.float64) + x.astype(np.float16), roundings=1
    )


@pytest.mark.parametrize("size", [(512, 512), (300, 301), (7, 5)])
@pytest.mark.parametrize("operator", ["GlobalAveragePool", "InstanceNormalization"])
def test_declared_sizes_of_images(each_device, operator: str, size: tuple[int, int]) -> None:
    """One plan for every size up to 512 by 512: a count of 262,144 is no half."""
    weights = {} if operator == "GlobalAveragePool" else {"s": np.ones(3, np.float16), "b": np.zeros(3, np.float16)}
    model = half_model([helper.make_node(operator, ["x", *weights], ["y"])], {"x": (1, 3, "h", "w")}, weights)
    x = (np.random.default_rng(8).standard_normal((1, 3, *size)) * 20 + 20).astype(np.float16)
    wide = x.astype(np.float64)
    mean = wide.mean((2, 3), keepdims=True)
    deviation = np.sqrt(wide.var((2, 3), keepdims=True) + 1e-5)
    expected = mean if operator == "GlobalAveragePool" else (wide - mean) / deviation
    found = run(each_device, model, {"x": x}, dynamic={"h": (1, 512), "w": (1, 512)})
    assert_rounded_once(found, expected)
