"""Quantised and half-precision weights stay as narrow in device memory as they are in the file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import shaderloom

from ...support.comparison import reference, relative_error
from ...support.effort import quick_first, slow
from ...support.models import trained_model
from ...support.running import compile_for

Arrays = dict[str, np.ndarray]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def integers(*shape: int, dtype: str = "int8", seed: int = 1) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng((seed, *shape)).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def scales(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).uniform(0.005, 0.02, shape).astype(np.float32)


def model(nodes: list[onnx.NodeProto], x: np.ndarray, constants: Arrays, dtype: int = TensorProto.FLOAT) -> bytes:
    graph = helper.make_graph(
        nodes,
        "narrow",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def check(
    content: bytes,
    x: np.ndarray,
    device,
    weight_bytes: int,
    *,
    tolerance: float = 1e-5,
    expected: np.ndarray | None = None,
) -> None:
    """Results, and that weights in device memory are little more than ``weight_bytes``."""
    with shaderloom.InferenceSession(content, device=device, cache=False, options={"verify": True}) as session:
        (result,) = session.run(None, {"x": x})
        used = session.report()["device_bytes"]["weights"]
    if expected is None:
        (expected,) = reference(content, {"x": x})
    assert relative_error(result, expected) <= tolerance
    assert used <= 1.05 * weight_bytes + 256, f"{used} bytes of weights, {weight_bytes} expected"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize(("k", "n"), [(130, 136), (129, 131), *slow([(260, 65)])])
@pytest.mark.parametrize("per", ["tensor", "column"])
def test_dequantised_right_operand(dtype: str, k: int, n: int, per: str, each_device) -> None:
    weight = integers(k, n, dtype=dtype)
    shape = (n,) if per == "column" else ()
    zero = integers(*shape, dtype=dtype, seed=2)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    x = random(3, k)
    content = model(nodes, x, {"q": weight, "s": scales(*shape), "z": zero})
    check(content, x, each_device, k * (n + 3) * weight.itemsize + 8 * n)


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("n", [128, 131])
def test_transposed_weight(rows: int, n: int, device) -> None:
    """Gemm with transB: the integers are moved, not the floats."""
    k = 140
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0),
        helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1),
    ]
    x = random(rows, k)
    content = model(nodes, x, {"q": integers(n, k), "s": scales(n), "b": random(n)})
    check(content, x, device, k * (n + 3) + 8 * n)


def test_blocks_along_the_rows(device) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    x = random(5, 160)
    content = model(nodes, x, {"q": integers(160, 120), "s": scales(5, 120)})
    check(content, x, device, 160 * 120 + 4 * 5 * 120)


def test_cast_and_scale_shared_by_embedding_and_product(each_device) -> None:
    """A tied embedding: rows are gathered, and the transpose is multiplied, of one copy of the codes."""
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["w"]),
        helper.make_node("Gather", ["w", "x"], ["e"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["e", "t"], ["y"]),
    ]
    x = np.array([[0, 299, 7, -1]], np.int64)
    content = model(nodes, x, {"q": integers(300, 64), "s": scales(300, 1)})
    check(content, x, each_device, 300 * 64 + 4 * 300)


def test_half_precision_weight_of_a_float_product(device) -> None:
    nodes = [
        helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    x = random(3, 130)
    check(model(nodes, x, {"h": random(130, 136).astype(np.float16)}), x, device, 2 * 130 * 136)


@pytest.mark.parametrize("shape", [(24, 24, 7, 7), (21, 35, 5, 5)])
def test_convolution(shape: tuple[int, ...], each_device) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1], strides=[2, 1]),
    ]
    x = random(1, shape[1], 9, 11)
    zero = integers(shape[0], seed=3)
    content = model(nodes, x, {"q": integers(*shape), "s": scales(shape[0]), "z": zero, "b": random(shape[0])})
    check(content, x, each_device, int(np.prod((shape[0] + 3, *shape[1:]))) + 12 * shape[0])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integer_products(dtype: str, each_device) -> None:
    """onnxruntime's sums of uint8 times int8 saturate at 16 bits on some processors, so numpy says what is right."""
    weight = integers(131, 133, dtype=dtype)
    x = integers(3, 131, dtype="uint8")
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "a", "z"], ["y"])]
    zeros = {"a": np.array(131, np.uint8), "z": np.array(7, dtype)}
    content = model(nodes, x, {"w": weight, **zeros}, TensorProto.INT32)
    expected = (x.astype(np.int32) - 131) @ (weight.astype(np.int32) - 7)
    check(content, x, each_device, 131 * 136 + 32, tolerance=0.0, expected=expected)


def test_integer_convolution(device) -> None:
    x = integers(1, 24, 9, 11, dtype="uint8")
    nodes = [helper.make_node("ConvInteger", ["x", "w", "a"], ["y"])]
    constants = {"w": integers(24, 24, 6, 6), "a": np.array(131, np.uint8)}
    check(model(nodes, x, constants, TensorProto.INT32), x, device, 24 * 24 * 36 + 32, tolerance=0.0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "n"), quick_first([(264, 131), (256, 128)]))
@pytest.mark.parametrize("zeros", [False, True])
def test_blocks_of_few_bits(bits: int, k: int, n: int, zeros: bool, each_device) -> None:
    block = 32
    blocks = -(-k // block)
    weight = integers(n, blocks, block * bits // 8, dtype="uint8")
    constants = {"q": weight, "s": scales(n, blocks)}
    if zeros:
        constants["z"] = integers(n, -(-blocks * bits // 8), dtype="uint8", seed=5)
    nodes = [
        helper.make_node(
            *("MatMulNBits", ["x", *constants], ["y"]),
            domain="com.microsoft",
            K=k,
            N=n,
            block_size=block,
            bits=bits,
        )
    ]
    x = random(3, k)
    expected = 1.1 * (blocks * block * (n + 3) * bits // 8) + 5 * (n + 3) * blocks
    check(model(nodes, x, constants), x, each_device, int(expected), tolerance=2e-5)


@pytest.mark.parametrize(("name", "limit"), quick_first([("rawi", 2.5e6), ("minilm_int8", 22.9e6)]))
def test_trained_models_take_what_their_files_take(name: str, limit: float, device) -> None:
    with shaderloom.InferenceSession(trained_model(name), device=device, cache=False) as session:
        names = [each.name for each in session.get_inputs()]
        shapes = dict.fromkeys(names, (2, 15))
        feeds = {each: np.ones(shape, np.int64) for each, shape in shapes.items()}
        session.run(None, feeds)
        assert session.report(shapes)["device_bytes"]["weights"] <= limit
        assert session.device_bytes <= limit + 4e6


def test_matrices_chosen_at_run_time_are_dequantised_in_the_product(device) -> None:
    """Gather of a narrow value joins the product that reads it: the work of the narrow value does not count."""
    weight = integers(6, 160, 136)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        helper.make_node("ArgMax", ["x"], ["best"], axis=-1, keepdims=0),
        helper.make_node("Mod", ["best", "six"], ["chosen"]),
        helper.make_node("Gather", ["w", "chosen"], ["own"], axis=0),
        helper.make_node("Unsqueeze", ["x", "one"], ["rows"]),
        helper.make_node("MatMul", ["rows", "own"], ["y"]),
    ]
    x = random(5, 160)
    constants = {"q": weight, "s": scales(6), "z": integers(6, seed=2), "six": np.array(6), "one": np.array([1])}
    content = model(nodes, x, constants)
    check(content, x, device, weight.nbytes + 6 * 8)
    proto = onnx.load_from_string(content)
    assert sum(compile_for(proto, {"x": x}, device.profile).arenas) < weight.nbytes
