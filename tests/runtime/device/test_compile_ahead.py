"""Kernels compiled by twins of a device: who takes part, what is left for the device, and that results stay."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

from shaderloom.runtime.device import compile_ahead
from shaderloom.runtime.device.compile_ahead import CompileAhead, threads_for
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.plan.caps import MemoryAccount
from shaderloom.runtime.plan.errors import DeviceError

from ...support.plans import DOUBLE, dynamic_plan, kernel, two_step_plan

BIAS = np.arange(10, dtype=np.float32)
X = np.random.default_rng(2).random(100, np.float32)


@pytest.fixture
def three_threads(monkeypatch):
    """Two twins beside every device, however short the kernels."""
    monkeypatch.setattr(compile_ahead, "threads_for", lambda device, kernels: 3)


def long_kernels(count: int = 3):
    text = f"{DOUBLE}\n// {'x' * compile_ahead._WORTH_BYTES}"
    return [kernel(f"{text} {number}") for number in range(count)]


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.delenv("MESA_SHADER_CACHE_DISABLE", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)


def test_only_a_driver_that_compiles_late_gets_twins(each_device, four_cores):
    wanted = 3 if "llvmpipe" in each_device.name.lower() else 1
    assert threads_for(each_device, long_kernels()) == wanted


def test_no_twins_where_they_would_not_pay(each_device, four_cores, monkeypatch):
    assert threads_for(each_device, [kernel(DOUBLE)] * 3) == 1, "short kernels"
    assert threads_for(each_device, []) <= 1
    monkeypatch.setenv("MESA_SHADER_CACHE_DISABLE", "true")
    assert threads_for(each_device, long_kernels()) == 1, "nothing would reach the device"
    monkeypatch.delenv("MESA_SHADER_CACHE_DISABLE")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    assert threads_for(each_device, long_kernels()) == 1, "one core"


def test_every_kernel_is_compiled_by_somebody(each_device, three_threads, monkeypatch):
    compiled = []
    compile_one = CompileAhead._compile
    monkeypatch.setattr(
        CompileAhead,
        "_compile",
        lambda self, device, item, buffers: (compile_one(self, device, item, buffers), compiled.append(item.id)),
    )
    plan = two_step_plan()
    kernels = [dataclasses.replace(item, wgsl=f"{item.wgsl}\n// {n}") for item in plan.kernels for n in range(10)]
    ahead = CompileAhead(each_device, kernels, checked=True, max_wgsl_bytes=1 << 20)
    ahead.start()
    ahead.finish()
    assert sorted(compiled) == sorted(item.id for item in kernels)
    assert not ahead._threads
    assert ahead.by_twins <= len(kernels)


@pytest.mark.parametrize("make", [two_step_plan, dynamic_plan])
def test_results_stay(each_device, three_threads, make):
    def outputs():
        pool = WeightPool(each_device, lambda reference: BIAS, MemoryAccount(1 << 30))
        with Executor(each_device, make(), pool, poison=True) as executor:
            feeds = {port.name: X if make is two_step_plan else X[:99].reshape(-1, 3) for port in executor.plan.inputs}
            result = executor.run(feeds)
        pool.close()
        return result

    with pytest.MonkeyPatch.context() as alone:
        alone.setattr(compile_ahead, "threads_for", lambda device, kernels: 1)
        expected = outputs()
    found = outputs()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.isfinite(value).all()
        np.testing.assert_array_equal(found[name], value)


def test_a_device_without_a_twin_compiles_alone(each_device, three_threads, monkeypatch):
    def refuse(self):
        raise DeviceError("no second device")

    monkeypatch.setattr(type(each_device), "twin", refuse)
    ahead = CompileAhead(each_device, two_step_plan().kernels, checked=True, max_wgsl_bytes=1 << 20)
    ahead.start()
    ahead.finish()
    assert ahead.by_twins == 0 and not ahead._left


def test_a_kernel_that_does_not_compile_is_the_device_s_error(each_device, three_threads):
    plan = two_step_plan()
    broken = dataclasses.replace(plan, kernels=tuple(dataclasses.replace(k, wgsl="fn main(") for k in plan.kernels))
    pool = WeightPool(each_device, lambda reference: BIAS, MemoryAccount(1 << 30))
    with pytest.raises(DeviceError, match="compiling the shader"):
        Executor(each_device, broken, pool)
    pool.close()


def test_stopping_leaves_the_rest(each_device, three_threads):
    first = two_step_plan().kernels[0]
    kernels = [dataclasses.replace(first, wgsl=f"{first.wgsl}\n// stop {n}") for n in range(50)]
    ahead = CompileAhead(each_device, kernels, checked=True, max_wgsl_bytes=1 << 20)
    ahead.start()
    ahead.stop()
    assert not ahead._threads and not ahead._left
    ahead.finish()
    assert ahead.by_twins < len(kernels)


def test_a_twin_has_the_same_features_and_limits(each_device):
    twin = each_device.twin()
    try:
        assert twin.gpu is not each_device.gpu
        assert set(twin.gpu.features) == set(each_device.gpu.features)
        assert all(twin.gpu.limits[name] == each_device.gpu.limits[name] for name in each_device.profile.limits)
    finally:
        twin.gpu.destroy()
