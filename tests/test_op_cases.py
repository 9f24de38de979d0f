"""Every case of every operator: specialised, expanded, interpreted, and compared with a trusted runtime."""

from __future__ import annotations

import pytest

from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.interpret import run_graph
from shaderloom.compiler.ir import verify
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.specialise import bind_shapes, specialise

from .support.cases import OperatorCase, all_cases, difference

CASES = list(all_cases())


def test_every_public_operator_has_cases():
    without = [definition.name for definition in registry.all() if definition.domain != "loom" and not definition.cases]
    assert not without


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_case(operator: OperatorCase):
    model = load_model(operator.model())
    feeds = operator.feeds
    bound = bind_shapes(model, {name: array.shape for name, array in feeds.items()})
    graph = specialise(model, bound.shapes)
    verify(graph)
    expand(graph)
    verify(graph)
    actual = run_graph(graph, feeds)
    runtime, expected = operator.reference()
    for position, (left, right) in enumerate(zip(actual, expected, strict=True)):
        error = difference(left, right)
        assert error <= operator.case.tolerance, (
            f"output {position} differs from {runtime} by {error}:\n{left.dtype} {left.shape}\n{left}\n"
            f"{right.dtype} {right.shape}\n{right}\n{graph.text()}"
        )
