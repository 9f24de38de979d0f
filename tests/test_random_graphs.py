"""Random graphs on the device against a trusted runtime: 2,000 a run, many more with ``--hypothesis-profile long``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, note, settings

from shaderloom.runtime.errors import ShapeError, UnsupportedError

from .support.cases import run_onnxruntime
from .support.random_graphs import KINDS, Known, RandomGraph, random_graphs
from .support.running import compile_for, run_plan

#: examples of each kind of graph
EXAMPLES = 400 if settings.default.max_examples <= 100 else settings.default.max_examples
profile = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES == 400,
    database=None,
)


def reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    try:
        return run_onnxruntime(model, feeds)
    except Exception:  # onnxruntime lacks some element types, and some combinations only when it runs
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, feeds)]


def compare(
    graph: RandomGraph, outputs: Sequence[Known], actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> None:
    for value, left, right in zip(outputs, actual, expected, strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), value
        if left.dtype.kind in "iu" or (left.dtype.kind == "f" and value.exact and value.name not in graph.inexact):
            np.testing.assert_array_equal(left, right, str(value))
        elif left.dtype.kind == "b":
            np.testing.assert_array_equal(left.view(np.uint8), right.view(np.uint8), str(value))
        else:
            # errors grow along a graph with the magnitude of what flowed through it
            scale = max(other.high for other in graph.values if other.dtype.startswith("float"))
            half = any(other.dtype == "float16" for other in graph.values)
            tolerance = 2e-2 if half else 1e-4
            np.testing.assert_allclose(
                left.astype(np.float64),
                right.astype(np.float64),
                rtol=tolerance,
                atol=tolerance * min(max(scale, 1), 100) / 10,
                err_msg=str(value),
            )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dynamic"])
def test_random_graph(kind: str, device) -> None:
    @profile
    @given(random_graphs(kind))
    def check(drawn: tuple[RandomGraph, list[Known]]) -> None:
        graph, outputs = drawn
        model = graph.model(outputs)
        note(onnx.printer.to_text(model))
        expected = reference(model, graph.feeds)
        plan = compile_for(model, graph.feeds, device.profile)
        compare(graph, outputs, run_plan(device, plan, model, graph.feeds), expected)

    check()


def test_random_graph_of_declared_dimensions(device) -> None:
    """One plan for two sizes of every dimension, where the graph holds for both."""
    compiled = []

    @profile
    @given(random_graphs("dynamic"))
    def check(drawn: tuple[RandomGraph, list[Known]]) -> None:
        graph, outputs = drawn
        dims = graph.named_dims()
        names = {dim for shape in dims.values() for dim in shape if isinstance(dim, str)}
        dynamic = {name: (2, int(name.removeprefix("size")) + 9) for name in names}
        model = graph.model(outputs, dims)
        note(onnx.printer.to_text(model))
        expected = [reference(model, graph.feeds)]
        try:
            plan = compile_for(model, graph.feeds, device.profile, dynamic=dynamic)
        except (ShapeError, UnsupportedError) as error:
            if names and "size" not in str(error):
                raise  # a refusal names the dimension that it cannot leave open
            return
        feeds = [graph.feeds]
        if names and not graph.inexact:
            other = graph.resized(
                {int(name.removeprefix("size")): int(name.removeprefix("size")) + 5 for name in names}
            )
            try:
                expected.append(run_onnxruntime(model, other))
                feeds.append(other)
            except Exception:  # sizes that were equal by chance: onnxruntime refuses the second set
                pass
        compiled.append(len(feeds))
        for actual, right in zip(run_plan(device, plan, model, feeds), expected, strict=True):
            compare(graph, outputs, actual, right)

    check()
    assert len(compiled) > EXAMPLES // 3 and compiled.count(2) > EXAMPLES // 20
