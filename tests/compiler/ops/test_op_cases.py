"""Every case of every operator: specialised, expanded, interpreted, and compared with a trusted runtime.

Covers: compiler/ops/onnx, compiler/ops/microsoft, compiler/ops/ml, compiler/ops/internal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import defs

from shaderloom.compiler.binding.shape_binding import DynamicDims, bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.graph import Graph, verify
from shaderloom.compiler.ops.registry import OpDef, registry
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.runtime.plan.errors import ShapeError, UnsupportedError

from ...op_cases import FOLDERS, case_names, cases_of
from ...support.cases import OperatorCase, all_cases, difference, run_onnxruntime

CASES = all_cases()


def test_every_public_operator_has_cases():
    public = [definition for definition in registry.all() if definition.domain != "loom"]
    assert not [definition.name for definition in public if not cases_of(definition)]
    for domain in FOLDERS:
        assert case_names(domain) == {definition.name for definition in public if definition.domain == domain}


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
    runtime, expected = operator.reference
    for position, (left, right) in enumerate(zip(actual, expected, strict=True)):
        error = difference(left, right)
        assert error <= operator.case.tolerance, (
            f"output {position} differs from {runtime} by {error}:\n{left.dtype} {left.shape}\n{left}\n"
            f"{right.dtype} {right.shape}\n{right}\n{graph}"
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


def _older_versions() -> Iterator[tuple[OpDef, int]]:
    """Operators with the opsets, from 7 on, that select each of the versions of their schema."""
    history: dict[str, set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            history.setdefault(schema.name, set()).add(max(schema.since_version, 7))
    for definition in registry.all():
        if not definition.domain:
            yield from ((definition, opset) for opset in sorted(history.get(definition.name, ())))


def _is_valid(model: onnx.ModelProto, opset: int) -> bool:
    """Whether the node's attributes and operands fit its schema at ``opset``."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 8, {"": opset}
    try:
        onnx.checker.check_node(model.graph.node[0], context)
    except onnx.checker.ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("definition", "opset"), [pytest.param(*pair, id=f"{pair[0].name}-{pair[1]}") for pair in _older_versions()]
)
def test_every_version_of_the_operator(definition: OpDef, opset: int):
    """Cases that are valid in an older opset give what onnxruntime gives for that opset."""
    if (definition.name, opset) == ("Split", 18):
        pytest.skip("onnxruntime takes a Split without sizes and parts, the specification does not")
    if definition.name == "Bernoulli":
        pytest.skip("onnxruntime draws 1 with the probability of 0: it runs the function body, not the text")
    compared = 0
    for number, case in enumerate(cases_of(definition)):
        if case.outputs > 1 and definition.name == "Dropout" and opset < 12:
            continue  # the mask was left open
        operator = OperatorCase(definition, replace(case, opset=opset), number)
        model = operator.model()
        if not _is_valid(model, opset):
            continue
        try:
            expected = run_onnxruntime(model, operator.feeds)
        except NotImplementedError:
            continue
        actual = run_graph(_compile(model, _shapes(operator)), operator.feeds)
        errors = [difference(left, right) for left, right in zip(actual, expected, strict=True)]
        assert max(errors) <= case.tolerance, f"{operator.name}: {errors}"
        compared += 1
    if not compared:
        pytest.skip("onnxruntime runs none of the cases at this opset")


@pytest.mark.parametrize(("opset", "mask"), [(8, np.float32), (10, np.bool_), (13, np.bool_)])
def test_the_mask_of_a_dropout_has_the_type_of_its_version(opset: int, mask: type) -> None:
    node = onnx.helper.make_node("Dropout", ["x"], ["y", "mask"])
    ports = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])]
    results = [onnx.ValueInfoProto(name=name) for name in ("y", "mask")]
    graph = onnx.helper.make_graph([node], "g", ports, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    imported = load_model(model)
    lowered = specialise(imported, bind_shapes(imported, {"x": (3,)}).shapes)
    expand(lowered)
    _, found = run_graph(lowered, {"x": np.zeros(3, np.float32)})
    assert found.dtype == mask and found.all()
