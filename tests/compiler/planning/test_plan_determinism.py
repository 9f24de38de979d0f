"""The same model, shapes, profile and options give the same bytes in any process; what differs gives other keys.

Covers: compiler/planning, compiler/codegen/render.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.codegen import render as rendering
from shaderloom.compiler.codegen.render import render
from shaderloom.compiler.codegen.spec import BoundTensor, Hook, KernelSpec, Store
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.kernels.map import MapConfig
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.errors import NotKnownError, UnsupportedError
from shaderloom.runtime.plan.plan import Plan

from ...support.cases import OperatorCase, all_cases
from ...support.effort import quick_first
from ...support.models import filled_model

ROOT = Path(__file__).resolve().parents[3]

#: Compiles the files named on the command line, in that order, and prints their plans
PROGRAM = """
import json, sys
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.binding.shape_binding import bind_shapes

for job in json.loads(sys.argv[1]):
    model = load_model(job["path"])
    bound = bind_shapes(model, job["shapes"], job["dynamic"])
    print(json.dumps(compile_model(model, bound, Compilation()).to_json(), sort_keys=True))
"""


def compile_elsewhere(jobs: list[dict], seed: str) -> list[str]:
    """Plans of ``jobs`` as text, made in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(jobs)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def network() -> onnx.ModelProto:
    """A bit of everything: convolution, product, normalisation, views, weights that are computed, several outputs."""
    rng = np.random.default_rng(1)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Add", ["r", "c"], ["s"]),
        node("GlobalAveragePool", ["s"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Mul", ["big", "two"], ["m"]),
        node("MatMul", ["f", "m"], ["y"]),
        node("Transpose", ["s"], ["t"], perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["t", "g"], ["n"], axis=-1),
        node("Concat", ["n", "t"], ["z"], axis=-1),
        node("ArgMax", ["z"], ["i"], axis=-1),
    ]
    arrays = {"w": (8, 3, 3, 3), "b": (8,), "big": (8, 4000), "g": (8,)}
    constants = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in arrays.items()}
    constants["two"] = np.array(2, np.float32)
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", 1, ("batch", 3, 12, 12))],
        [onnx.ValueInfoProto(name=name) for name in ("y", "z", "i")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    path = tmp_path_factory.mktemp("determinism") / "network.onnx"
    onnx.save(network(), path)
    return [
        {"path": str(path), "shapes": {"x": [1, 3, 12, 12]}, "dynamic": None},
        {"path": str(path), "shapes": {"x": [2, 3, 12, 12]}, "dynamic": None},
        {"path": str(path), "shapes": {"x": [2, 3, 12, 12]}, "dynamic": {"batch": [1, 8]}},
    ]


@pytest.fixture(scope="module")
def texts(jobs: list[dict]) -> list[str]:
    """The plans of the jobs."""
    return compile_elsewhere(jobs, "1")


def test_plans_are_the_same_in_any_process(jobs: list[dict], texts: list[str]) -> None:
    """What was compiled before must not matter either."""
    assert compile_elsewhere(jobs[::-1], "77") == texts[::-1]
    assert len({json.loads(text)["key"] for text in texts}) == len(jobs)


@pytest.mark.parametrize(
    ("name", "shapes"),
    quick_first(
        [
            ("squeezenet1_1", {"input": [1, 3, 224, 224]}),
            ("vit_tiny_patch16_224", {"input": [1, 3, 224, 224]}),
            ("bert_small_dynamic", {"input_ids": [1, 17], "attention_mask": [1, 17]}),
        ]
    ),
)
def test_plans_of_models_are_the_same_in_any_process(name: str, shapes: dict[str, list[int]]) -> None:
    job = {"path": str(filled_model(name)), "shapes": shapes, "dynamic": None}
    assert compile_elsewhere([job], "3") == compile_elsewhere([job], "4")


def plan_text(case: OperatorCase) -> str:
    model = load_model(case.model().SerializeToString())
    bound = bind_shapes(model, {name: array.shape for name, array in case.feeds.items()})
    return json.dumps(compile_model(model, bound, Compilation()).to_json(), sort_keys=True)


@pytest.mark.parametrize("part", quick_first(range(12)))
def test_plans_of_operators_are_the_same_each_time(part: int) -> None:
    """Addresses in memory, by which sets are in order, are others each time."""
    for case in all_cases()[part::12]:
        with suppress(NotKnownError, UnsupportedError):  # a program of several steps, or one for the host
            assert plan_text(case) == plan_text(case), case.name


def test_the_leaf_with_the_codes_is_the_narrowest_of_one_size() -> None:
    """In this model scales and packed codes have as many bits: either was the largest leaf, as their order had it."""
    (case,) = (case for case in all_cases() if case.name == "com.microsoft.QMoE-6")
    texts = [plan_text(case) for _ in range(8)]
    assert set(texts) == {texts[0]}


def test_a_plan_survives_json(texts: list[str]) -> None:
    text = texts[0]
    assert json.dumps(Plan.from_json(json.loads(text)).to_json(), sort_keys=True) == text


def plan_of(path: str, **fields: object) -> Plan:
    model = load_model(path)
    target = target_of(replace(WEB, **fields))  # type: ignore[arg-type]
    return compile_model(model, bind_shapes(model, {"x": (1, 3, 12, 12)}), Compilation(target))


def test_weights_are_shared_between_shapes(texts: list[str]) -> None:
    """Keys of weights depend on their source and transform alone, so that plans for other shapes find them."""
    plans = [Plan.from_json(json.loads(text)) for text in texts]
    keys = [{weight.key for weight in plan.weights} for plan in plans]
    assert keys[0] == keys[1] == keys[2] and keys[0]


# -- kernel keys -----------------------------------------------------------------------------------------------------


def spec() -> KernelSpec:
    q, lane = ix.variable("q", 0, 24), ix.variable("lane", 0, 3)
    position = ix.add(ix.multiply(q, 4), lane)
    value = ex.binary("add", ex.load("x0", "float32", position, "f32"), ex.const(1, "f32"))
    hook = Hook("store", ("q",), 4, (), None, (Store("y", "float32", position, value),))
    operands = (BoundTensor("x0", "read", "float32"), BoundTensor("y", "read_write", "float32"))
    return KernelSpec("map", MapConfig(4, 64), operands, (hook,), (("threads", 25),), 64, (1, 1, 1))


def changed_hook(**fields: object) -> KernelSpec:
    original = spec()
    return replace(original, hooks=(replace(original.hooks[0], **fields),))  # type: ignore[arg-type]


def changed_store(**fields: object) -> KernelSpec:
    store = spec().hooks[0].stores[0]
    return changed_hook(stores=(replace(store, **fields),))  # type: ignore[arg-type]


CHANGES = {
    "config": lambda: replace(spec(), config=MapConfig(4, 128)),
    "threads": lambda: replace(spec(), config=MapConfig(4, 128), threads=128),
    "dims": lambda: replace(spec(), dims=(("threads", 24),)),
    "value": lambda: changed_store(value=ex.const(2, "f32")),
    "constant": lambda: changed_store(
        value=ex.binary("add", spec().hooks[0].stores[0].value.args[0], ex.const(1.0000001, "f32"))
    ),
    "condition": lambda: changed_store(condition=ex.in_range(ix.variable("q", 0, 24), 0, 7)),
    "operand type": lambda: replace(spec(), operands=(BoundTensor("x0", "read", "int32"), spec().operands[1])),
    "features": lambda: replace(spec(), features=("shader-f16",)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_entry_changes_the_key_of_a_kernel(change: str) -> None:
    assert render(spec()).key == render(spec()).key
    assert render(CHANGES[change]()).key != render(spec()).key


def test_the_text_of_a_template_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = render(spec()).key
    environment = rendering.environment()
    original = environment.get_template

    def with_comment(name: str):
        template = original(name)
        if name != "map/map.wgsl.j2":
            return template
        source, *_ = environment.loader.get_source(environment, name)
        return environment.from_string(source + "// another line\n")

    monkeypatch.setattr(environment, "get_template", with_comment)
    rendering.template_text.cache_clear()
    try:
        assert render(spec()).key != before
    finally:
        rendering.template_text.cache_clear()


def test_equal_kernels_of_one_plan_are_one_kernel() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Exp", ["z"], ["b"])]
    graph = helper.make_graph(
        nodes,
        "twice",
        [helper.make_tensor_value_info(name, 1, (3, 5)) for name in ("x", "z")],
        [onnx.ValueInfoProto(name=name) for name in ("a", "b")],
    )
    imported = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    plan = compile_model(imported, bind_shapes(imported, {"x": (3, 5), "z": (3, 5)}), Compilation())
    assert len(plan.kernels) == 1 and len(plan.calls) == 2


def test_a_driver_gets_each_kernel_once_and_those_of_weights_first():
    imported = load_model(filled_model("squeezenet1_1"))
    unit = bind_shapes(imported, {"input": (1, 3, 224, 224)})
    alone, given = compile_model(imported, unit, Compilation(target_of(WEB))), []
    plan = compile_model(imported, unit, Compilation(target_of(WEB), on_kernel=given.append))
    assert plan == alone
    assert sorted(kernel.key for kernel in given) == sorted(kernel.key for kernel in plan.kernels)
    transforms = {call.kernel for weight in plan.weights for call in weight.calls}
    assert transforms == {kernel.key for kernel in given[: len(transforms)]} != set()
