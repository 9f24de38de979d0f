"""Products of one activation become one product: what joins, what does not, and the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.remarks import Remark
from shaderloom.runtime.plan.device_profile import WEB

from ...support.comparison import reference, relative_error
from ...support.kernels import make_model
from ...support.passes import lower_model
from ...support.running import compile_for, run_model, run_plan

node = helper.make_node


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def heads(rows: int, *, columns: tuple[int, ...] = (8, 4, 4), bias: bool = True, relu: bool = False, batch: int = 1):
    """Products of one tensor, each with a bias, viewed as heads."""
    feeds = {"x": weights(batch, rows, 12)}
    constants, nodes, outputs = {}, [], []
    for number, size in enumerate(columns):
        constants[f"w{number}"] = weights(12, size) + number
        constants[f"b{number}"] = weights(size)
        constants[f"s{number}"] = np.array([0, 0, 2, size // 2])
        nodes.append(node("MatMul", ["x", f"w{number}"], [f"p{number}"]))
        result = f"p{number}"
        if bias:
            nodes.append(node("Add", [f"b{number}", result], [f"a{number}"]))
            result = f"a{number}"
        if relu:
            nodes.append(node("Relu", [result], [f"r{number}"]))
            result = f"r{number}"
        nodes.append(node("Reshape", [result, f"s{number}"], [f"h{number}"]))
        nodes.append(node("Transpose", [f"h{number}"], [f"t{number}"], perm=[0, 2, 1, 3]))
        nodes.append(node("Exp", [f"t{number}"], [f"y{number}"]))
        outputs.append(f"y{number}")
    used = {name for each in nodes for name in each.input}
    return make_model(nodes, feeds, outputs, constants={k: v for k, v in constants.items() if k in used}), feeds


def quantised_heads(vector: bool):
    """Integer products of one dynamically quantised tensor, with scales of weights or of their columns."""
    rng = np.random.default_rng(3)
    feeds = {"x": weights(1, 20, 60)}
    constants, outputs = {"z": np.array(0, np.int8)}, []
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "zero"])]
    for number, columns in enumerate((16, 8, 8)):
        constants[f"w{number}"] = rng.integers(-64, 65, (60, columns)).astype(np.int8)  # onnxruntime may saturate more
        constants[f"s{number}"] = rng.uniform(0.01, 0.02, (columns,) if vector else ()).astype(np.float32)
        constants[f"b{number}"] = weights(columns)
        constants[f"h{number}"] = np.array([0, 0, 4, columns // 4])
        nodes += [
            node("MatMulInteger", ["q", f"w{number}", "zero", "z"], [f"p{number}"]),
            node("Cast", [f"p{number}"], [f"f{number}"], to=1),
            node("Mul", ["s", f"s{number}"], [f"m{number}"]),
            node("Mul", [f"f{number}", f"m{number}"], [f"n{number}"]),
            node("Add", [f"n{number}", f"b{number}"], [f"a{number}"]),
            node("Reshape", [f"a{number}", f"h{number}"], [f"r{number}"]),
            node("Exp", [f"r{number}"], [f"y{number}"]),
        ]
        outputs.append(f"y{number}")
    return make_model(nodes, feeds, outputs, constants=constants), feeds


@pytest.mark.parametrize("vector", [False, True])
def test_integer_products_of_one_activation_join(device, vector):
    model, feeds = quantised_heads(vector)
    expected = reference(model, feeds)
    for kind in ("cpu", "discrete"):
        plan = compile_for(model, feeds, replace(device.profile, kind=kind))
        assert sum("MatMul" in call.label for call in plan.calls) == 1
        for found, wanted in zip(run_plan(device, plan, model, feeds), expected, strict=True):
            # a number between two steps becomes either, which moves a sum by a step of one term
            np.testing.assert_allclose(found, wanted, rtol=2e-2)


#: Step of the first of the results of :func:`requantised_heads`; each of the others has 0.003 more
SCALE = 0.015


def requantised_heads(*, alike: bool):
    """Products of one dequantised tensor; results and their sums with biases are quantised with scales of their own.

    Unless they are ``alike``, one result is quantised without a zero point.
    """
    rng = np.random.default_rng(4)
    feeds = {"x": rng.standard_normal((1, 20, 64), np.float32)}
    constants: dict[str, np.ndarray] = {"sx": np.array(0.02, np.float32), "zx": np.array(121, np.uint8)}
    nodes = [node("QuantizeLinear", ["x", "sx", "zx"], ["q"]), node("DequantizeLinear", ["q", "sx", "zx"], ["d"])]
    outputs = []
    for n, columns in enumerate((16, 8, 8)):
        constants |= {
            f"w{n}": rng.integers(-127, 128, (64, columns)).astype(np.int8),
            f"sw{n}": rng.uniform(0.001, 0.002, columns).astype(np.float32),
            f"sp{n}": np.array(0.01 + 0.002 * n, np.float32),
            f"zp{n}": np.array(110 + n, np.uint8),
            f"b{n}": weights(columns),
            f"sa{n}": np.array(SCALE + 0.003 * n, np.float32),
            f"za{n}": np.array(131 - n, np.uint8),
            f"h{n}": np.array([0, 0, 4, columns // 4]),
        }
        product, total = [f"sp{n}", f"zp{n}"], [f"sa{n}", f"za{n}"]
        if not alike and n == 2:
            product.pop()
        nodes += [
            node("DequantizeLinear", [f"w{n}", f"sw{n}"], [f"f{n}"], axis=1),
            node("MatMul", ["d", f"f{n}"], [f"p{n}"]),
            node("QuantizeLinear", [f"p{n}", *product], [f"qp{n}"]),
            node("DequantizeLinear", [f"qp{n}", *product], [f"dp{n}"]),
            node("Add", [f"dp{n}", f"b{n}"], [f"a{n}"]),
            node("QuantizeLinear", [f"a{n}", *total], [f"qa{n}"]),
            node("Reshape", [f"qa{n}", f"h{n}"], [f"r{n}"]),
            node("Transpose", [f"r{n}"], [f"t{n}"], perm=[0, 2, 1, 3]),
            node("DequantizeLinear", [f"t{n}", *total], [f"dt{n}"]),
            node("Exp", [f"dt{n}"], [f"y{n}"]),
        ]
        outputs.append(f"y{n}")
    return make_model(nodes, feeds, outputs, constants=constants), feeds


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_products_join_with_what_quantises_their_results(device, kind):
    """Each column has the parameters of its product; the last ones, behind views, move before these."""
    model, feeds = requantised_heads(alike=True)
    plan = compile_for(model, feeds, replace(device.profile, kind=kind))
    assert sum("MatMul" in call.label for call in plan.calls) == 1
    expected = reference(model, feeds)
    for n, (found, wanted) in enumerate(zip(run_plan(device, plan, model, feeds), expected, strict=True)):
        steps = np.abs(np.log(found) - np.log(wanted)) / (SCALE + 0.003 * n)
        assert steps.max() < 1.01 and (steps > 0.01).mean() < 0.01


def test_products_whose_results_are_quantised_in_different_ways_stay_apart():
    model, feeds = requantised_heads(alike=False)
    assert refusals(model, feeds) == ["arithmetic behind a product is faster in its own kernel"]


def gated(rows: int):
    nodes = [
        node("MatMul", ["x", "g"], ["p"]),
        node("MatMul", ["x", "u"], ["q"]),
        node("Sigmoid", ["p"], ["s"]),
        node("Mul", ["p", "s"], ["t"]),
        node("Mul", ["t", "q"], ["h"]),
        node("MatMul", ["h", "d"], ["y"]),
    ]
    feeds = {"x": weights(1, rows, 12)}
    return make_model(
        nodes, feeds, ["y"], constants={"g": weights(12, 20), "u": weights(12, 20) + 1, "d": weights(20, 12)}
    ), feeds


def products(model, feeds, **options) -> int:
    """Matrix products in the canonical graph."""
    graph = lower_model(model, {name: array.shape for name, array in feeds.items()}, **options).graph
    return sum(each.op in ("MatMul", "PackedMatMul") for each in graph.nodes)


def refusals(model, feeds) -> list[str | None]:
    remarks: list[Remark] = []
    lower_model(model, {name: array.shape for name, array in feeds.items()}, remarks=remarks)
    return [entry.refused for entry in remarks if entry.rule == "join-siblings"]


@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize("bias", [True, False])
def test_heads_join(device, rows: int, bias: bool):
    model, feeds = heads(rows, bias=bias, batch=2)
    assert products(model, feeds) == 1
    assert products(model, feeds, disabled_passes=("siblings",)) == 3
    expected = reference(model, feeds)
    for found, wanted in zip(run_model(device, model, feeds), expected, strict=True):
        assert relative_error(found, wanted) <= 1e-5


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_gated_units_join(device, rows: int):
    """One product for both halves; with few rows the product behind computes the gate."""
    model, feeds = gated(rows)
    assert products(model, feeds) == 2
    assert len(compile_for(model, feeds, WEB).calls) == (2 if rows <= 4 else 3)
    (expected,) = reference(model, feeds)
    (found,) = run_model(device, model, feeds)
    assert relative_error(found, expected) <= 1e-5


def test_no_more_calls_than_apart():
    for rows in (1, 17):
        model, feeds = gated(rows)
        joined, apart = (
            len(compile_for(model, feeds, WEB, disabled_passes=disabled).calls) for disabled in ((), ("siblings",))
        )
        assert joined <= apart


def test_epilogues_stay_with_their_products():
    model, feeds = heads(5, relu=True)
    assert refusals(model, feeds) == ["arithmetic behind a product is faster in its own kernel"]


def test_parts_begin_at_whole_vectors():
    model, feeds = heads(5, columns=(6, 4))
    assert refusals(model, feeds) == ["the parts would not begin at whole vectors"]


def test_shared_weights_are_not_copied():
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("MatMul", ["x", "u"], ["q"]),
        node("Reshape", ["p", "s"], ["y"]),
        node("Reshape", ["q", "s"], ["z"]),
        node("MatMul", ["x2", "w"], ["y2"]),
    ]
    feeds = {"x": weights(3, 160), "x2": weights(5, 160)}
    constants = {"w": weights(160, 160), "u": weights(160, 160) + 1, "s": np.array([480])}
    model = make_model(nodes, feeds, ["y", "z", "y2"], constants=constants)
    assert refusals(model, feeds) == ["a weight is needed elsewhere too"]


def narrow_heads(kind: str, rows: int = 3):
    """Three products with weights of 8 or 16 bits, as exporters write them."""
    feeds = {"x": weights(1, rows, 160)}
    constants, nodes, outputs = {}, [], []
    for number, size in enumerate((160, 120, 120)):
        generator = np.random.default_rng(number)
        integers = generator.integers(-127, 128, (160, size)).astype(np.int8)
        constants[f"scale{number}"] = generator.uniform(0.005, 0.02, size).astype(np.float32)
        constants[f"q{number}"] = integers
        if kind == "DequantizeLinear":
            constants[f"zero{number}"] = generator.integers(-3, 4, size).astype(np.int8)
            nodes.append(node(kind, [f"q{number}", f"scale{number}", f"zero{number}"], [f"w{number}"], axis=1))
        elif kind == "Transpose":
            constants[f"q{number}"] = np.ascontiguousarray(integers.T)
            constants[f"scale{number}"] = constants[f"scale{number}"].reshape(size, 1)
            nodes.append(node("Cast", [f"q{number}"], [f"c{number}"], to=1))
            nodes.append(node("Mul", [f"c{number}", f"scale{number}"], [f"m{number}"]))
            nodes.append(node("Transpose", [f"m{number}"], [f"w{number}"], perm=[1, 0]))
        else:
            constants[f"q{number}"] = weights(160, size).astype(np.float16) + np.float16(number)
            nodes.append(node("Cast", [f"q{number}"], [f"w{number}"], to=1))
        constants[f"s{number}"] = np.array([0, 0, 4, size // 4])
        nodes.append(node("MatMul", ["x", f"w{number}"], [f"p{number}"]))
        nodes.append(node("Reshape", [f"p{number}", f"s{number}"], [f"y{number}"]))
        outputs.append(f"y{number}")
    used = {name for each in nodes for name in each.input}
    return make_model(nodes, feeds, outputs, constants={k: v for k, v in constants.items() if k in used}), feeds


@pytest.mark.parametrize("kind", ["DequantizeLinear", "Transpose", "Cast"])
def test_narrow_weights_join_and_stay_narrow(device, kind: str):
    model, feeds = narrow_heads(kind)
    assert products(model, feeds) == 1
    expected = reference(model, feeds)
    for found, wanted in zip(run_model(device, model, feeds), expected, strict=True):
        assert relative_error(found, wanted) <= 1e-5
    narrow = 400 * 160 * (2 if kind == "Cast" else 1)
    plan = compile_for(model, feeds, WEB)
    assert sum(weight.bytes for weight in plan.weights) <= 1.1 * narrow + 4096


@pytest.mark.parametrize("rows", [3, 20])
def test_weights_with_a_scale_each_join_once_they_are_packed(device, rows: int):
    """One scale for a whole matrix becomes one for each column."""
    model, feeds = narrow_heads("DequantizeLinear", rows)
    for each in list(model.graph.initializer):
        if each.name.startswith(("scale", "zero")):
            array = onnx.numpy_helper.to_array(each).max()
            each.CopyFrom(onnx.numpy_helper.from_array(np.asarray(array), each.name))
    assert refusals(model, feeds) == ["weights of fewer bits are dequantised in different ways", None]
    assert products(model, feeds) == 1
    for found, wanted in zip(run_model(device, model, feeds), reference(model, feeds), strict=True):
        assert relative_error(found, wanted) <= 1e-5
