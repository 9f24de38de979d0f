"""Binding shapes: what is checked, what folds, what stays symbolic, and what is never looked at."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.constants import InlineSource
from shaderloom.compiler.ir.graph import Graph, verify
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.options import Limits
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.compiler.rewriting.builder import GraphBuilder
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.dimensions import dimension
from shaderloom.runtime.plan.dtypes import BOOL, FLOAT32, INT64
from shaderloom.runtime.plan.errors import (
    InputError,
    LimitError,
    NotKnownError,
    Origin,
    ShapeError,
    UnsupportedError,
)

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def _model(text: str, **initializers):
    proto = parser.parse_model(f"{HEADER}\n{text}")
    for name, array in initializers.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return load_model(proto)


def _specialise(text: str, feeds, dynamic=None, limits=None, **initializers) -> Graph:
    model = _model(text, **initializers)
    graph = specialise(model, bind_shapes(model, feeds, dynamic).shapes, limits or Limits())
    verify(graph)
    return graph


def _ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


# -- binding -----------------------------------------------------------------------------------------------------------

TWO = "g (float[N, M] a, float[N, 4] b) => (float[N, M] y) { y = Abs(a) z = Abs(b) }"


def test_names_are_bound_to_sizes():
    bound = bind_shapes(_model(TWO), {"a": (2, 3), "b": (2, 4)})
    assert bound.shapes == {"a": (2, 3), "b": (2, 4)}
    assert bound.sizes == {"N": 2, "M": 3}
    assert bound.symbols == ()


def test_declared_dynamic_names_stay_symbolic():
    bound = bind_shapes(_model(TWO), {"a": (2, 3), "b": (2, 4)}, {"N": (1, 8)})
    n = dimension("N", 1, 8)
    assert bound.shapes == {"a": (n, 3), "b": (n, 4)}
    assert [(symbol.name, symbol.low, symbol.high) for symbol in bound.symbols] == [("N", 1, 8)]
    assert bound.sizes["N"] == 2


def test_a_range_of_one_size_is_a_number():
    bound = bind_shapes(_model(TWO), {"a": (2, 3), "b": (2, 4)}, {"N": (2, 2)})
    assert bound.shapes["a"] == (2, 3)
    assert bound.symbols == ()


@pytest.mark.parametrize(
    ("feeds", "dynamic", "match"),
    [
        ({"a": (2, 3)}, {}, "missing"),
        ({"a": (2, 3), "b": (2, 4), "c": (1,)}, {}, "no input 'c'"),
        ({"a": (2, 3, 1), "b": (2, 4)}, {}, "rank 2 is expected, not 3"),
        ({"a": (2, 3), "b": (2, 5)}, {}, "size 4 is expected at axis 1, not 5"),
        ({"a": (2, 3), "b": (3, 4)}, {}, "dimension 'N' is 3 at axis 0, but 2 elsewhere"),
        ({"a": (2, -3), "b": (2, 4)}, {}, "negative"),
        ({"a": (2, 3), "b": (2, 4)}, {"K": (1, 2)}, "no input has a dimension 'K'"),
        ({"a": (2, 3), "b": (2, 4)}, {"N": (4, 2)}, "not valid"),
        ({"a": (2, 3), "b": (2, 4)}, {"N": (3, 9)}, "outside the declared range 3 to 9"),
    ],
)
def test_wrong_feeds(feeds, dynamic, match):
    with pytest.raises(InputError, match=match):
        bind_shapes(_model(TWO), feeds, dynamic)


def test_a_question_mark_is_no_name():
    proto = parser.parse_model(f"{HEADER}\ng (float[H, W] x) => (float[H, W] y) {{ y = Abs(x) }}")
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = "?"
    assert bind_shapes(load_model(proto), {"x": (2, 3)}).shapes["x"] == (2, 3)


def test_a_default_that_is_fed_becomes_an_input():
    text = "g (float[3] x, float[3] w) => (float[3] y) { y = Add(x, w) }"
    graph = _specialise(text, {"x": (3,)}, w=np.ones(3, np.float32))
    assert [value.name for value in graph.inputs] == ["x"]
    assert [value.name for value in graph.constants] == ["w"]
    graph = _specialise(text, {"x": (3,), "w": (3,)}, w=np.ones(3, np.float32))
    assert [value.name for value in graph.inputs] == ["x", "w"]
    assert not graph.constants


# -- folding -----------------------------------------------------------------------------------------------------------

#: flattens all but the last axis, as exporters spell it
FLATTEN = """g (float[A, B, 4] x) => (float[K, 4] y) {
    s = Shape(x)
    zero = Constant <value_ints = [0]> ()   one = Constant <value_ints = [1]> ()
    a = Gather <axis = 0> (s, zero)         b = Gather <axis = 0> (s, one)
    n = Mul(a, b)
    four = Constant <value_ints = [4]> ()
    shape = Concat <axis = 0> (n, four)
    y = Reshape(x, shape)
}"""


def test_shape_arithmetic_folds():
    graph = _specialise(FLATTEN, {"x": (2, 3, 4)})
    assert _ops(graph) == ["Reshape"]
    assert graph.outputs[0].shape == (6, 4)
    assert graph.nodes[0].inputs[1].static_value.tolist() == [6, 4]
    assert graph.nodes[0].inputs[1].static_value.dtype == np.int64


def test_symbolic_shape_arithmetic_folds_to_indices():
    graph = _specialise(FLATTEN, {"x": (2, 3, 4)}, {"A": (1, 8), "B": (1, 8)})
    a, b = dimension("A", 1, 8), dimension("B", 1, 8)
    assert graph.outputs[0].shape == (ix.multiply(a, b), 4)
    assert _ops(graph) == ["Dimensions", "Reshape"]
    assert graph.nodes[0].attributes.elements == (ix.multiply(a, b), 4)


def test_a_dimension_used_as_data_is_a_node():
    text = """g (float[N] x) => (float[N] y) {
        s = Shape(x)  f = Cast <to = 1> (s)  y = Div(x, f)
    }"""
    graph = _specialise(text, {"x": (5,)}, {"N": (1, 9)})
    assert _ops(graph) == ["Dimensions", "Cast", "Div"]
    (found,) = run_graph(graph, {"x": np.ones(5, np.float32)}, {"N": 5})
    np.testing.assert_allclose(found, np.full(5, 0.2), rtol=1e-6)
    concrete = _specialise(text, {"x": (5,)})
    assert _ops(concrete) == ["Div"]
    assert concrete.nodes[0].inputs[1].static_value.tolist() == [5.0]


def test_a_symbolic_shape_as_an_output():
    graph = _specialise(
        "g (float[N, 7, M] x) => (int64[3] y) { y = Shape(x) }", {"x": (2, 7, 3)}, {"N": (1, 9), "M": (0, 9)}
    )
    assert _ops(graph) == ["Dimensions"]
    for sizes in ({"N": 2, "M": 3}, {"N": 9, "M": 0}):
        (found,) = run_graph(graph, {"x": np.ones((sizes["N"], 7, sizes["M"]), np.float32)}, sizes)
        assert found.tolist() == [sizes["N"], 7, sizes["M"]]
        assert found.dtype == np.int64


def test_small_constants_fold_and_large_ones_stay():
    text = "g (float[1] x) => (float[N] y) { t = Mul(w, w)  y = Add(x, t) }"
    small = _specialise(text, {"x": (1,)}, w=np.full(8, 3, np.float32))
    assert _ops(small) == ["Add"]
    assert small.nodes[0].inputs[1].static_value.tolist() == [9.0] * 8
    assert small.nodes[0].inputs[1].constant.read().dtype == np.float32
    large = _specialise(text, {"x": (1,)}, w=np.ones(20_000, np.float32))
    assert _ops(large) == ["Mul", "Add"]
    assert large.nodes[0].inputs[0].static_value is None
    capped = _specialise(text, {"x": (1,)}, limits=Limits(fold_elements=4), w=np.full(8, 3, np.float32))
    assert _ops(capped) == ["Mul", "Add"]


def test_folded_integers_wrap_like_the_device():
    text = "g () => (uint8[1] y) { y = Add(w, w) }"
    graph = _specialise(text, {}, w=np.array([200], np.uint8))
    assert graph.outputs[0].constant.read().tolist() == [144]


def test_not_a_number_and_infinity_fold_as_they_are():
    text = "g () => (float[2] y) { y = Add(w, w) }"
    graph = _specialise(text, {}, w=np.array([np.nan, np.inf], np.float32))
    assert np.isnan(graph.outputs[0].static_value[0])
    assert graph.outputs[0].static_value[1] == np.inf


def test_outputs_may_be_inputs_and_constants():
    graph = _specialise(
        "g (float[N] x) => (float[N] y, float[2] c, float[N] z) { y = Identity(x) c = Identity(w) z = Identity(y) }",
        {"x": (3,)},
        w=np.ones(2, np.float32),
    )
    assert graph.outputs[0] is graph.outputs[2] is graph.inputs[0]
    assert graph.outputs[1].is_constant
    assert graph.output_names == ["y", "c", "z"]
    assert not graph.nodes


def test_what_no_output_needs_is_dropped():
    graph = _specialise(
        "g (float[N] x) => (float[N] y) { y = Abs(x)  t = Neg(x)  u = Add(t, w) }",
        {"x": (3,)},
        w=np.ones(1, np.float32),
    )
    assert _ops(graph) == ["Abs"]
    assert not graph.constants


def test_declared_shapes_of_intermediates_are_ignored():
    proto = parser.parse_model(f"{HEADER}\ng (float[N] x) => (float[N] y) {{ t = Abs(x)  y = Neg(t) }}")
    info = proto.graph.value_info.add(name="t")
    info.type.tensor_type.elem_type = 7
    info.type.tensor_type.shape.dim.add(dim_value=99)
    model = load_model(proto)
    graph = specialise(model, {"x": (3,)})
    assert graph.nodes[0].output.shape == (3,)
    assert graph.nodes[0].output.dtype is FLOAT32


# -- branches ----------------------------------------------------------------------------------------------------------

BRANCH = """g (float[N, 2] x) => (float[] y) {
    s = Shape(x)
    zero = Constant <value_int = 0> ()  two = Constant <value_int = 2> ()
    n = Gather <axis = 0> (s, zero)
    c = Equal(n, two)
    y = If (c) <
        then_branch = a () => (float[] r) { t = Abs(x)  r = Neg(t) },
        else_branch = b () => (float[] r) { k = Constant <value_ints = [7]> ()  r = Reshape(x, k) }
    >
}"""


def test_only_the_branch_that_is_taken_is_looked_at():
    graph = _specialise(BRANCH, {"x": (2, 2)})
    assert _ops(graph) == ["Abs", "Neg"]
    assert graph.nodes[0].origin.graph.startswith("main/If_")
    with pytest.raises(ShapeError) as caught:  # the other branch is taken, and wrong
        _specialise(BRANCH, {"x": (3, 2)})
    assert caught.value.origin.op == "Reshape"


def test_a_condition_that_depends_on_elements_is_refused():
    text = """g (bool p, float[2] x) => (float[2] y) {
        y = If (p) < then_branch = a () => (float[2] r) { r = Abs(x) },
                     else_branch = b () => (float[2] r) { r = Neg(x) } >
    }"""
    with pytest.raises(NotKnownError, match="condition of If") as caught:
        _specialise(text, {"p": (), "x": (2,)})
    assert caught.value.origin.op == "If"


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_errors_name_the_node():
    with pytest.raises(ShapeError) as caught:
        _specialise("g (float[N] x, float[M] z) => (float[] y) { t = Abs(x)  y = Add(t, z) }", {"x": (3,), "z": (4,)})
    assert str(caught.value.origin) == "Add (main node 1)"


def test_a_shape_computed_from_elements_is_refused():
    with pytest.raises(ShapeError, match="known at compile time") as caught:
        _specialise("g (float[N] x, int64[2] s) => (float[] y) { y = Reshape(x, s) }", {"x": (4,), "s": (2,)})
    assert caught.value.origin.op == "Reshape"


def test_element_types_that_the_device_lacks_are_refused():
    with pytest.raises(UnsupportedError, match="float64"):
        _specialise("g (double[2] x) => (double[2] y) { y = Abs(x) }", {"x": (2,)})


def test_outputs_that_the_device_cannot_hold_are_refused_with_the_nodes():
    text = (
        "g (double[2] x) => (double[2] x, double[2] y, double[2] z, double[2] w) { y = Neg(c) z = Sin(x) w = Abs(z) }"
    )
    with pytest.raises(UnsupportedError) as caught:
        _specialise(text, {"x": (2,)}, c=np.ones(2))
    assert [error.reason for error in caught.value.parts] == [
        "Sin does not support element type float64 for input 0",
        "it has elements of type float64",
        "Neg gives elements of type float64",
    ]
    assert [error.origin and error.origin.op for error in caught.value.parts] == ["Sin", None, "Neg"]


def test_the_cap_on_elements():
    text = "g (float[N, M] x) => (float[] y) { s = Constant <value_ints = [65536, 1, 1]> ()  y = Expand(x, s) }"
    with pytest.raises(LimitError, match="65536 x 300 x 300") as caught:
        _specialise(text, {"x": (300, 300)})
    assert caught.value.origin.op == "Expand"
    with pytest.raises(LimitError, match="limit is 10"):
        _specialise("g (float[N] x) => (float[] y) { y = Abs(x) }", {"x": (11,)}, limits=Limits(tensor_elements=10))


# -- builder and expand ------------------------------------------------------------------------------------------------


def test_a_scalar_has_the_type_of_its_model():
    graph = Graph("g")
    builder = GraphBuilder(graph)
    for dtype in (FLOAT32, INT64, BOOL):
        value = builder.scalar(1, graph.add_input("x", dtype, (2,)))
        assert (value.dtype, value.shape, value.static_value.item()) == (dtype, (), 1)


def test_expand_leaves_only_lowered_operators_with_their_origins():
    graph = _specialise("g (float[2, 3] x) => (float[2, 3] y) { t = Abs(x)  y = Softmax(t) }", {"x": (2, 3)})
    names = {node.op for node in graph.nodes}
    assert "Softmax" in names
    expand(graph)
    verify(graph)
    assert all(registry.of(node).expand is None for node in graph.nodes)
    assert graph.outputs[0].shape == (2, 3)
    assert graph.outputs[0].name == "y"
    assert {node.origin for node in graph.nodes} == {Origin("main", 0, "Abs"), Origin("main", 1, "Softmax")}


def test_specialising_twice_gives_the_same_text():
    assert str(_specialise(FLATTEN, {"x": (2, 3, 4)})) == str(_specialise(FLATTEN, {"x": (2, 3, 4)}))


def test_an_inline_source_does_not_follow_changes_of_its_array():
    array = np.ones(3, np.float32)
    source = InlineSource(array)
    key = source.key
    array[:] = 5
    assert source.read().tolist() == [1, 1, 1]
    assert InlineSource(np.ones(3, np.float32)).key == key != InlineSource(array).key


def test_all_that_is_refused_is_listed():
    """Each node that the device cannot have, not those that only read its result."""
    text = """g (float[3] x) => (float[3] y, float[3] z) {
        a = Cast<to = 11>(x)  b = Mul(a, a)  y = Cast<to = 1>(b)
        s = Sqrt(x)  c = Cast<to = 11>(s)  z = Cast<to = 1>(c) }"""
    with pytest.raises(UnsupportedError, match="asks 2 times") as caught:
        _specialise(text, {"x": (3,)})
    assert "Cast (main node 0)" in str(caught.value) and "Cast (main node 4)" in str(caught.value)
    assert caught.value.origin == Origin("main", 0, "Cast")
