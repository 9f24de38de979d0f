"""Commands that repeat their calls: plans written by hand.

Covers: runtime/execution, runtime/plan/plan, shaderloom/plans/instrument.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from shaderloom.inspect.repro import make_script
from shaderloom.plans.instrument import observed
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.requirements import requirements
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.plan.caps import Caps, MemoryAccount
from shaderloom.runtime.plan.errors import InputError, InternalError
from shaderloom.runtime.plan.facts import CallFacts, PlanFacts, StoredLayout, TensorFacts, TensorKind
from shaderloom.runtime.plan.plan import (
    MOST_ITERATIONS,
    Binding,
    ComputePass,
    KernelCall,
    Plan,
    Port,
    Range,
    RepeatedPass,
    Symbol,
)

from ...support.plans import kernel

#: y[t] = y[t - 1] + x[t], and 3 y[t] to the other buffer in a second call
SUM = """
struct Iteration { number: i32, a: i32, b: i32, c: i32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> iteration: Iteration;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x > 0) { return; }
    let t = iteration.number;
    if (t == 0) { y[t] = x[t]; } else { y[t] = y[t - 1] + x[t]; }
}
"""
TRIPLE = """
struct Iteration { number: i32, a: i32, b: i32, c: i32 }
@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> z: array<f32>;
@group(0) @binding(2) var<uniform> iteration: Iteration;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x > 0) { return; }
    z[iteration.number] = 3.0 * y[iteration.number];
}
"""


def sums(low: int = 0, high: int = 400) -> Plan:
    """The running sum of x [n] for a declared n, and three times that: both calls in each iteration."""
    first, second = (kernel(text, "read", "read_write", "iteration") for text in (SUM, TRIPLE))
    size = ["*", 16, ["max", 1, ["//", ["+", "n", 3], 4]]]
    x, y, z = (Range(name, 0, size) for name in ("input:x", "output:y", "output:z"))
    iteration = Range("iteration", 0, 16)
    layout = StoredLayout((0,), (), (), "N")
    tensors = tuple(
        TensorFacts(name, "main", "", "float32", ("n",), layout, kind)
        for name, kind in (("x", TensorKind.INPUT), ("y", TensorKind.OUTPUT), ("z", TensorKind.OUTPUT))
    )
    calls = (
        KernelCall(first.key, (x, y, iteration), (1, 1, 1), label="sum", flops="n"),
        KernelCall(second.key, (y, z, iteration), (1, 1, 1), label="triple"),
    )
    return Plan(
        key="sums",
        inputs=(Port("x", "float32", ("n",)),),
        outputs=(Port("y", "float32", ("n",)), Port("z", "float32", ("n",))),
        symbols=(Symbol("n", low, high),),
        kernels=(first, second),
        sources=(),
        weights=(),
        commands=(RepeatedPass(calls, "n"),),
        arenas=(),
        facts=PlanFacts(tensors, (CallFacts((0, 1), (), None), CallFacts((1, 2), (), None))),
    )


def make_pool(device) -> WeightPool:
    return WeightPool(device, lambda reference: np.zeros(0, np.float32), MemoryAccount(Caps().device_memory))


def draw(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(-9, 9, size).astype(np.float32)


@pytest.mark.parametrize("use_native", [True, False])
def test_each_iteration_sees_the_one_before(each_device, use_native):
    """More and fewer of them from run to run, and none."""
    with Executor(each_device, sums(), make_pool(each_device), use_native=use_native) as executor:
        for size in (5, 300, 1, 0, 300, 17, 17, 17):
            found = executor.run({"x": draw(size)})
            np.testing.assert_array_equal(found["y"], draw(size).cumsum(dtype=np.float32))
            np.testing.assert_array_equal(found["z"], 3 * found["y"])


def test_runs_of_other_lengths_share_their_dispatches(device):
    """Lists of dispatches are kept for many sizes: a long sequence must not cost memory for each."""
    with Executor(device, sums(), make_pool(device)) as executor:
        lists = [executor.measured({"x": draw(size)}, list) for size in (50, 40)]
    assert [len(each) for each in lists] == [100, 80]
    assert all(one is other for one, other in zip(*lists))


def test_a_repeated_call_is_no_script(device):
    with pytest.raises(InputError, match="call 1 is repeated, and a script has one dispatch"):
        make_script(device, sums(), make_pool(device), {"x": draw(3)}, 1, title="sums")


def test_iterations_are_timed_together(device):
    with Executor(device, sums(), make_pool(device)) as executor:
        profile = executor.profile({"x": draw(9)})
    assert [call.label for call in profile.calls] == ["sum", "triple"]
    assert all(call.nanoseconds > 0 for call in profile.calls)


def test_results_of_repeated_calls_are_observed_after_the_last(device):
    plan = observed(sums(), [0, 1])
    with Executor(device, plan, make_pool(device), poison=True) as executor:
        found = executor.run({"x": draw(6)}, ["call 0", "call 1"])
    for name, factor in (("call 0", 1), ("call 1", 3)):
        words = found[name].view(np.float32)[:6]
        np.testing.assert_array_equal(words, factor * draw(6).cumsum(dtype=np.float32))


def test_observing_the_first_call_leaves_the_second_out():
    (command, copies) = observed(sums(), [0]).commands
    assert isinstance(command, RepeatedPass) and [call.label for call in command.calls] == ["sum"]
    assert isinstance(copies, ComputePass) and len(copies.calls) == 1


def test_commands_survive_serialisation():
    plan = sums()
    assert Plan.from_json(plan.to_json()) == plan
    assert [call.label for call in plan.calls] == ["sum", "triple"]


def test_too_many_iterations_are_refused(device):
    plan = dataclasses.replace(sums(), commands=(RepeatedPass(sums().calls, ["*", "n", MOST_ITERATIONS]),))
    with Executor(device, plan, make_pool(device)) as executor:
        with pytest.raises(InternalError, match=r"repeats a pass 131,072 times; at most 65,536 are allowed"):
            executor.run({"x": draw(2)})
        assert executor.run({"x": draw(0)})["y"].shape == (0,)


def test_the_number_of_the_iteration_is_no_storage_buffer():
    assert requirements(sums())["max-storage-buffers-per-shader-stage"] == 2
    assert Binding("iteration", "iteration", "Iteration").is_uniform
