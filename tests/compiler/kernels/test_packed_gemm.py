"""Products with quantised weights: every spelling that is packed, few rows and many, on both kinds of targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.target import WEB_TARGET, target_of
from shaderloom.compiler.tuning import gemm_tiles, packed_tiles
from shaderloom.compiler.tuning.gemm_tiles import Problem, RegisterTile, SubgroupTile
from shaderloom.compiler.tuning.packed_tiles import PackedTile
from shaderloom.runtime.plan.device_profile import BYTE_PRODUCTS, DeviceProfile

from ...support.effort import quick_first
from ...support.kernels import make_model
from ...support.running import compile_for, run_plan
from ..codegen.test_text_size import H200


@dataclass
class Case:
    """A model with the input ``x``, its weight and its result in float64."""

    model: onnx.ModelProto
    x: np.ndarray
    weight: np.ndarray
    expected: np.ndarray


def unpack(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    stream = np.unpackbits(packed.reshape(len(packed), -1), axis=1, bitorder="little")[:, : count * bits]
    return stream.reshape(len(packed), count, bits) @ (2.0 ** np.arange(bits))


def nbits(
    x_shape: tuple[int, ...],
    n: int,
    block: int = 32,
    bits: int = 4,
    *,
    zeros: str | None = None,
    dtype: str = "float32",
    bias: bool = False,
) -> Case:
    """MatMulNBits; ``zeros`` are packed like the weight ("uint8"), or of the type of the scales ("float")."""
    k = x_shape[-1]
    rng, blocks = np.random.default_rng((n, k, bits)), -(-k // block)
    x = rng.standard_normal(x_shape).astype(dtype)
    codes = rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    scales = rng.uniform(0.05, 0.2, (n, blocks)).astype(dtype)
    constants, inputs = {"codes": codes, "scales": scales}, ["x", "codes", "scales"]
    zero = np.full((n, blocks), 2.0 ** (bits - 1))
    if zeros == "uint8":
        constants["zeros"] = rng.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
        zero = unpack(constants["zeros"], bits, blocks)
    elif zeros == "float":
        constants["zeros"] = rng.uniform(5, 9, (n, blocks)).astype(dtype)
        zero = constants["zeros"].astype(np.float64)
    if zeros:
        inputs.append("zeros")
    weight = (unpack(codes.reshape(n, -1), bits, k) - zero.repeat(block, 1)[:, :k]) * scales.astype(np.float64).repeat(
        block, 1
    )[:, :k]
    expected = x.astype(np.float64) @ weight.T
    if bias:
        constants["bias"] = rng.standard_normal(n).astype(dtype)
        inputs += [""] * (5 - len(inputs)) + ["bias"]
        expected = expected + constants["bias"]
    sizes = {"K": k, "N": n, "block_size": block, "bits": bits}
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", **sizes)
    return Case(model_of([node], x, constants), x, weight.T, expected)


def model_of(nodes: list[onnx.NodeProto], x: np.ndarray, constants: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    model = make_model(nodes, {"x": x}, ["y"], constants=constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def check(device, case: Case, kind: str, *, packed: bool = True) -> None:
    """Results, and whether the kernel is that of few rows."""
    plan = compile_for(case.model, {"x": case.x}, replace(device.profile, kind=kind))
    assert ("gemm_packed" in {kernel.template for kernel in plan.kernels}) == packed
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    tolerance = 1e-5 if case.x.dtype == np.float32 else 1e-3
    assert found.shape == case.expected.shape
    assert np.abs(found - case.expected).max() <= tolerance * np.abs(case.expected).max()


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(
    ("k", "n", "block", "bits", "zeros"),
    [
        (32, 5, 16, 4, None),
        (40, 8, 16, 4, "uint8"),
        (896, 7, 32, 4, None),
        (4864, 12, 32, 4, "uint8"),
        (1056, 33, 32, 4, "float"),
        (768, 16, 256, 4, "uint8"),
        (96, 5, 32, 2, "uint8"),
        (160, 9, 32, 2, None),
        (96, 9, 32, 8, "uint8"),
        (640, 16, 128, 8, None),
        (96, 9, 32, 3, "uint8"),
        (160, 12, 16, 5, None),
        (128, 7, 32, 6, "uint8"),
        (96, 8, 32, 7, "float"),
    ],
)
@pytest.mark.parametrize("rows", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_blocks(device, kind, k, n, block, bits, zeros, rows):
    check(device, nbits((rows, k), n, block, bits, zeros=zeros), kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("rows", [2, 8, 9, 40])
def test_rows(device, kind, rows):
    """From nine rows on a short product reads the elements of the weight."""
    check(device, nbits((rows, 64), 20), kind, packed=rows <= 8)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("zeros", [None, "uint8", "float"])
def test_halves(device, kind, zeros):
    check(device, nbits((2, 1, 128), 24, zeros=zeros, dtype="float16", bias=True), kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(("k", "n"), [(14336, 130), (64, 151936), (2048, 2048)])
def test_sizes_of_decoders(device, kind, k, n):
    check(device, nbits((1, k), n), kind)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_declared_rows(device, kind):
    """One plan for one to six rows."""
    case = nbits((6, 64), 12)
    case.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    profile = replace(device.profile, kind=kind)
    plan = compile_for(case.model, {"x": case.x}, profile, dynamic={"rows": (1, 6)})
    assert [kernel.template for kernel in plan.kernels if kernel.template != "map"] == ["gemm_packed"]
    feeds = [{"x": case.x[:rows]} for rows in (6, 1, 3)]
    for (found,), each in zip(run_plan(device, plan, case.model, feeds), feeds, strict=True):
        np.testing.assert_allclose(found, case.expected[: len(each["x"])], rtol=0, atol=1e-4)


def rounded(device) -> DeviceProfile:
    """A GPU on which activations of halves become integers of 16 bits."""
    return replace(device.profile, kind="discrete", adapter="NVIDIA")


@pytest.mark.parametrize(("rows", "zeros", "columns"), [(1, None, 24), (2, "uint8", 20), (1, "float", 12)])
def test_activations_of_16_bits(device, rows, zeros, columns):
    """Each activation is off by at most 2^-16 of the largest of 8 neighbours; those are halves of very different size,
    and zeros."""
    case = nbits((rows, 320), columns, zeros=zeros, dtype="float16")
    case.x *= np.exp2(np.random.default_rng(1).integers(-12, 12, (rows, 40)).repeat(8, 1)).astype(np.float16)
    case.x[:, 16:24] = 0
    case.x[:, 32:39] *= np.float16(0.01)
    plan = compile_for(case.model, {"x": case.x}, rounded(device))
    (kernel,) = (each for each in plan.kernels if each.template == "gemm_packed")
    assert "dot4I8Packed" in kernel.wgsl and BYTE_PRODUCTS in kernel.features
    (actual,) = run_plan(device, plan, case.model, {"x": case.x})
    x, weight = case.x.astype(np.float64), case.weight
    largest = np.abs(x).reshape(rows, -1, 8).max(-1).repeat(8, 1)
    expected, magnitude = x @ weight, np.abs(x) @ np.abs(weight)
    bound = 2.0**-16 * (largest @ np.abs(weight)) + 2.0**-21 * magnitude + 2.0**-11 * np.abs(expected)
    assert (np.abs(actual - expected) <= bound).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_rounded_activations_that_are_no_numbers(device, number):
    case = nbits((2, 64), 8, dtype="float16")
    case.x[1, 37] = number
    plan = compile_for(case.model, {"x": case.x}, rounded(device))
    (actual,) = run_plan(device, plan, case.model, {"x": case.x})
    assert np.isfinite(actual[0]).all() and not np.isfinite(actual[1]).any()


def test_wide_activations_are_not_rounded(device):
    for case in (nbits((1, 64), 8), nbits((3, 64), 8, dtype="float16"), nbits((1, 64), 8, bits=2, dtype="float16")):
        plan = compile_for(case.model, {"x": case.x}, rounded(device))
        assert not any("dot4I8Packed" in kernel.wgsl for kernel in plan.kernels)
    case = nbits((1, 64), 8, dtype="float16")
    plan = compile_for(case.model, {"x": case.x}, replace(rounded(device), features=frozenset()))
    assert not any("dot4I8Packed" in kernel.wgsl for kernel in plan.kernels)


# -- spellings -------------------------------------------------------------------------------------------------------


def dequantised(
    dtype: str, x_shape: tuple[int, int] = (2, 1536), n: int = 12, *, block: int, transposed: bool, zero: bool
) -> Case:
    """DequantizeLinear and MatMul: blocks along the terms, a scale a column (0), or one scale (-1).

    The weight is too large for the host to fold.
    """
    k = x_shape[-1]
    rng = np.random.default_rng(block + 5)
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}[dtype]
    codes = rng.integers(low, high, (n, k) if transposed else (k, n))
    terms = 1 if transposed else 0
    shape = list(codes.shape) if block > 0 else [n] if block == 0 else []
    if block > 0:
        shape[terms] //= block
    scales = rng.uniform(0.05, 0.2, shape).astype(np.float32)
    zeros = rng.integers(low, high, shape) if zero else np.zeros(shape, np.int64)
    whole = scales.astype(np.float64), zeros.astype(np.float64)
    if block > 0:
        whole = tuple(each.repeat(block, terms) for each in whole)
    elif block == 0 and transposed:
        whole = tuple(each[:, None] for each in whole)
    weight = (codes - whole[1]) * whole[0]
    x = rng.standard_normal(x_shape).astype(np.float32)
    attributes = {"block_size": block, "axis": terms} if block > 0 else {"axis": 1 - terms}
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", *(["z"] if zero else [])], ["w"], **attributes)]
    if transposed:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if transposed else "w"], ["y"]))
    model = model_of(nodes, x, {"s": scales})
    kind = getattr(onnx.TensorProto, dtype.upper())
    for name, array in (("q", codes), ("z", zeros))[: 1 + zero]:
        model.graph.initializer.append(helper.make_tensor(name, kind, array.shape, array.ravel()))
    weight = weight.T if transposed else weight
    return Case(model, x, weight, x.astype(np.float64) @ weight)


@pytest.mark.slow
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("block", [16, 0, -1])
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
def test_dequantize_linear(device, dtype, block, transposed, zero):
    case = dequantised(dtype, block=block, transposed=transposed, zero=zero)
    check(device, case, "cpu")
    check(device, case, "discrete")


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(("columns", "transposed", "zero"), [(13, False, True), (32, True, False)])
def test_bytes_with_a_scale_for_each_column(each_device, kind, columns, transposed, zero):
    """One order of the bytes serves few rows, which have a kernel of their own, and many."""
    weights = set()
    for rows in (1, 3, 21):
        case = dequantised("int8", (rows, 1544), columns, block=0, transposed=transposed, zero=zero)
        profile = replace(each_device.profile, kind=kind)
        plan = compile_for(case.model, {"x": case.x}, profile)
        assert ("gemm_packed" in {kernel.template for kernel in plan.kernels}) == (rows <= 8 or kind == "discrete")
        assert any("load_scale" in kernel.wgsl for kernel in plan.kernels) == (rows <= 8)  # else behind the product
        (found,) = run_plan(each_device, plan, case.model, {"x": case.x})
        assert np.abs(found - case.expected).max() <= 1e-5 * np.abs(case.expected).max()
        codes = [weight for weight in plan.weights if weight.bytes >= 1544 * columns and weight.calls]
        assert sum(weight.bytes for weight in codes) <= 1.1 * 1544 * (columns + 3)
        weights |= {weight.key for weight in codes}
    assert len(weights) == 1


@pytest.mark.parametrize(("rows", "kind"), [(3, "cpu"), (21, "cpu"), (3, "discrete"), (21, "discrete")])
def test_a_zero_point_between_two_codes(device, rows, kind):
    rng = np.random.default_rng(rows)
    codes, zero = rng.integers(0, 16, (1544, 12)), np.array(7.26, np.float32)
    scale = rng.uniform(0.05, 0.2, (1, 12)).astype(np.float32)
    x = rng.standard_normal((rows, 1544)).astype(np.float32)
    nodes = [helper.make_node("Cast", ["q"], ["f"], to=onnx.TensorProto.FLOAT)]
    nodes += [helper.make_node("Sub", ["f", "z"], ["d"]), helper.make_node("Mul", ["d", "s"], ["w"])]
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    weight = (codes - zero.astype(np.float64)) * scale.astype(np.float64)
    model = model_of(nodes, x, {"z": zero, "s": scale})
    model.graph.initializer.append(helper.make_tensor("q", onnx.TensorProto.UINT4, codes.shape, codes.ravel()))
    with mock.patch.object(packed_tiles, "takes_groups", return_value=False):
        check(device, Case(model, x, weight, x.astype(np.float64) @ weight), kind, packed=rows <= 8)


def test_blocks_that_are_no_whole_units_are_not_packed(device):
    """Blocks of four numbers would need two scales for a word."""
    check(device, dequantised("int4", block=4, transposed=True, zero=True), "discrete", packed=False)


# -- fusion ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_neighbours(device, kind):
    """Bias and activation stay in the kernel; what is costly before it does not join it."""
    case = nbits((1, 96), 20)
    (product,) = case.model.graph.node
    product.input[0], product.output[0] = "e", "p"
    bias = np.linspace(-1, 1, 20, dtype=np.float32)
    case.model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "b"))
    for at, (operator, before, after) in enumerate((("Tanh", "x", "s"), ("Sin", "s", "t"), ("Exp", "t", "e"))):
        case.model.graph.node.insert(at, helper.make_node(operator, [before], [after]))
    case.model.graph.node.append(helper.make_node("Add", ["p", "b"], ["q"]))
    case.model.graph.node.append(helper.make_node("Relu", ["q"], ["y"]))
    plan = compile_for(case.model, {"x": case.x}, replace(device.profile, kind=kind))
    assert len(plan.calls) == 2
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    expected = np.maximum(np.exp(np.sin(np.tanh(case.x.astype(np.float64)))) @ case.weight + bias, 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def gated(rows: int, zeros: str | None, k: int = 96, n: int = 20) -> Case:
    """RMSNormalization, two products, and ``a * sigmoid(a) * b`` of their results."""
    case = nbits((rows, k), n, zeros=zeros)
    (gate,) = case.model.graph.node
    rng = np.random.default_rng(k)
    weight = rng.uniform(0.5, 1.5, k).astype(np.float32)
    constants = {init.name: onnx.numpy_helper.to_array(init) for init in case.model.graph.initializer}
    other = {f"{name}_": np.flip(array, 0).copy() for name, array in constants.items()}
    gate.input[0], gate.output[0] = "normal", "a"
    up = onnx.NodeProto()
    up.CopyFrom(gate)
    del up.input[:]
    up.input.extend(["normal", *(f"{name}_" if name else "" for name in gate.input[1:])])
    up.output[0] = "b"
    nodes = [
        helper.make_node("RMSNormalization", ["x", "weight"], ["normal"], epsilon=1e-3),
        gate,
        up,
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["c"]),
        helper.make_node("Mul", ["c", "b"], ["y"]),
    ]
    model = model_of(nodes, case.x, {"weight": weight, **constants, **other})
    model.opset_import[0].version = 23
    x = case.x.astype(np.float64)
    normal = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * weight
    a, b = normal @ case.weight, normal @ case.weight[:, ::-1]
    return Case(model, case.x, case.weight, a / (1 + np.exp(-a)) * b)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(("rows", "zeros"), [(1, None), (3, "uint8")])
def test_gates_behind_a_normalisation(device, kind, rows, zeros):
    """One kernel multiplies by both weights, and multiplies the results; on a GPU it sums the squares, too."""
    case = gated(rows, zeros)
    limits = {**device.profile.limits, "max-storage-buffers-per-shader-stage": 10}
    plan = compile_for(case.model, {"x": case.x}, replace(device.profile, kind=kind, limits=limits))
    assert [call.label.count("PackedMatMul") for call in plan.calls] == ([0, 1] if kind == "cpu" else [1])
    (actual,) = run_plan(device, plan, case.model, {"x": case.x})
    np.testing.assert_allclose(actual, case.expected, rtol=0, atol=1e-5 * np.abs(case.expected).max())


@pytest.mark.parametrize("needed", ["normal", "a", "squares"])
def test_what_is_needed_elsewhere_too_stays_apart(device, needed):
    """The normalised activations are an output, or the gate is; or another product divides by the same sum."""
    case = gated(2, None)
    graph, x = case.model.graph, case.x.astype(np.float64)
    normal = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3)
    weight = onnx.numpy_helper.to_array(next(each for each in graph.initializer if each.name == "weight"))
    if needed == "squares":
        graph.node.append(helper.make_node("RMSNormalization", ["x", "ones"], [needed], epsilon=1e-3))
        graph.initializer.append(onnx.numpy_helper.from_array(np.ones(x.shape[-1], np.float32), "ones"))
    graph.output.append(onnx.ValueInfoProto(name=needed))
    also = {"normal": normal * weight, "a": normal * weight @ case.weight, "squares": normal}[needed]
    for kind in ("cpu", "discrete"):
        plan = compile_for(case.model, {"x": case.x}, replace(device.profile, kind=kind))
        results = run_plan(device, plan, case.model, {"x": case.x})
        for actual, expected in zip(results, (case.expected, also), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "tile",
    [PackedTile(1, 2, 1, 32, unroll=2), PackedTile(2, 2, 2, 32), PackedTile(3, 4, 8, 1, depth=4)],
)
def test_tiles_of_two_products(device, tile):
    case = gated(3, "uint8", 320, 36)
    with mock.patch.object(packed_tiles, "ranked", return_value=[tile]):
        plan = compile_for(case.model, {"x": case.x}, replace(device.profile, kind="discrete"))
        (actual,) = run_plan(device, plan, case.model, {"x": case.x})
    np.testing.assert_allclose(actual, case.expected, rtol=0, atol=1e-5 * np.abs(case.expected).max())


@pytest.mark.parametrize("zeros", [None, "uint8"])
@pytest.mark.parametrize("rows", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_queries_keys_and_values_are_one_product(device, rows, zeros):
    """Three products of one normalised tensor, with biases, seen as heads."""
    cases = [nbits((rows, 64), columns, zeros=zeros, bias=True) for columns in (32, 16, 16)]
    x = cases[0].x
    normal = x.astype(np.float64) / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-3)
    nodes = [helper.make_node("RMSNormalization", ["x", "ones"], ["normal"], epsilon=1e-3)]
    constants, expected = {"ones": np.ones(64, np.float32), "heads": np.array([rows, -1, 8])}, []
    for number, case in enumerate(cases):
        (product,) = case.model.graph.node
        arrays = {each.name: onnx.numpy_helper.to_array(each) for each in case.model.graph.initializer}
        constants |= {f"{name}{number}": array for name, array in arrays.items()}
        product.input[:] = ["normal", *(f"{name}{number}" if name else "" for name in product.input[1:])]
        product.output[0] = f"p{number}"
        nodes += [product, helper.make_node("Reshape", [f"p{number}", "heads"], [f"h{number}"])]
        nodes.append(helper.make_node("Transpose", [f"h{number}"], [f"t{number}"], perm=[1, 0, 2]))
        nodes.append(helper.make_node("Tanh", [f"t{number}"], [f"y{number}"]))
        heads = (normal @ case.weight + arrays["bias"]).reshape(rows, -1, 8).transpose(1, 0, 2)
        expected.append(np.tanh(heads))
    model = model_of(nodes, x, constants)
    model.opset_import[0].version = 23
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=f"y{number}") for number in range(3))
    plan = compile_for(model, {"x": x}, replace(device.profile, kind="discrete"))
    assert sum("PackedMatMul" in call.label for call in plan.calls) == 1
    for actual, right in zip(run_plan(device, plan, model, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(actual, right, rtol=0, atol=1e-4)


# -- tiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [None, "uint8"])
@pytest.mark.parametrize(
    "tile",
    [
        PackedTile(1, 1, 1, 32),
        PackedTile(1, 2, 1, 32, unroll=2),
        PackedTile(1, 1, 1, 128, unroll=4),
        PackedTile(2, 1, 1, 256),
        PackedTile(3, 2, 4, 16, unroll=2),
        PackedTile(3, 4, 8, 1, depth=4),
        PackedTile(4, 1, 2, 2, unroll=3),
    ],
)
def test_tiles(device, tile, zeros):
    """Steps, columns and rows that do not divide among the threads."""
    with mock.patch.object(packed_tiles, "ranked", return_value=[tile]):
        check(device, nbits((3, 320), 21, zeros=zeros), "discrete")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("bits", "zeros"), [(4, None), (8, "uint8"), (2, "float")])
@pytest.mark.parametrize("columns", quick_first([3, 4]))
def test_words_of_columns(each_device, columns, bits, zeros, turned):
    """Threads that share nothing but broadcasts decode the words of their columns, for one term or four at a time."""
    case = nbits((21, 64), 20, bits=bits, zeros=zeros)
    if turned:
        (product,) = case.model.graph.node
        product.input[0] = "rows"
        constants = {init.name: onnx.numpy_helper.to_array(init) for init in case.model.graph.initializer}
        x = np.ascontiguousarray(case.x.T)
        nodes = [helper.make_node("Transpose", ["x"], ["rows"], perm=[1, 0]), product]
        case = replace(case, model=model_of(nodes, x, constants), x=x)
    size = each_device.profile.subgroup_size
    for tile in (RegisterTile(2, columns, 2, 2), *([SubgroupTile(2, columns, size)] if size else [])):
        with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
            check(each_device, case, "cpu", packed=False)


@pytest.mark.parametrize(
    ("bits", "size", "tile"),
    [
        (4, 4096, PackedTile(1, 1, 1, 128, unroll=4)),
        (4, 8192, PackedTile(1, 1, 1, 128, unroll=4)),
        (4, 32768, PackedTile(1, 2, 1, 32, unroll=2)),
        (8, 2048, PackedTile(1, 1, 1, 128, unroll=2)),
        (8, 4096, PackedTile(1, 1, 1, 128, unroll=4)),
        (8, 8192, PackedTile(1, 1, 1, 128)),
        (8, 32768, PackedTile(1, 1, 1, 128)),
    ],
)
def test_units_in_flight(bits, size, tile):
    """A GPU has as many units of a small matrix in flight as its threads have registers for."""
    problem, loads = Problem(1, size, size), {4: 2, 8: 3}[bits]
    assert packed_tiles.ranked(problem, size // 8, 4, target_of(H200), unit_loads=loads)[0] == tile


def test_offered_tiles_keep_to_the_limits():
    target = WEB_TARGET
    for m, n, k in [(1, 151936, 896), (1, 1 << 20, 64), (8, 4096, 4096), (4, 4, 16), (2, 28672, 4096)]:
        tiles = packed_tiles.ranked(Problem(m, n, k), k // 8, 4, target)
        assert tiles == list(dict.fromkeys(tiles))
        for tile in tiles:
            assert tile.workgroup_bytes <= target.limit("max-compute-workgroup-storage-size")
            assert -(-n // (4 * tile.columns * tile.across)) <= target.limit("max-compute-workgroups-per-dimension")


@pytest.mark.parametrize(("n", "columns"), [(576, 2), (960, 4), (49152, 4), (32, 1)])
def test_columns_for_two_cores(n, columns):
    """A thread of a software driver has as many vectors as leave both cores like work: 576 columns are 9 workgroups."""
    target = target_of(DeviceProfile(kind="cpu", driver="lavapipe"))
    assert target.group_threads == 8
    assert packed_tiles.ranked(Problem(1, n, 576), 72, 4, target)[0] == PackedTile(1, columns, 8, 1, depth=4)


@pytest.mark.parametrize(
    ("rows", "columns", "across", "parts"), [(9, 1, 1, 32), (1, 9, 1, 32), (1, 1, 1, 48), (1, 1, 2, 256)]
)
def test_tiles_that_cannot_be(rows, columns, across, parts):
    with pytest.raises(ValueError, match=r"rows|threads"):
        PackedTile(rows, columns, across, parts)
