"""What must share one kernel does, and whole models take no more calls than they did.  Needs no device.

Everything is compiled for the least device there is: WebGPU's default limits, no features.

Covers: compiler/fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model, compile_unit, model_unit
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.options import CompileOptions
from shaderloom.compiler.passes.pipeline import LOWERED
from shaderloom.compiler.remarks import Remark
from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.plan import Plan

from ...support.effort import slow
from ...support.models import filled_model
from ...support.passes import lower_model

node = helper.make_node
GENERATOR = np.random.default_rng(3)


def weights(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int]],
    constants: dict[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "fusion",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plan_of(model: onnx.ModelProto, **options: Any) -> Plan:
    imported = load_model(model.SerializeToString())
    shapes = {port.name: tuple(port.dims or ()) for port in imported.inputs}
    return compile_model(
        imported, bind_shapes(imported, shapes), Compilation(options=CompileOptions(verify=True, **options))
    )


def calls(model: onnx.ModelProto, **options: Any) -> list[str]:
    return [call.label for call in plan_of(model, **options).calls]


# -- one kernel ------------------------------------------------------------------------------------------------------


def elementwise_chain() -> onnx.ModelProto:
    ops = ("Sigmoid", "Neg", "Exp", "Abs", "Tanh")
    nodes = [node(op, [f"t{i}"], [f"t{i + 1}"]) for i, op in enumerate(ops)]
    nodes[-1].output[0] = "y"
    return make(nodes, {"t0": (2, 3, 8)})


def matmul_bias_relu() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["s"]), node("Relu", ["s"], ["y"])]
    return make(nodes, {"x": (6, 16)}, {"w": weights(16, 8), "b": weights(8)})


def gemm_relu() -> onnx.ModelProto:
    nodes = [node("Gemm", ["x", "w", "b"], ["s"], transB=1), node("Relu", ["s"], ["y"])]
    return make(nodes, {"x": (6, 16)}, {"w": weights(8, 16), "b": weights(8)})


def conv_norm_relu() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["n"]),
        node("Relu", ["n"], ["y"]),
    ]
    constants = {name: weights(8) for name in ("scale", "bias", "mean")}
    return make(nodes, {"x": (1, 4, 9, 9)}, {"w": weights(8, 4, 3, 3), "variance": np.abs(weights(8)) + 1, **constants})


def conv_residual_relu() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["c", "r"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    return make(nodes, {"x": (1, 4, 9, 9), "r": (1, 8, 9, 9)}, {"w": weights(8, 4, 3, 3), "b": weights(8)})


def scaled_masked_softmax() -> onnx.ModelProto:
    nodes = [
        node("Mul", ["x", "scale"], ["t"]),
        node("Add", ["t", "mask"], ["u"]),
        node("Softmax", ["u"], ["y"], axis=-1),
    ]
    return make(nodes, {"x": (1, 2, 7, 9), "mask": (1, 1, 7, 9)}, {"scale": scalar(0.125)})


def transpose_reshape_add() -> onnx.ModelProto:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "shape"], ["r"]),
        node("Add", ["r", "b"], ["y"]),
    ]
    return make(nodes, {"x": (1, 2, 6, 8)}, {"shape": np.array([1, 6, 16]), "b": weights(16)})


NORM = {"eps": scalar(1e-5), "two": scalar(2.0), "half": scalar(0.5), "g": weights(24), "b": weights(24)}


def spelled_norm(variant: str) -> onnx.ModelProto:
    """LayerNormalization as exporters write it out."""
    mean = node("ReduceMean", ["x"], ["m"], axes=[-1])
    centre = node("Sub", ["x", "m"], ["d"])
    variance = node("ReduceMean", ["q"], ["v"], axes=[-1])
    root = [node("Add", ["v", "eps"], ["ve"]), node("Sqrt", ["ve"], ["s"])]
    affine = [node("Mul", ["n", "g"], ["t"]), node("Add", ["t", "b"], ["y"])]
    divide = node("Div", ["d", "s"], ["n"])
    if variant == "Pow":
        nodes = [mean, centre, node("Pow", ["d", "two"], ["q"]), variance, *root, divide, *affine]
    elif variant == "Mul":
        nodes = [mean, centre, node("Mul", ["d", "d"], ["q"]), variance, *root, divide, *affine]
    elif variant == "two subtractions":
        second = node("Sub", ["x", "m"], ["d2"])
        nodes = [mean, centre, second, node("Pow", ["d2", "two"], ["q"]), variance, *root, divide, *affine]
    elif variant == "Reciprocal":
        scaled = [node("Reciprocal", ["s"], ["i"]), node("Mul", ["d", "i"], ["n"])]
        nodes = [mean, centre, node("Mul", ["d", "d"], ["q"]), variance, *root, *scaled, *affine]
    elif variant == "scale first":
        # y = x * (g / s) + (b - m * (g / s))
        nodes = [
            mean,
            centre,
            node("Mul", ["d", "d"], ["q"]),
            variance,
            *root,
            node("Reciprocal", ["s"], ["i"]),
            node("Mul", ["i", "g"], ["a"]),
            node("Mul", ["x", "a"], ["xa"]),
            node("Mul", ["m", "a"], ["ma"]),
            node("Sub", ["b", "ma"], ["o"]),
            node("Add", ["xa", "o"], ["y"]),
        ]
    elif variant == "Cast around":
        to = onnx.TensorProto.FLOAT
        nodes = [
            mean,
            centre,
            node("Cast", ["d"], ["d2"], to=to),
            node("Pow", ["d2", "two"], ["q"]),
            variance,
            *root,
            divide,
            *affine,
        ]
    elif variant == "residual before":
        nodes = [
            node("Add", ["x0", "r"], ["x"]),
            mean,
            centre,
            node("Pow", ["d", "two"], ["q"]),
            variance,
            *root,
            divide,
        ]
        return make([*nodes, *affine], {"x0": (3, 5, 24), "r": (3, 5, 24)}, NORM)
    elif variant == "root mean square":
        nodes = [
            node("Pow", ["x", "two"], ["q"]),
            variance,
            *root,
            node("Div", ["x", "s"], ["n"]),
            node("Mul", ["n", "g"], ["y"]),
        ]
    else:
        nodes = [node("LayerNormalization", ["x", "g", "b"], ["y"], axis=-1)]
    return make(nodes, {"x": (3, 5, 24)}, NORM)


NORMS = (
    "Pow",
    "Mul",
    "two subtractions",
    "Reciprocal",
    "scale first",
    "Cast around",
    "residual before",
    "root mean square",
    "operator",
)
ONE_KERNEL = (
    elementwise_chain,
    matmul_bias_relu,
    gemm_relu,
    conv_norm_relu,
    conv_residual_relu,
    scaled_masked_softmax,
    transpose_reshape_add,
)


@pytest.mark.parametrize("build", ONE_KERNEL, ids=lambda build: build.__name__)
def test_one_kernel(build):
    assert len(calls(build())) == 1


@pytest.mark.parametrize("variant", NORMS)
def test_normalisation_is_one_kernel(variant: str):
    assert len(calls(spelled_norm(variant))) == 1


@pytest.mark.parametrize("build", ONE_KERNEL, ids=lambda build: build.__name__)
def test_without_fusion_there_are_more(build):
    assert len(calls(build(), disabled_passes=("fuse",))) >= 3


# -- limits and reasons ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Sum", "Concat", "Max"])
def test_many_operands_respect_the_binding_limit(op: str):
    count = 40
    names = [f"x{i}" for i in range(count)]
    attributes = {"axis": 0} if op == "Concat" else {}
    model = make([node(op, names, ["s"], **attributes), node("Relu", ["s"], ["y"])], dict.fromkeys(names, (4, 3)))
    plan = plan_of(model)
    for kernel in plan.kernels:
        storage = [binding for binding in kernel.bindings if binding.access != "uniform"]
        assert len(storage) <= WEB.limit("max-storage-buffers-per-shader-stage")
    read = {item.buffer for call in plan.calls for item in call.ranges if item.buffer.startswith("input:")}
    assert read == {f"input:{name}" for name in names}
    assert len(plan.calls) <= 8


@pytest.mark.parametrize("anchor", ["none", "MatMul", "ReduceSum", "Softmax"])
def test_a_chain_of_additions_is_cut_into_few_pieces(anchor: str):
    """Forty tensors added one after the other, also behind a product or a reduction."""
    count = 40
    names = [f"x{i}" for i in range(count)]
    nodes = [node("Add", [f"t{i}", name], [f"t{i + 1}"]) for i, name in enumerate(names)]
    inputs: dict[str, Sequence[int]] = dict.fromkeys(names, (4, 6))
    constants = {}
    if anchor == "none":
        inputs["t0"] = (4, 6)
    else:
        inputs["x"] = (4, 6)
        constants = {"w": weights(6, 6), "axes": np.array([1])}
        operands = {"MatMul": ["x", "w"], "ReduceSum": ["x", "axes"], "Softmax": ["x"]}[anchor]
        nodes.insert(0, node(anchor, operands, ["t0"]))
    plan = plan_of(make(nodes, inputs, constants, outputs=[f"t{count}"]))
    for kernel in plan.kernels:
        assert len(kernel.bindings) <= WEB.limit("max-storage-buffers-per-shader-stage")
    assert len(plan.calls) <= 8


def test_numbers_of_one_tensor_are_one_operand():
    """A product whose result is multiplied by many numbers that are elements of one tensor."""
    nodes, constants = [node("MatMul", ["x", "w"], ["t0"])], {"w": weights(6, 6)}
    for i in range(9):
        constants[f"i{i}"] = np.array(i)
        nodes += [node("Gather", ["s", f"i{i}"], [f"s{i}"]), node("Mul", [f"t{i}", f"s{i}"], [f"t{i + 1}"])]
    assert len(calls(make(nodes, {"x": (4, 6), "s": (9,)}, constants, outputs=["t9"]))) == 1


def test_a_long_chain_stays_within_the_size_of_a_shader():
    count = 500
    nodes = [node("Sigmoid" if i % 2 else "Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    plan = plan_of(make(nodes, {"t0": (5,)}, outputs=[f"t{count}"]))
    assert 2 <= len(plan.calls) <= 10


def test_a_value_that_many_read_is_made_once():
    nodes = [node("Exp", ["x"], ["e"]), node("Sin", ["e"], ["s"])]
    nodes += [node("ReduceSum", ["s", f"axes{i}"], [f"y{i}"], keepdims=0) for i in range(3)]
    axes = {f"axes{i}": np.array([i]) for i in range(3)}
    model = make(nodes, {"x": (4, 5, 6)}, axes, outputs=["y0", "y1", "y2"])
    labels = calls(model)
    assert len(labels) == 4
    assert sum("Exp" in label for label in labels) == 1


def test_every_refusal_has_a_reason():
    nodes = [node("Exp", ["x"], ["e"]), node("MatMul", ["e", "w"], ["p"]), node("Softmax", ["p"], ["y"])]
    model = make(nodes, {"x": (6, 16)}, {"w": weights(16, 8)}, outputs=["e", "y"])
    lowered = lower_model(model, {"x": (6, 16)})
    produced = lowered.fusion.materialised
    explained = {(producer.id, consumer.id) for producer, consumer, _ in lowered.fusion.reasons}
    for group in lowered.fusion.groups:
        for read in group.reads:
            if read in produced and read.producer is not None:
                assert any((read.producer.id, member.id) in explained for member in group.nodes), (read, group.output)
    assert all(reason for *_, reason in lowered.fusion.reasons)


def test_constants_alone_are_computed_when_weights_are_made():
    big = weights(200, 200)
    nodes = [node("Mul", ["big", "two"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    plan = plan_of(make(nodes, {"x": (3, 200)}, {"big": big, "two": scalar(2.0)}))
    assert len(plan.calls) == 1
    assert any(weight.calls for weight in plan.weights)


def test_results_of_a_product_that_become_halves():
    """Its threads hold whole vectors of the output, unless rows are no whole vectors: then a kernel packs them."""
    for columns, most in ((12, 1), (13, 2)):
        nodes = [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["r"]), node("Cast", ["r"], ["y"], to=10)]
        labels = calls(make(nodes, {"x": (3, 8)}, {"w": weights(8, columns)}))
        assert len(labels) == most, labels


# -- whole models ----------------------------------------------------------------------------------------------------


def decoder_shapes(sequence: int, past: int) -> dict[str, tuple[int, ...]]:
    """Inputs of decoder_kv: ``sequence`` tokens behind ``past`` ones."""
    caches = {f"past.{layer}.{kind}": (1, 2, past, 32) for layer in range(4) for kind in "kv"}
    return {"input_ids": (1, sequence), **caches}


#: model -> (input shapes, run-time calls); second passes of split reductions are not counted
MODEL_CALLS: dict[str, tuple[dict[str, tuple[int, ...]], int]] = {
    "squeezenet1_1": ({"input": (1, 3, 224, 224)}, 30),
    "mobilenet_v2": ({"input": (1, 3, 224, 224)}, 54),
    "resnet18": ({"input": (1, 3, 224, 224)}, 23),
    "resnet50": ({"input": (1, 3, 224, 224)}, 56),
    "efficientnet_b0": ({"input": (1, 3, 224, 224)}, 99),
    "vit_tiny_patch16_224": ({"input": (1, 3, 224, 224)}, 87),
    "bert_small_dynamic": ({"input_ids": (1, 32), "attention_mask": (1, 32)}, 31),
    "gpt2_small": ({"input_ids": (1, 64)}, 31),
    "decoder_kv": (decoder_shapes(1, 512), 35),  # 8 for each of 4 layers
}


#: larger ones of the kinds of others
SLOW_MODELS = ("resnet50", "efficientnet_b0", "gpt2_small")


@pytest.mark.parametrize("name", [*(name for name in MODEL_CALLS if name not in SLOW_MODELS), *slow(SLOW_MODELS)])
def test_calls_of_a_model(name: str):
    shapes, most = MODEL_CALLS[name]
    imported = load_model(filled_model(name))
    bound = bind_shapes(imported, shapes)
    counts = {}
    for split in (False, True):
        disabled = () if split else ("split-products",)
        plan = compile_model(imported, bound, Compilation(options=CompileOptions(disabled, verify=True)))
        counts[split] = len(plan.calls)
    assert counts[False] <= most, f"{name} takes {counts[False]} calls"
    remarks: list[Remark] = []
    compile_unit(model_unit(imported, bound), Compilation(remarks=remarks), until=LOWERED)
    second_passes = sum(
        application.refused is None and application.rule.startswith("split-") for application in remarks
    )
    assert counts[True] - second_passes <= most, f"{name} takes {counts[True]} calls with {second_passes} second passes"


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("past", [0, 512])
def test_a_decoder_takes_eight_calls_a_layer(kind: str, past: int):
    """One token; also with a past of any length in one plan.  Besides: the embedding, the last norm, the logits.

    On a GPU the keys of a plan for up to 2,048 are split among workgroups, and one more call a layer merges the parts.
    """
    imported = load_model(filled_model("decoder_kv"))
    target = target_of(replace(WEB, kind=kind))
    for dynamic in (None, {"past": (0, 2048)}):
        plan = compile_model(imported, bind_shapes(imported, decoder_shapes(1, past), dynamic), Compilation(target))
        a_layer = 9 if dynamic and kind == "discrete" else 8
        assert len(plan.calls) <= 4 * a_layer + 3 + (2 if dynamic else 0)


@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v2", "resnet18", "resnet50", "efficientnet_b0"])
def test_a_convolutional_net_moves_no_activations(name: str):
    """From the contiguous input to the contiguous output, layouts change inside the first and last kernels alone."""
    imported = load_model(filled_model(name))
    plan = compile_model(imported, bind_shapes(imported, {"input": (1, 3, 224, 224)}), Compilation())
    templates = {kernel.key: kernel.template for kernel in plan.kernels}
    calls = plan.calls
    assert [call.label for call in calls if templates[call.kernel] in ("map", "transpose")] == []
