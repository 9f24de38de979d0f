"""Plans that run without bounds checks: those of this process, authentic ones of the cache, and trusted bundles.

Covers: shaderloom/execution/resources, shaderloom/cache, shaderloom/bundles/session.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import shaderloom
from shaderloom.cache import DiskCache
from shaderloom.compiler.planning.plan_builder import Planner
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.device.pipeline_compiler import PipelineCompiler

from ...support.bundles import feeds, small_bundle, small_model


@pytest.fixture
def modules(monkeypatch):
    """Record whether each shader module was created with bounds checks."""
    created: list[bool] = []
    create = Device.create_module

    def record(self, wgsl, *, checked, label, max_bytes):
        created.append(checked)
        return create(self, wgsl, checked=checked, label=label, max_bytes=max_bytes)

    monkeypatch.setattr(Device, "create_module", record)
    return created


def run(cache, device, **options):
    with shaderloom.InferenceSession(
        small_model().SerializeToString(), device=device, cache=cache, bounds_checks=False, **options
    ) as session:
        results = session.run(None, feeds())
        return results, session.report()["from_disk"]


@pytest.mark.parametrize("secret", [bytes(32), None], ids=["authenticated", "without a secret"])
def test_plans_from_the_disk(device, tmp_path, modules, secret):
    first, from_disk = run(DiskCache(tmp_path, secret=secret), device)
    assert not from_disk and modules and not any(modules)
    modules.clear()
    second, from_disk = run(DiskCache(tmp_path, secret=secret), device)
    assert from_disk
    assert not modules or any(modules) == (secret is None), "pipelines of the first session may still be shared"
    if secret is None:
        assert all(modules) and modules
    for one, other in zip(first, second):
        np.testing.assert_array_equal(one, other)


def test_a_forged_plan_never_runs_unchecked(device, tmp_path, modules):
    """An entry with other shaders, well-formed but not authentic, is compiled again and not run."""
    run(DiskCache(tmp_path, secret=None), device)
    entries = list(tmp_path.rglob("*.entry"))
    assert len(entries) == 3, "the header of the model, a plan, and what it was compiled for"
    modules.clear()
    _, from_disk = run(DiskCache(tmp_path, secret=bytes(32)), device)
    assert not from_disk
    assert not any(modules)


@pytest.mark.parametrize("trust", [False, True])
def test_bundles(device, tmp_path, modules, monkeypatch, trust):
    path = small_bundle(tmp_path / "b", software=True)
    # Software devices keep bounds checks anyway, so this one passes for a GPU.
    monkeypatch.setattr(device, "profile", dataclasses.replace(device.profile, kind="discrete"))
    modules.clear()
    with shaderloom.load_bundle(path, device=device, trust=trust) as session:
        session.run(None, feeds())
    assert modules and all(checked is not trust for checked in modules)


def test_kernels_are_compiled_while_the_plan_is_written(device, monkeypatch):
    """Drivers start with a kernel when its text is there, not when the plan is whole."""
    events = []
    add, assemble = PipelineCompiler.add, Planner.assemble
    monkeypatch.setattr(PipelineCompiler, "add", lambda self, kernel: (events.append(kernel.key), add(self, kernel)))
    monkeypatch.setattr(Planner, "assemble", lambda self, *of: (events.append("assemble"), assemble(self, *of))[1])
    with shaderloom.InferenceSession(small_model().SerializeToString(), device=device, cache=False) as session:
        session.run(None, feeds())
        kernels = {call.kernel for call in session._engine.last.compiled.plan.calls}
    before = events[: events.index("assemble")]
    assert kernels and kernels <= set(before)
