"""Compiling long chains takes time, memory and text in proportion to their length, and results stay right.

Covers: compiler/driver, compiler/fusion/inlining_cost.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from shaderloom.compiler.fusion.inlining_cost import NESTING_LIMIT

from ..support.chains import CHAINS
from ..support.effort import slow
from ..support.patience import PATIENCE
from ..support.running import compile_for, run_plan

INDEX = ["gathers", "gathers of itself", "reshapes", "resizes", "rolls"]
INDEX += [f"pads {mode}" for mode in ("constant", "reflect", "edge", "wrap")]
INDEX += ["shifts"]
#: what differs from those in the operator alone
SLOW_INDEX = ["expands", "splits", "tiles", "constant gathers", "nearest resizes", "element gathers"]
#: no index of these grows, however long the chain is
FREE = ["reversals", "squeezes"]
ELEMENTWISE = [name for name in CHAINS if name not in [*INDEX, *SLOW_INDEX, *FREE, "scores"]]


def _measure(length: int, *names: str) -> list[dict[str, int]]:
    """Compile chains of ``length`` steps in a process with a limit of processor time and 2 GiB of memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(PATIENCE), int(PATIENCE)))
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    command = [sys.executable, "-m", "tests.support.chains", str(length), *names]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (names[len(lines)], done.returncode, done.stderr[-2000:])
    return [json.loads(line) for line in lines]


def _assert_priced(length: int, name: str, measured: dict[str, int]) -> None:
    assert length // NESTING_LIMIT <= measured["calls"] <= 0.4 * length, name
    assert measured["refusals"] >= measured["calls"] - 1, name
    assert measured["longest"] < 1 << 19, name


def test_short_chains() -> None:
    """Without a price 16 steps of some indices take gigabytes; nobody can recurse over 1,500 nodes."""
    for name, measured in zip(INDEX, _measure(100, *INDEX), strict=True):
        _assert_priced(100, name, measured)
    for name, measured in zip(ELEMENTWISE, _measure(1500, *ELEMENTWISE), strict=True):
        assert measured["calls"] <= 12 and measured["longest"] < 1 << 17, name
    assert _measure(60, "scores")[0]["calls"] == 1, "as many nodes between a product and a softmax as are looked at"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*INDEX, *SLOW_INDEX])
def test_index_arithmetic_has_a_price(name: str) -> None:
    (measured,) = _measure(1000, name)
    _assert_priced(1000, name, measured)


@pytest.mark.slow
@pytest.mark.parametrize("name", FREE)
def test_views_that_undo_each_other_take_no_kernel(name: str) -> None:
    assert _measure(1000, name) == [{"calls": 0, "longest": 0, "refusals": 0}]


@pytest.mark.slow
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_ten_thousand_elementwise_nodes(name: str) -> None:
    (measured,) = _measure(10_000, name)
    assert measured["calls"] <= 80
    assert measured["longest"] < 1 << 17


@pytest.mark.parametrize("name", [*INDEX, "Relu", "Mul itself", *slow([*SLOW_INDEX, *FREE])])
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
