"""Compiling long chains takes time, memory and text in proportion to their length, and results stay right.

Covers: compiler/driver, compiler/fusion/inlining_cost.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from shaderloom.compiler.fusion.inlining_cost import NESTING_LIMIT

from ..support.chains import CHAINS
from ..support.running import compile_for, run_plan

INDEX = ["gathers", "gathers of itself", "reshapes", "resizes", "rolls"]
INDEX += [f"pads {mode}" for mode in ("constant", "reflect", "edge", "wrap")]
INDEX += ["shifts"]
#: what differs from those in the operator alone
SLOW_INDEX = ["expands", "splits", "tiles", "constant gathers", "nearest resizes", "element gathers"]
#: no index of these grows, however long the chain is
FREE = ["reversals", "squeezes"]
ELEMENTWISE = [name for name in CHAINS if name not in [*INDEX, *SLOW_INDEX, *FREE, "scores"]]


def _slow(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


def _measure(name: str, length: int, seconds: int) -> dict[str, int]:
    """Compile in a process with so much processor time and 2 GiB of memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    command = [sys.executable, "-m", "tests.support.chains", name, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    measured: dict[str, int] = json.loads(done.stdout)
    return measured


@pytest.mark.parametrize("name", [*INDEX, *_slow(SLOW_INDEX)])
def test_index_arithmetic_has_a_price(name: str) -> None:
    """A thousand steps; without a price, 16 of some of them take gigabytes."""
    measured = _measure(name, 1000, 20)
    assert 1000 // NESTING_LIMIT <= measured["calls"] <= 400
    assert measured["refusals"] >= measured["calls"] - 1
    assert measured["longest"] < 1 << 19


@pytest.mark.parametrize("name", _slow(FREE))
def test_views_that_undo_each_other_take_no_kernel(name: str) -> None:
    assert _measure(name, 1000, 20) == {"calls": 0, "longest": 0, "refusals": 0}


def test_scores_that_are_doubled() -> None:
    """As many nodes between a product and a softmax as are looked at."""
    assert _measure("scores", 60, 20)["calls"] == 1


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_ten_thousand_elementwise_nodes(name: str) -> None:
    measured = _measure(name, 10_000, 20)
    assert measured["calls"] <= 80
    assert measured["longest"] < 1 << 17


@pytest.mark.parametrize("name", [*INDEX, "Relu", "Mul itself", *_slow([*SLOW_INDEX, *FREE])])
def test_results_of_chains(name: str, device) -> None:
    """As many steps as take several kernels."""
    model = CHAINS[name](40)
    generator = np.random.default_rng(1)
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        integers = name == "gathers of itself" or value.name == "indices"
        feeds[value.name] = (
            generator.permutation(16) if integers else generator.uniform(-1, 1, shape).astype(np.float32)
        )
    if name == "gathers of itself":
        feeds = {"x": feeds["x"].astype(np.int32)}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    plan = compile_for(model, feeds, device.profile)
    (result,) = run_plan(device, plan, model, feeds)
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-6)
