"""One way to a plan: sessions, the trace of passes, ``check`` and the tuner compile alike, with the same limits.

Covers: compiler/driver, compiler/compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

from shaderloom.compiler.driver import compile_unit
from shaderloom.compiler.passes.pipeline import LOWERED
from shaderloom.execution.engine import WgpuEngine
from shaderloom.execution.steps import Observer, PlanStep
from shaderloom.inspect.pass_trace import trace_passes
from shaderloom.model.feeds import shape_key
from shaderloom.model.model import Model
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.plan.caps import Caps
from shaderloom.runtime.plan.errors import InputError, LimitError
from shaderloom.runtime.plan.plan import Plan

SHAPES = {"x": (4, 8)}
TEXT = """<ir_version: 9, opset_import: ["" : 17]>
g (float[4, 8] x) => (float[4, 8] y) <int64 count = {3}, bool on = {1}> {
    p = MatMul (a, x)
    s = Softmax (p)
    y = Loop (count, on, s) <body = step (int64 i, bool c, float[4, 8] v) => (bool d, float[4, 8] w) {
        d = Identity (c)
        w = Tanh (v)
    }>
}"""


@pytest.fixture
def path(tmp_path):
    model = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "a"))
    target = tmp_path / "model.onnx"
    target.write_bytes(model.SerializeToString())
    return target


def by_session(model: Model, device: Device) -> Plan:
    return model.compile(shape_key(model.header, SHAPES, model.dynamic), SHAPES, device.profile).plan


def by_trace(model: Model, device: Device) -> Plan:
    plan = trace_passes(model, SHAPES, device.profile).plan
    assert plan is not None
    return plan


def by_check(model: Model, device: Device) -> Plan:
    """Compile again what a run that is looked at runs."""
    plans: list[Plan] = []

    class Recompile(Observer):
        def before_plan(self, step: PlanStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
            plans.append(step.recompile(()).plan)

    engine = WgpuEngine(model, device)
    try:
        engine.observe({"x": np.zeros((4, 8), np.float32)}, Recompile())
    finally:
        engine.close()
    return plans[0]


WAYS: list[Callable[[Model, Device], Plan]] = [by_session, by_trace, by_check]


@pytest.mark.parametrize("options", [{}, {"disabled_passes": ["fuse", "layout"]}], ids=["all", "some"])
def test_all_ways_give_one_plan(device, path, options):
    plans = [way(Model(path, cache=False, options=options), device) for way in WAYS]
    assert plans[1:] == plans[:-1]


@pytest.mark.parametrize("way", WAYS)
def test_caps_hold_on_every_way(device, path, way):
    with pytest.raises(LimitError):
        way(Model(path, cache=False, caps=Caps(loop_iterations=2)), device)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("options", "message"),
    [({"fusion": False}, "unknown compiler option 'fusion'"), ({"disabled_passes": ["plan"]}, "cannot be disabled")],
)
def test_bad_options_are_refused_on_every_way(device, path, way, options, message):
    with pytest.raises(InputError, match=message):
        way(Model(path, cache=False, options=options), device)


def test_further_passes_are_disabled_beside_those_of_the_options(device, path):
    model = Model(path, cache=False, options={"disabled_passes": ["fuse"]})
    compilation = model.compilation(device.profile).without(("layout",))
    groups = compile_unit(model.unit(SHAPES), compilation, until=LOWERED).fusion.groups
    assert len(groups) == len(compile_unit(model.unit(SHAPES), model.compilation(device.profile)).fusion.groups)
    assert all(group.output.layout.order == tuple(range(group.output.rank)) for group in groups if not group.constant)


def test_progress_is_told_of_the_compilation(path, device):
    seen: list[str] = []
    model = Model(path, cache=False, progress=lambda what, done, total: seen.append(what))
    by_session(model, device)
    assert seen[0] == "reading the model" and any(what.startswith("compiling for") for what in seen)
    assert model.compilation(device.profile).progress is model.progress
