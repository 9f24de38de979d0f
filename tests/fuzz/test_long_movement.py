"""Graphs of up to 200 nodes that only move elements: views, gathers, pads and joins, with shared subexpressions.

Each is compared node by node with what a trusted runtime makes of it, for the inputs that it was drawn with and for
fresh ones, in poisoned memory.  What the plan takes is bounded by the number of nodes: each of these operators
multiplies the index arithmetic of what it reads, which the price of inlining must bring to an end.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from shaderloom.runtime.plan.plan import Plan

from ..support.running import compile_for, run_plan
from .drawing.examine import compare
from .drawing.forms import Form
from .drawing.graphs import RandomGraph, seeded_graph
from .drawing.oracle import dtype_of, is_float
from .drawing.source import Unsuitable
from .test_random_graphs import profile

MOVING = frozenset(
    {"Reshape", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Expand", "Concat", "Split", "Flatten", "Tile", "Pad"}
    | {"Gather", "GatherElements", "GatherND", "Resize", "DepthToSpace", "SpaceToDepth", "Identity", "Add"}
)


def moves(form: Form) -> bool:
    return not form.domain and form.name in MOVING


def fresh_inputs(graph: RandomGraph) -> dict[str, np.ndarray]:
    """Other floats; integers may be places, and stay."""
    return {
        name: np.asarray(graph.growth.data(dtype_of(array), array.shape, None, None)) if is_float(array) else array
        for name, array in graph.feeds.items()
    }


def check_size(plan: Plan, nodes: int) -> None:
    """Kernels and their text in proportion to the graph, and none of a length that drivers fail on."""
    lengths = [len(kernel.wgsl) for kernel in plan.kernels]
    assert len(list(plan.calls)) <= 4 * nodes + 4
    assert max(lengths, default=0) < 1 << 17
    assert sum(lengths) <= 6000 * (nodes + 2), (sum(lengths), nodes)


@pytest.mark.fuzz
@pytest.mark.parametrize(("examples", "most"), [(3, 25), pytest.param(16, 200, marks=pytest.mark.slow)])
def test_graphs_that_move_elements(examples: int, most: int, device) -> None:
    used: Counter[str] = Counter()

    @profile(examples)
    @given(st.integers(1, most), st.integers(0, 2**32))
    def check(attempts: int, seed: int) -> None:
        graph = seeded_graph(seed, keep=moves, attempts=attempts)
        if graph is None:
            return
        model = graph.model()
        note(onnx.printer.to_text(model))
        plan = compile_for(model, graph.feeds, device.profile)
        check_size(plan, len(model.graph.node))
        feeds, expected = [graph.feeds], [graph.outputs]
        fresh = fresh_inputs(graph)
        try:
            known = graph.growth.replayed(fresh)
            feeds.append(fresh)
            expected.append([known[value.name] for value in graph.outputs])
        except Unsuitable:  # other elements are no fair test
            pass
        for wanted, results in zip(expected, run_plan(device, plan, model, feeds), strict=True):
            compare(wanted, results)
        used.update(node.op_type for node in model.graph.node)

    check()
    assert used
