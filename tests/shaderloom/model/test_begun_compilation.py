"""A compilation that begins while the device is being opened gives the plan that it gives otherwise, or is dropped.

Covers: shaderloom/model/model, compiler/driver, shaderloom/session/opening_device.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import shaderloom
from shaderloom.compiler.passes.pipeline import PIPELINE
from shaderloom.model.model import Model
from shaderloom.runtime.device import device as device_module
from shaderloom.runtime.device import opening
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile
from shaderloom.runtime.plan.errors import ShaderloomError

GPU = replace(WEB, kind="discrete", driver="a card 1.0", adapter="a card")


def convolution(sizes: str = "1, 3, 16, 16") -> bytes:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{sizes}] x) => (float[N, M, H, W] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w)  r = Relu (c)  d = Conv (r, v)  y = Sigmoid (d)
        }}"""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (8, 3, 3, 3)), ("v", (8, 8, 1, 1))):
        weight = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model.SerializeToString()


def compiled(model: Model, profile: DeviceProfile = GPU) -> Any:
    shapes = model.default_shapes() or {"x": (1, 3, 16, 16)}
    return model.compile(model.key(shapes), shapes, profile).plan.to_json()


def model_passes(model: Model) -> list[str]:
    """Return the names of the passes that have run for ``model``, which grows."""
    passes: list[str] = []
    compilation = model.compilation

    def observed(*arguments: Any, **options: Any) -> Any:
        return replace(compilation(*arguments, **options), observer=lambda report, _: passes.append(report.name))

    model.compilation = observed  # type: ignore[method-assign]
    return passes


@pytest.mark.parametrize("count", [0, 1, 2, 5, 12, PIPELINE.names.index("shaders"), 1000])
def test_the_plan_is_that_of_a_whole_compilation(count: int) -> None:
    expected = compiled(Model(convolution(), cache=False, dynamic="auto"))
    model = Model(convolution(), cache=False, dynamic="auto")
    passes = model_passes(model)
    model.begin(lambda: GPU, lambda: len(passes) >= count)
    assert model._begun is not None
    assert model._begun[1].start == PIPELINE.names[min(count, len(PIPELINE.names) - 1)]
    assert compiled(model) == expected
    assert model._begun is None
    assert compiled(model) == expected, "and again, from the start"


def kernels_of(count: int) -> tuple[list[str], list[str], list[str]]:
    """Return the kernels given to a driver that is there at the question ``count``: while begun, later, and all."""
    model = Model(convolution(), cache=False, dynamic="auto")
    turns = itertools.count()
    early: list[str] = []
    later: list[str] = []
    model.begin(lambda: GPU, lambda: next(turns) >= count, lambda kernel: early.append(kernel.key))
    shapes = model.default_shapes()
    assert shapes is not None
    plan = model.compile(model.key(shapes), shapes, GPU, lambda kernel: later.append(kernel.key)).plan
    return early, later, [kernel.key for kernel in plan.kernels]


def test_each_kernel_goes_once_to_a_driver_that_is_there() -> None:
    lengths = set()
    for count in range(PIPELINE.names.index("kernels"), len(PIPELINE.names) + 4):  # asked by each pass and each kernel
        early, later, kernels = kernels_of(count)
        assert sorted(early + later) == sorted(kernels)
        lengths.add(len(early))
    assert lengths == {0, 1, 3}, "a transform of weights, or all three"


def test_what_is_begun_for_another_device_or_with_other_options_is_dropped() -> None:
    shapes = {"x": (1, 3, 16, 16)}
    other = replace(GPU, limits={**GPU.limits, "max-compute-invocations-per-workgroup": 128})
    model = Model(convolution(), cache=False, dynamic="auto")
    model.begin(lambda: other, lambda: False)
    assert compiled(model) == compiled(Model(convolution(), cache=False, dynamic="auto"))
    plain = Model(convolution(), cache=False, options={"disabled_passes": ("winograd", "fuse")})
    model = Model(convolution(), cache=False, dynamic="auto")
    model.begin(lambda: GPU, lambda: False)
    model.options = plain.options
    assert compiled(model) == compiled(plain)
    assert len(model.compile(model.key(shapes), shapes, GPU).plan.calls) > 2


def test_models_of_open_sizes_and_those_on_the_disk_are_not_begun(tmp_path: Path) -> None:
    asked: list[int] = []
    open_sizes = Model(convolution("N, 3, H, 16"), cache=False, dynamic="auto")
    open_sizes.begin(lambda: asked.append(1) or GPU, lambda: False)
    first = Model(convolution(), cache=tmp_path, dynamic="auto")
    compiled(first)
    first.close()
    again = Model(convolution(), cache=tmp_path, dynamic="auto")
    again.begin(lambda: asked.append(2) or GPU, lambda: False)
    assert asked == []
    without = Model(convolution(), cache=False, dynamic="auto")
    without.begin(lambda: None, lambda: False)
    assert without._begun is None


def test_what_is_refused_is_refused_by_the_first_run() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, int64[1] s) => (float[N] y) { y = Expand (x, s) }'
    model = Model(onnx.parser.parse_model(text).SerializeToString(), cache=False, dynamic="auto")
    model.begin(lambda: GPU, lambda: False)
    shapes = model.default_shapes()
    assert shapes is not None
    with pytest.raises(ShaderloomError):
        model.compile(model.key(shapes), shapes, GPU)


@pytest.mark.parametrize("changed", [False, True])
def test_a_session_begins_while_its_device_is_made(changed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    with shaderloom.InferenceSession(convolution(), cache=False) as session:
        (expected,) = session.run(None, {"x": x})
    begun: list[Any] = []
    begin, profile_of = Model.begin, device_module._profile

    def note(model: Model, *arguments: Any) -> None:
        begin(model, *arguments)
        begun.append(model._begun)

    def profile(gpu: Any, *arguments: Any) -> DeviceProfile:
        profile = replace(profile_of(gpu, *arguments), kind="discrete")
        return replace(profile, driver="another") if changed and gpu is None else profile

    monkeypatch.setattr(Model, "begin", note)
    monkeypatch.setattr(opening, "_shared", {})  # another device is requested
    monkeypatch.setattr(device_module, "_is_measured", lambda adapter, features: False)
    monkeypatch.setattr(device_module, "_profile", profile)
    with shaderloom.InferenceSession(convolution(), cache=False) as session:
        (result,) = session.run(None, {"x": x})
        assert session.device.profile.driver != "another"
    assert begun[0] is not None
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
