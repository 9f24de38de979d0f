"""Segments of a model on the host: what they read, the types of their values, and their results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom.cpu.segment import CpuSegment, SegmentSource, renamed, type_of
from shaderloom.runtime.plan.errors import InputError, UnsupportedError

BRANCH = """g (double[n] x, bool c, double[n] z) => (double[n] y) { a = Mul(x, w)
    y = If(c) <then_branch = t () => (double[n] p) { p = Add(a, z) },
               else_branch = e () => (double[n] q) { q = Neg(x) }> }"""
W = np.array([0.1, 0.2, 0.3])
X, Z = np.array([1.0, 2.0, 3.0]), np.array([1e-12, -1e-12, 0.5])


def source(text: str, opset: int = 18) -> SegmentSource:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>' + text)
    outputs = tuple(value.name for value in model.graph.output)
    weights = {"w": numpy_helper.from_array(W, "w")}
    return SegmentSource(list(model.graph.node), weights, outputs, list(model.opset_import), model.ir_version)


def test_a_segment_reads_what_its_nested_graphs_read():
    assert source(BRANCH).reads() == ["x", "w", "c", "z"]
    assert source(BRANCH).single(0).outputs == ("a",)
    assert source(BRANCH).single(1).reads() == ["c", "a", "z", "x"]


@pytest.mark.parametrize(("taken", "expected"), [(True, X * W + Z), (False, -X)])
def test_results_are_those_of_float64(taken, expected):
    segment = CpuSegment(source(BRANCH))
    values = {"x": X, "z": Z, "c": np.array(taken)}
    found = segment.run(values, ["y", "x", "w"])
    np.testing.assert_array_equal(found["y"], expected)
    np.testing.assert_array_equal(found["x"], X, "an input may be an output")
    np.testing.assert_array_equal(found["w"], W, "and an initializer")


def test_each_combination_of_types_has_its_own_session():
    segment = CpuSegment(source("g (double[n] x) => (double[n] y) { y = Neg(x) }"))
    for values in (np.array([1.0, -2.0]), np.array([3], np.int64), np.array([[1.5]], np.float32)):
        (found,) = segment.run({"x": values}).values()
        np.testing.assert_array_equal(found, -values)
        assert found.dtype == values.dtype


def test_types_that_onnxruntime_takes_no_arrays_of_go_to_the_reference():
    values = np.array([0.5, -1.5], ml_dtypes.bfloat16)
    segment = CpuSegment(source("g (bfloat16[n] x) => (float[n] y) { y = Cast<to = 1>(x) }"))
    np.testing.assert_array_equal(segment.run({"x": values})["y"], np.array([0.5, -1.5], np.float32))
    assert segment.implementations == ["onnx.reference"]


def test_a_run_that_fails_says_what_onnxruntime_said():
    with pytest.raises(InputError, match="onnxruntime refused the run"):
        CpuSegment(source("g (double[n] x, double[m] z) => (double[k] y) { y = Add(x, z) }")).run({"x": X, "z": X[:2]})


def test_types_of_values():
    floats = type_of(np.zeros((2, 3), np.float32)).tensor_type
    assert (floats.elem_type, len(floats.shape.dim)) == (TensorProto.FLOAT, 2)
    assert type_of(np.array(["a"], object)).tensor_type.elem_type == TensorProto.STRING
    inner = type_of([np.zeros(2, np.int64), np.zeros((1, 1), np.int64)]).sequence_type.elem_type.tensor_type
    assert (inner.elem_type, inner.HasField("shape")) == (TensorProto.INT64, False)
    empty = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.DOUBLE, None))
    assert type_of([], empty) == empty
    with pytest.raises(UnsupportedError, match="list"):
        type_of([])


def test_renaming_stops_at_names_of_nested_graphs():
    (_, branch) = source(BRANCH).nodes
    copy = renamed(branch, {"c": "c2", "a": "a2", "p": "p2", "y": "y2"})
    assert (list(copy.input), list(copy.output)) == (["c2"], ["y2"])
    (then,) = (attribute.g for attribute in copy.attribute if attribute.name == "then_branch")
    assert list(then.node[0].input) == ["a2", "z"]
    assert [value.name for value in then.output] == ["p"], "the graph's own name stays"
    assert list(branch.input) == ["c"]
