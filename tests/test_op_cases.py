"""Every case of every operator: specialised, expanded, interpreted, and compared with a trusted runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest

from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.interpret import run_graph
from shaderloom.compiler.ir import Graph, verify
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.specialise import DynamicDims, bind_shapes, specialise
from shaderloom.runtime.errors import ShapeError, UnsupportedError

from .support.cases import OperatorCase, all_cases, difference

CASES = list(all_cases())


def test_every_public_operator_has_cases():
    without = [definition.name for definition in registry.all() if definition.domain != "loom" and not definition.cases]
    assert not without


def _compile(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], dynamic: DynamicDims | None = None) -> Graph:
    imported = load_model(model)
    graph = specialise(imported, bind_shapes(imported, shapes, dynamic).shapes)
    verify(graph)
    expand(graph)
    verify(graph)
    return graph


def _shapes(operator: OperatorCase) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in operator.feeds.items()}


def _compare(operator: OperatorCase, graph: Graph, actual: Sequence[np.ndarray]) -> None:
    runtime, expected = operator.reference()
    for position, (left, right) in enumerate(zip(actual, expected, strict=True)):
        error = difference(left, right)
        assert error <= operator.case.tolerance, (
            f"output {position} differs from {runtime} by {error}:\n{left.dtype} {left.shape}\n{left}\n"
            f"{right.dtype} {right.shape}\n{right}\n{graph.text()}"
        )


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_case(operator: OperatorCase):
    graph = _compile(operator.model(), _shapes(operator))
    _compare(operator, graph, run_graph(graph, operator.feeds))


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_case_of_constants(operator: OperatorCase):
    """With constant operands, operators that fold leave a constant, and the others compute the same as before."""
    graph = _compile(operator.model(constant=True), {})
    folds = operator.definition.fold is not None or operator.definition.fold_shapes is not None
    if folds:
        assert not [node for node in graph.nodes if node.op == operator.definition.name]
    _compare(operator, graph, run_graph(graph, {}))


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_case_with_dynamic_dimensions(operator: OperatorCase):
    """Sizes of inputs declared dynamic (equal sizes as one dimension) give the same elements.

    Where an operator has to know a size, axis 1 (channels) stays a number; it may still refuse, naming the dimension.
    """
    refusal = None
    for fixed in ((), (1,)):
        dims = {
            name: [size if size < 2 or axis in fixed else f"size{size}" for axis, size in enumerate(array.shape)]
            for name, array in operator.feeds.items()
        }
        names = {dim for shape in dims.values() for dim in shape if isinstance(dim, str)}
        dynamic = {name: (2, int(name.removeprefix("size")) + 9) for name in names}
        if not dynamic:
            continue
        try:
            graph = _compile(operator.model(dims), _shapes(operator), dynamic)
        except (ShapeError, UnsupportedError) as error:
            refusal = error
            continue
        _compare(operator, graph, run_graph(graph, operator.feeds))
        return
    if refusal is None:
        pytest.skip("no input has a size above 1")
    assert "size" in str(refusal)
    pytest.skip(str(refusal))
