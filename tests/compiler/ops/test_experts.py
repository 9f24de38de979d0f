"""Mixtures of experts: what a token reads, and what is refused.  Covers: compiler/ops/microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.errors import ShaderloomError, ShapeError, UnsupportedError

from ...support.expert_mixture import mixture
from ...support.running import compile_for, run_plan

COUNT, HIDDEN, INNER = 32, 24, 40


def model_of(tokens: int | str, arrays: dict[str, np.ndarray], **attributes: Any) -> onnx.ModelProto:
    """A MoE of [tokens, HIDDEN] with the constant matrices and biases ``arrays``."""
    node = helper.make_node("MoE", ["x", "router", *arrays], ["y"], domain="com.microsoft", **attributes)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [tokens, size])
        for name, size in (("x", HIDDEN), ("router", COUNT))
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "experts", inputs, [onnx.ValueInfoProto(name="y")], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def parameters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    sizes = {"w1": (2 * INNER, HIDDEN), "b1": (2 * INNER,), "w2": (HIDDEN, INNER), "b2": (HIDDEN,)}
    return {name: rng.uniform(-1, 1, (COUNT, *shape)).astype(np.float32) for name, shape in sizes.items()}


def feeds_of(rng: np.random.Generator, tokens: int) -> dict[str, np.ndarray]:
    sizes = {"x": HIDDEN, "router": COUNT}
    return {name: rng.uniform(-2, 2, (tokens, size)).astype(np.float32) for name, size in sizes.items()}


def test_a_token_reads_the_experts_that_it_chose(device) -> None:
    """Matrices of the others hold NaN; the chosen ones are read inside the products, and copied nowhere."""
    rng = np.random.default_rng(3)
    arrays, attributes = parameters(rng), {"k": 3, "activation_type": "swiglu", "swiglu_fusion": 1}
    feeds = [feeds_of(rng, tokens) for tokens in (1, 7)]
    for each in feeds:
        each["router"][:, COUNT // 2 :] -= 10
    wanted = [
        mixture(
            *(each[name].astype(np.float64) for name in ("x", "router")),
            [arrays["w1"].astype(np.float64), arrays["w2"].astype(np.float64)],
            [arrays["b1"].astype(np.float64), arrays["b2"].astype(np.float64)],
            attributes,
        )
        for each in feeds
    ]
    for array in arrays.values():
        array[COUNT // 2 :] = np.nan
    model = model_of("tokens", arrays, **attributes)
    plan = compile_for(model, feeds[0], device.profile, dynamic={"tokens": (1, 9)})
    for (found,), right in zip(run_plan(device, plan, model, feeds), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
    single = compile_for(model_of(1, arrays, **attributes), feeds[0], device.profile)
    assert sum(single.arenas) < arrays["w1"][0].nbytes


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], type[ShaderloomError], str]] = {
    "a sparse mixer": ({}, {"use_sparse_mixer": 1}, UnsupportedError, "supported are 0"),
    "another activation": ({}, {"activation_type": "tanh"}, UnsupportedError, "swiglu"),
    "halves of a plain activation": ({}, {"activation_type": "silu"}, UnsupportedError, "'swiglu_fusion' = 1"),
    "too many experts": ({}, {"k": COUNT + 1}, ShapeError, f"k is {COUNT + 1} of {COUNT} experts"),
    "no gate": ({}, {"swiglu_fusion": 0}, ShapeError, "swiglu_fusion = 0 needs fc3 (input 6)"),
    "rows of fc2": ({"w2": (COUNT, HIDDEN + 1, INNER)}, {}, ShapeError, "fc2_experts_weights (input 4)"),
    "odd halves": ({"w1": (COUNT, 7, HIDDEN)}, {}, ShapeError, "fc1 has 7 rows, which are not two halves"),
    "a bias": ({"b1": (COUNT, INNER)}, {}, ShapeError, "fc1_experts_bias (input 3)"),
    "another router": ({"w1": (COUNT - 1, 8, HIDDEN)}, {}, ShapeError, f"and {COUNT - 1} experts"),
    "a gate of a plain activation": (
        {"w3": (COUNT, INNER, HIDDEN)},
        {"activation_type": "silu", "swiglu_fusion": 0},
        UnsupportedError,
        "activation_type swiglu with swiglu_fusion = 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    shapes, attributes, kind, reason = REFUSED[name]
    arrays = parameters(np.random.default_rng(0))
    arrays |= {each: np.zeros(shape, np.float32) for each, shape in shapes.items()}
    model = model_of(2, arrays, **{"activation_type": "swiglu", "swiglu_fusion": 1, **attributes})
    imported = load_model(model)
    with pytest.raises(kind) as caught:
        specialise(imported, bind_shapes(imported, {"x": (2, HIDDEN), "router": (2, COUNT)}).shapes)
    assert reason in str(caught.value) and caught.value.origin is not None


def quantised(tokens: int, attributes: dict[str, Any], missing: int | None = None) -> onnx.ModelProto:
    """A QMoE of blocks of 16 numbers of 4 bits, without its input ``missing``."""
    count, hidden, inner = 24, 32, 48
    rng = np.random.default_rng(5)
    arrays: dict[int, np.ndarray] = {}
    for first, (rows, columns) in ((2, (inner, hidden)), (5, (hidden, inner))):
        arrays[first] = rng.integers(0, 256, (count, rows, columns // 2)).astype(np.uint8)
        arrays[first + 1] = rng.uniform(0.1, 0.2, (count, rows, columns // 16)).astype(np.float32)
    arrays.pop(missing or 0, None)
    names = ["x", "router", *(f"w{at}" if at in arrays else "" for at in range(2, 7))]
    node = helper.make_node("QMoE", names, ["y"], domain="com.microsoft", block_size=16, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [tokens, size])
        for name, size in (("x", hidden), ("router", count))
    ]
    constants = [numpy_helper.from_array(array, f"w{at}") for at, array in arrays.items()]
    graph = helper.make_graph([node], "experts", inputs, [onnx.ValueInfoProto(name="y")], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_packed_experts_are_not_dequantised_to_memory() -> None:
    """Products read the packed bytes: no matrix of an expert is in the arenas or among the weights as floats."""
    feeds = {"x": np.zeros((5, 32), np.float32), "router": np.zeros((5, 24), np.float32)}
    plan = compile_for(quantised(5, {"k": 4, "activation_type": "silu"}), feeds)
    assert sum(plan.arenas) < 5 * 4 * 48 * 32
    assert not [weight for weight in plan.weights if weight.calls]


QUANTISED_REFUSED: dict[str, tuple[dict[str, Any], int | None, type[ShaderloomError], str]] = {
    "bytes in another order": ({"weights_prepacked": 1}, None, UnsupportedError, "'weights_prepacked' = 1"),
    "matrices of floats": ({"quant_type": "fp8"}, None, UnsupportedError, "'quant_type' = 'fp8'"),
    "five bits": ({"expert_weight_bits": 5}, None, UnsupportedError, "supported are 2, 3, 4, 8"),
    "another width of fc2": ({"fc2_expert_weight_bits": 8}, None, ShapeError, "fc2_experts_weights (input 5)"),
    "no scales": ({}, 3, ShapeError, "fc1_scales (input 3) is missing"),
    "no gate": ({"activation_type": "swiglu"}, None, ShapeError, "fc3_experts_weights (input 8) is missing"),
}


@pytest.mark.parametrize("name", QUANTISED_REFUSED)
def test_quantised_refused(name: str) -> None:
    attributes, missing, kind, reason = QUANTISED_REFUSED[name]
    imported = load_model(quantised(2, attributes, missing))
    with pytest.raises(kind) as caught:
        specialise(imported, bind_shapes(imported, {"x": (2, 32), "router": (2, 24)}).shapes)
    assert reason in str(caught.value) and caught.value.origin is not None
