"""Evaluating a random graph with the project, in one of several ways, and comparing it with what the oracle knows.

A *variant* is a way to run the same model: with a part of the compiler off, or on the second adapter.  All must agree
with the reference.  The numpy interpreter runs the lowered graph (import, specialisation, expansion and rewriting are
those of a plan); fusion, layouts, memory and WGSL are only in what a device runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from shaderloom import InferenceSession
from shaderloom.compiler.compilation import PassReport
from shaderloom.compiler.ir.graph import Graph
from shaderloom.compiler.passes.pipeline import PIPELINE
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.plan.errors import NotKnownError

from ...support.passes import lower_model
from ...support.running import compile_for, run_plan
from .graphs import RandomGraph
from .oracle import Known, bits_of, dtype_of, is_float

Results = list[np.ndarray]

#: passes whose result the interpreter sees, and those that only a device sees
_SEEN = [name for name in PIPELINE.optional if PIPELINE.position(name) < PIPELINE.position("operand-limit")]
_UNSEEN = [name for name in PIPELINE.optional if name not in _SEEN]
#: variants that change what the interpreter sees as well: name -> options of the compiler
REWRITING: dict[str, dict[str, Any]] = {
    "as it is": {},
    **{f"{name} off": {"disabled_passes": (name,)} for name in _SEEN},
    "every rewrite off": {"disabled_passes": tuple(_SEEN)},
}
#: variants that only a device sees
LOWERING: dict[str, dict[str, Any]] = {
    **{f"{name} off": {"disabled_passes": (name,)} for name in _UNSEEN},
    "every pass off": {"disabled_passes": PIPELINE.optional},
}
VARIANTS = {**REWRITING, **LOWERING}


def interpret(graph: RandomGraph, options: dict[str, Any]) -> Results | None:
    """Results of the numpy interpreter; None for a graph that must be computed in stages."""
    results: Results = []

    def run(report: PassReport, lowered: Graph) -> None:
        """Run what the last pass before fusion left: later ones give values the types that they have in registers."""
        if report.name == "operand-limit":
            results.extend(run_graph(lowered, graph.feeds))

    try:
        lower_model(graph.model(), shapes_of(graph), observer=run, **options)
    except NotKnownError:
        return None
    return results


def run_on_device(graph: RandomGraph, device: Device, options: dict[str, Any], kind: str = "") -> Results:
    """Results of a device: of one plan with poisoned memory, with the kernels for its own or another ``kind`` of
    devices, or of a session where stages are needed."""
    model = graph.model()
    try:
        plan = compile_for(model, graph.feeds, replace(device.profile, kind=kind or device.profile.kind), **options)
    except NotKnownError:
        return run_session(model, graph.feeds, device)
    return run_plan(device, plan, model, graph.feeds)


def run_session(model: onnx.ModelProto, feeds: dict[str, np.ndarray], device: Device) -> Results:
    return run_program(model, [feeds], device)[0]


def run_program(
    model: onnx.ModelProto, feeds: Sequence[dict[str, np.ndarray]], device: Device, **options: Any
) -> list[Results]:
    """Results of one session for each set of inputs in turn."""
    with InferenceSession(model, device=device, providers=["wgpu"], cache=False, **options) as session:
        return [[np.asarray(result) for result in session.run(None, each)] for each in feeds]


def shapes_of(graph: RandomGraph) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in graph.feeds.items()}


def compare(outputs: Sequence[Known], results: Sequence[np.ndarray]) -> None:
    """Types and shapes are equal, and elements too but for what rounding may do to floats."""
    for value, result in zip(outputs, results, strict=True):
        expected = value.array
        found, wanted = ((dtype_of(each), each.shape) for each in (result, expected))
        assert found == wanted, f"{value.name}: {found}, {wanted} expected"
        if not is_float(expected):
            np.testing.assert_array_equal(bits_of(result), bits_of(expected), value.name)
            continue
        left, right = result.astype(np.float64), expected.astype(np.float64)
        assert np.isfinite(left).all(), value.name
        scale = max(np.abs(right).max(initial=0.0), 1e-6)
        error = np.abs(left - right).max(initial=0.0) / scale
        assert error <= value.tolerance, f"{value.name}: error {error:.2e}, tolerance {value.tolerance:.0e}"
