"""Metamorphic variants: the same model with a switch thrown gives the same numbers.

Switches that change no arithmetic (in-place memory, the executor's path, the cache, unchecked shaders) must agree to
the bit; the others to within rounding.  The graphs at the end are the awkward ones: many operands, long chains, outputs
that are inputs or constants, scalars, high ranks.

Covers: shaderloom/session, compiler/passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from shaderloom import InferenceSession
from shaderloom.compiler.passes.pipeline import PIPELINE
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.source_files import SourceFiles
from shaderloom.runtime.plan.caps import Caps, MemoryAccount

from ...conftest import open_adapter
from ...support.cases import run_onnxruntime
from ...support.comparison import assert_model_close, relative_error
from ...support.effort import slow
from ...support.inputs import text_line
from ...support.models import trained_model
from ...support.running import compile_for, run_plan

Feeds = dict[str, np.ndarray]
node = helper.make_node


def make(
    nodes: Sequence[onnx.NodeProto],
    feeds: Feeds,
    outputs: Sequence[str],
    constants: Feeds | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    def port(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        list(nodes),
        "variants",
        [port(name, array) for name, array in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape) + 7 * len(shape)).standard_normal(shape).astype(np.float32)


# -- graphs ----------------------------------------------------------------------------------------------------------


def residual_network() -> tuple[onnx.ModelProto, Feeds]:
    feeds = {"x": normal(1, 3, 17, 15)}
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "scale", "bias", "mean", "variance"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "w2"], ["c"], pads=[1, 1, 1, 1], group=8),
        node("Clip", ["c", "low", "high"], ["d"]),
        node("Conv", ["d", "w3"], ["e"]),
        node("Add", ["e", "r"], ["f"]),
        node("MaxPool", ["f"], ["g"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Concat", ["g", "g"], ["h"], axis=1),
        node("GlobalAveragePool", ["h"], ["p"]),
        node("Mul", ["h", "p"], ["q"]),
        node("Flatten", ["p"], ["l"]),
        node("Gemm", ["l", "w4", "b4"], ["y"], transB=1),
    ]
    constants = {
        "w1": normal(8, 3, 3, 3),
        "b1": normal(8),
        "w2": normal(8, 1, 3, 3),
        "w3": normal(8, 8, 1, 1),
        "w4": normal(5, 16),
        "b4": normal(5),
        "scale": normal(8),
        "bias": normal(8),
        "mean": normal(8),
        "variance": np.abs(normal(8)) + 1,
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
    }
    return make(nodes, feeds, ["y", "q"], constants), feeds


def attention_block() -> tuple[onnx.ModelProto, Feeds]:
    feeds = {"x": normal(2, 7, 24), "mask": np.where(np.arange(7) < 5, 0, -1e4).astype(np.float32).reshape(1, 1, 1, 7)}
    nodes = [node("LayerNormalization", ["x", "g", "b"], ["n"], axis=-1)]
    for name in "qkv":
        nodes += [
            node("MatMul", ["n", f"w{name}"], [f"m{name}"]),
            node("Add", [f"m{name}", f"b{name}"], [f"a{name}"]),
            node("Reshape", [f"a{name}", "heads"], [f"r{name}"]),
            node("Transpose", [f"r{name}"], [f"t{name}"], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["tq", "tk"], ["s"]),
        node("Mul", ["s", "scale"], ["ss"]),
        node("Add", ["ss", "mask"], ["sm"]),
        node("Softmax", ["sm"], ["p"], axis=-1),
        node("MatMul", ["p", "tv"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "joined"], ["oj"]),
        node("MatMul", ["oj", "wo"], ["om"]),
        node("Add", ["om", "x"], ["y"]),
    ]
    constants = {
        **{f"w{name}": normal(24, 24) / 4 for name in "qkvo"},
        **{f"b{name}": normal(24) for name in "qkv"},
        "g": normal(24),
        "b": normal(24) / 2,
        "scale": np.array(0.35, np.float32),
        "heads": np.array([0, 0, 3, 8]),
        "joined": np.array([0, 0, 24]),
    }
    return make(nodes, feeds, ["y"], constants), feeds


def integers_and_bools() -> tuple[onnx.ModelProto, Feeds]:
    rng = np.random.default_rng(9)
    feeds = {
        "i": rng.integers(-(2**40), 2**40, (3, 5, 7)),
        "j": rng.integers(1, 2**20, (7,)),
        "u": rng.integers(0, 255, (3, 5, 7)).astype(np.uint8),
        "h": normal(3, 5, 7).astype(np.float16),
    }
    nodes = [
        node("Div", ["i", "j"], ["d"]),
        node("Mod", ["i", "j"], ["m"]),
        node("Less", ["d", "m"], ["l"]),
        node("Cast", ["u"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Cast", ["h"], ["g"], to=onnx.TensorProto.FLOAT),
        node("Where", ["l", "f", "g"], ["w"]),
        node("Transpose", ["w"], ["t"], perm=[2, 0, 1]),
        node("Cast", ["t"], ["half"], to=onnx.TensorProto.FLOAT16),
        node("ArgMax", ["w"], ["a"], axis=-1),
        node("ReduceSum", ["i", "axes"], ["s"]),
        node("Not", ["l"], ["no"]),
        node("Concat", ["l", "no"], ["both"], axis=1),
    ]
    outputs = ["d", "m", "l", "half", "a", "s", "both"]
    return make(nodes, feeds, outputs, {"axes": np.array([1])}), feeds


def resizing() -> tuple[onnx.ModelProto, Feeds]:
    feeds = {"x": normal(1, 6, 9, 11)}
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Resize", ["c", "", "scales"], ["r"], mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Pad", ["r", "pads"], ["p"], mode="edge"),
        node("Slice", ["p", "starts", "ends", "axes", "steps"], ["s"]),
        node("Sigmoid", ["s"], ["g"]),
        node("ConvTranspose", ["g", "v"], ["y"], strides=[2, 2]),
    ]
    constants = {
        "w": normal(8, 6, 3, 3),
        "v": normal(8, 3, 2, 2),
        "scales": np.array([1, 1, 2, 3], np.float32),
        "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]),
        "starts": np.array([-1, 0]),
        "ends": np.array([-100, 14]),
        "axes": np.array([3, 2]),
        "steps": np.array([-2, 1]),
    }
    return make(nodes, feeds, ["y"], constants), feeds


def decoder_step() -> tuple[onnx.ModelProto, Feeds]:
    """One token behind a cache that is an output too, grouped heads, and a gated unit."""
    feeds = {"x": normal(2, 1, 24), "past_k": normal(2, 2, 9, 8), "past_v": normal(2, 2, 9, 8) / 2}
    nodes = []
    for name, heads in (("q", "four"), ("k", "two"), ("v", "two")):
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"m{name}"]),
            node("Reshape", [f"m{name}", heads], [f"r{name}"]),
            node("Transpose", [f"r{name}"], [f"t{name}"], perm=[0, 2, 1, 3]),
        ]
    for name in "kv":
        nodes += [
            node("Concat", [f"past_{name}", f"t{name}"], [f"present_{name}"], axis=2),
            node("Unsqueeze", [f"present_{name}", "axis"], [f"u{name}"]),
            node("Expand", [f"u{name}", "wide"], [f"e{name}"]),
            node("Reshape", [f"e{name}", "all"], [f"g{name}"]),
        ]
    nodes += [
        node("Transpose", ["gk"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["tq", "kt"], ["s"]),
        node("Div", ["s", "root"], ["ss"]),
        node("Softmax", ["ss"], ["p"], axis=-1),
        node("MatMul", ["p", "gv"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "joined"], ["oj"]),
        node("MatMul", ["oj", "wo"], ["om"]),
        node("Add", ["om", "x"], ["h"]),
        node("MatMul", ["h", "wg"], ["gate"]),
        node("MatMul", ["h", "wu"], ["up"]),
        node("Sigmoid", ["gate"], ["sigmoid"]),
        node("Mul", ["gate", "sigmoid"], ["silu"]),
        node("Mul", ["silu", "up"], ["gated"]),
        node("MatMul", ["gated", "wd"], ["down"]),
        node("Add", ["down", "h"], ["y"]),
    ]
    columns = {"q": 32, "k": 16, "v": 16, "g": 40, "u": 40}
    constants = {
        **{f"w{name}": normal(24, size) / 4 + number / 9 for number, (name, size) in enumerate(columns.items())},
        "wo": normal(32, 24) / 4,
        "wd": normal(40, 24) / 4,
        "root": np.array(2.8, np.float32),
        "two": np.array([0, 0, 2, 8]),
        "four": np.array([0, 0, 4, 8]),
        "axis": np.array([2]),
        "wide": np.array([2, 2, 2, 10, 8]),
        "all": np.array([2, 4, 10, 8]),
        "joined": np.array([0, 0, 32]),
    }
    return make(nodes, feeds, ["y", "present_k", "present_v"], constants), feeds


GRAPHS: dict[str, Callable[[], tuple[onnx.ModelProto, Feeds]]] = {
    build.__name__: build for build in (residual_network, attention_block, decoder_step, integers_and_bools, resizing)
}
OPTIONS: dict[str, dict[str, Any]] = {
    "everything off": {"disabled_passes": PIPELINE.optional},
    **{f"without {name}": {"disabled_passes": (name,)} for name in PIPELINE.optional},
}


def assert_close(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float = 2e-5) -> None:
    for number, (left, right) in enumerate(zip(actual, expected, strict=True)):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), number
        if left.dtype.kind in "iub":
            np.testing.assert_array_equal(left, right, f"output {number}")
        else:
            allowed = 2e-3 if left.dtype.itemsize == 2 else tolerance
            assert relative_error(left, right) <= allowed, f"output {number}: {relative_error(left, right)}"


def assert_same(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for left, right in zip(actual, expected, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", GRAPHS)
def test_against_onnxruntime(name: str, each_device) -> None:
    model, feeds = GRAPHS[name]()
    plan = compile_for(model, feeds, each_device.profile)
    assert_close(run_plan(each_device, plan, model, feeds), run_onnxruntime(model, feeds))


@pytest.mark.parametrize("name", GRAPHS)
def test_on_the_least_device(name: str, web_device) -> None:
    """WebGPU's default limits and no features: also what a plan for the web may bind."""
    model, feeds = GRAPHS[name]()
    plan = compile_for(model, feeds)
    assert_close(run_plan(web_device, plan, model, feeds), run_onnxruntime(model, feeds))


@pytest.mark.parametrize("name", GRAPHS)
def test_compiler_switches(name: str, device) -> None:
    """A plan that is the same without a pass gives the same; the others are run."""
    model, feeds = GRAPHS[name]()
    plan = compile_for(model, feeds, device.profile)
    plain, others = run_plan(device, plan, model, feeds), []
    for switch, options in OPTIONS.items():
        switched = compile_for(model, feeds, device.profile, **options)
        switched = replace(switched, key=plan.key, facts=plan.facts, notes=plan.notes)
        if switched not in [plan, *others]:
            others.append(switched)
            try:
                assert_close(run_plan(device, switched, model, feeds), plain)
            except AssertionError as error:
                raise AssertionError(switch) from error
    assert others


@pytest.mark.parametrize("name", GRAPHS)
def test_switches_that_change_no_number(name: str, device) -> None:
    model, feeds = GRAPHS[name]()
    plan = compile_for(model, feeds, device.profile)
    plain = run_plan(device, plan, model, feeds, use_native=True)
    assert_same(run_plan(device, plan, model, feeds, use_native=False), plain)
    assert_same(
        run_plan(device, compile_for(model, feeds, device.profile, disabled_passes=("in-place",)), model, feeds), plain
    )
    again = run_plan(device, plan, model, [feeds, feeds])
    assert_same(again[0], plain)
    assert_same(again[1], plain)
    pool = WeightPool(device, SourceFiles(None, model.SerializeToString(), {}), MemoryAccount(Caps().device_memory))
    with Executor(device, plan, pool, checked=False) as executor:
        results = executor.run(feeds)
    pool.close()
    assert_same([results[port.name] for port in plan.outputs], plain)


@pytest.mark.parametrize("name", GRAPHS)
def test_cold_and_warm_cache(name: str, device, tmp_path) -> None:
    model, feeds = GRAPHS[name]()
    results = []
    for warm in (False, True):
        with InferenceSession(model, device=device, cache=tmp_path / "cache") as session:
            results.append(session.run(None, feeds))
            assert session.stats.disk_hits == int(warm)
    assert_same(results[1], results[0])


# -- a whole model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("switch", ["without fuse", "SwiftShader", *slow(["without layout", "without in-place"])])
def test_switches_on_a_trained_model(switch: str, device) -> None:
    path, feeds = trained_model("ppocr_cls"), {"x": text_line(192)}
    chosen = open_adapter(switch) if switch == "SwiftShader" else device
    with InferenceSession(path, device=chosen, cache=False, options=OPTIONS.get(switch)) as session:
        assert_model_close(session.run(None, feeds), path, feeds)


# -- awkward graphs --------------------------------------------------------------------------------------------------


def forty(op: str) -> tuple[onnx.ModelProto, Feeds]:
    feeds = {f"x{i}": normal(2, 3 + i % 3 if op == "Concat" else 3, 4) for i in range(40)}
    attributes = {"axis": 1} if op == "Concat" else {}
    return make([node(op, list(feeds), ["s"], **attributes), node("Abs", ["s"], ["y"])], feeds, ["y"]), feeds


def long_chain() -> tuple[onnx.ModelProto, Feeds]:
    feeds = {"t0": normal(3, 7)}
    nodes = [node("Tanh" if i % 3 else "Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(500)]
    return make(nodes, feeds, ["t500", "t250"]), feeds


def outputs_of_every_kind() -> tuple[onnx.ModelProto, Feeds]:
    """An input, the same input again, a constant large and small, a computed constant, a value and a copy of it."""
    feeds = {"x": normal(3, 5), "unused": normal(2)}
    nodes = [
        node("Identity", ["x"], ["same"]),
        node("Identity", ["big"], ["constant"]),
        node("Exp", ["x"], ["e"]),
        node("Identity", ["e"], ["copy"]),
        node("Exp", ["big"], ["computed"]),
        node("Reshape", ["e", "shape"], ["view"]),
        node("Shape", ["x"], ["sizes"]),
    ]
    outputs = ["x", "same", "big", "constant", "e", "copy", "computed", "view", "sizes", "small"]
    return make(nodes, feeds, outputs, {"big": normal(150, 200), "small": normal(2), "shape": np.array([15])}), feeds


def scalars() -> tuple[onnx.ModelProto, Feeds]:
    feeds = {"x": np.array(3.25, np.float32), "b": np.array(True), "u": np.array(200, np.uint8), "i": np.array(2**40)}
    nodes = [
        node("Mul", ["x", "x"], ["y"]),
        node("Not", ["b"], ["n"]),
        node("Cast", ["u"], ["c"], to=onnx.TensorProto.FLOAT16),
        node("Add", ["i", "i"], ["j"]),
        node("Where", ["b", "x", "y"], ["w"]),
        node("Unsqueeze", ["n", "axes"], ["v"]),
    ]
    return make(nodes, feeds, ["y", "n", "c", "j", "w", "v"], {"axes": np.array([0, 1])}), feeds


def high_ranks() -> tuple[onnx.ModelProto, Feeds]:
    feeds = {"x": normal(2, 1, 3, 2, 3, 2, 2), "z": normal(2, 3, 1, 2, 1, 2, 3, 2)}
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[6, 4, 2, 0, 1, 3, 5]),
        node("ReduceMean", ["t"], ["m"], axes=[1, 4, 6], keepdims=1),
        node("Sub", ["t", "m"], ["y"]),
        node("Softmax", ["z"], ["s"], axis=3),
        node("Transpose", ["s"], ["w"], perm=[7, 6, 5, 4, 3, 2, 1, 0]),
        node("MatMul", ["w", "k"], ["p"]),
    ]
    return make(nodes, feeds, ["y", "p"], {"k": normal(3, 2, 5)[:, :, :5]}), feeds


def nothing() -> tuple[onnx.ModelProto, Feeds]:
    """Tensors without elements, on their own and among others."""
    feeds = {"x": normal(0, 4), "z": normal(3, 4)}
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Concat", ["e", "z", "x"], ["c"], axis=0),
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        node("MatMul", ["x", "w"], ["m"]),
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("MatMul", ["t", "x"], ["k"]),
        node("Slice", ["z", "two", "two"], ["l"]),
        node("Add", ["k", "z3"], ["a"]),
    ]
    constants = {"axes": np.array([0]), "w": normal(4, 6), "two": np.array([2]), "z3": normal(4, 4)}
    return make(nodes, feeds, ["e", "c", "s", "m", "t", "k", "l", "a"], constants), feeds


AWKWARD: dict[str, Callable[[], tuple[onnx.ModelProto, Feeds]]] = {
    "a sum of forty": lambda: forty("Sum"),
    "a concatenation of forty": lambda: forty("Concat"),
    "a maximum of forty": lambda: forty("Max"),
    **{build.__name__: build for build in (long_chain, outputs_of_every_kind, scalars, high_ranks, nothing)},
}


@pytest.mark.parametrize("fusion", [True, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs(name: str, fusion: bool, web_device) -> None:
    model, feeds = AWKWARD[name]()
    plan = compile_for(model, feeds, disabled_passes=() if fusion else ("fuse",))
    tolerance = 1e-4 if name == "long_chain" else 2e-5  # rounded five hundred times
    assert_close(run_plan(web_device, plan, model, feeds), run_onnxruntime(model, feeds), tolerance)


def test_nothing_beside_a_declared_dimension(device) -> None:
    """An axis of size 0 next to one whose size is known only at run time."""
    feeds = {"x": normal(1, 4, 0), "z": normal(1, 4, 3)}
    nodes = [
        node("Softmax", ["x"], ["s"], axis=0),
        node("ReduceSum", ["x", "last"], ["r"], keepdims=0),
        node("Concat", ["s", "z", "x"], ["c"], axis=2),
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["t", "z"], ["m"]),
        node("MatMul", ["x", "t"], ["p"]),
    ]
    model = make(nodes, feeds, ["s", "r", "c", "m", "p"], {"last": np.array([2])})
    for port in model.graph.input:
        port.type.tensor_type.shape.dim[1].dim_param = "n"
    longer = {"x": normal(1, 9, 0), "z": normal(1, 9, 3)}
    plan = compile_for(model, feeds, device.profile, dynamic={"n": (1, 16)})
    for actual, given in zip(run_plan(device, plan, model, [feeds, longer]), (feeds, longer), strict=True):
        assert_close(actual, run_onnxruntime(model, given))
