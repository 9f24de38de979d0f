"""Shape arithmetic over dynamic dimensions folds exactly, or stays unknown; it is never guessed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ops.folding import SYMBOLIC, fold_symbolic, truncated_quotient, truncated_remainder
from shaderloom.compiler.ops.onnx.cast import cast_static
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.runtime.plan.dtypes import BOOL, FLOAT32, INT8, INT64

N = ix.variable("n", 1, 64)
M = ix.variable("m", 2, 9)


def _fold(op: str, *operands: object, **attributes: int) -> np.ndarray:
    node = SimpleNamespace(op=op, attributes=SimpleNamespace(**attributes))
    arrays = tuple(np.array(operand, dtype=object) for operand in operands)
    return fold_symbolic(node, arrays)


def test_sums_products_and_quotients_are_exact_polynomials():
    assert _fold("Add", [N, 3], [1, M]).tolist() == [ix.add(N, 1), ix.add(M, 3)]
    assert _fold("Sub", [N], [N]).tolist() == [0]
    assert _fold("Mul", [N, M], 4).tolist() == [ix.multiply(N, 4), ix.multiply(M, 4)]
    assert _fold("Div", [ix.multiply(N, 6)], [3]).tolist() == [ix.multiply(N, 2)]
    assert _fold("Mod", [ix.add(ix.multiply(N, 4), 1)], [4], fmod=0).tolist() == [1]
    assert _fold("Neg", [N]).tolist() == [ix.multiply(N, -1)]


def test_comparisons_decide_by_bounds_or_refuse():
    assert _fold("Less", [0], [N]).tolist() == [True]
    assert _fold("Equal", [N], [-1]).tolist() == [False]
    assert _fold("GreaterOrEqual", [M], [2]).tolist() == [True]
    with pytest.raises(ix.Undecidable):
        _fold("Equal", [N], [7])
    with pytest.raises(ix.Undecidable):
        _fold("Greater", [N], [M])


def test_division_of_unknown_sign_is_refused():
    with pytest.raises(ix.Undecidable):
        truncated_quotient(ix.add(N, -5), 2)
    with pytest.raises(ix.Undecidable):
        truncated_quotient(N, 0)


@given(st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_numbers_divide_as_in_onnx(left: int, right: int):
    assert truncated_quotient(left, right) == int(left / right)
    assert truncated_remainder(left, right) == int(np.fmod(left, right))


@given(st.integers(1, 64), st.integers(2, 9), st.integers(-4, 4), st.integers(1, 7))
def test_rules_agree_with_numbers_for_every_size(n: int, m: int, offset: int, divisor: int):
    sizes = {"n": n, "m": m}
    symbolic = ix.add(ix.add(ix.multiply(N, M), N), offset)
    number = n * m + n + offset
    operands = {
        1: ("Neg", "Relu"),
        2: ("Add", "Sub", "Mul", "Max", "Min"),
    }
    for count, names in operands.items():
        for name in names:
            rule = SYMBOLIC[name]
            expected = rule(*(number, divisor)[:count])
            assert ix.evaluate(rule(*(symbolic, divisor)[:count]), sizes) == expected
    if ix.bounds(symbolic)[0] >= 0:
        assert ix.evaluate(SYMBOLIC["Div"](symbolic, divisor), sizes) == number // divisor
    assert ix.evaluate(SYMBOLIC["Mod"](symbolic, divisor), sizes) == number % divisor


def test_casts_of_symbolic_integers():
    known = np.array([N, M], dtype=object)
    assert cast_static(known, INT64, INT64) is known
    assert cast_static(known, INT64, INT8).tolist() == [N, M]  # both fit
    assert cast_static(known, INT64, BOOL).tolist() == [True, True]
    with pytest.raises(ix.Undecidable):
        cast_static(np.array([ix.multiply(N, 100)], dtype=object), INT64, INT8)
    with pytest.raises(ix.Undecidable):
        cast_static(known, INT64, FLOAT32)


SPLIT_HEADS = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[batch, length, 12] x) => (float[a, b, c, d] y)
<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] axis = {0}, int64[1] heads = {3}> {
    shape = Shape(x)
    batch = Gather(shape, zero)
    length = Gather(shape, one)
    width = Gather(shape, two)
    b1 = Unsqueeze(batch, axis)
    l1 = Unsqueeze(length, axis)
    w1 = Unsqueeze(width, axis)
    each = Div(w1, heads)
    target = Concat<axis = 0>(b1, l1, heads, each)
    split = Reshape(x, target)
    y = Transpose<perm = [0, 2, 1, 3]>(split)
}
"""


def test_exporter_shape_arithmetic_folds_away():
    model = load_model(parser.parse_model(SPLIT_HEADS))
    bound = bind_shapes(model, {"x": (2, 5, 12)}, {"batch": (1, 8), "length": (1, 512)})
    graph = specialise(model, bound.shapes)
    expand(graph)
    # the target shape is one symbolic constant; nothing computes it
    assert [node.op for node in graph.nodes] == ["Dimensions", "Reshape", "Transpose"]
    value = np.arange(120, dtype=np.float32).reshape(2, 5, 12)
    (result,) = run_graph(graph, {"x": value})
    assert np.array_equal(result, value.reshape(2, 5, 3, 4).transpose(0, 2, 1, 3))


def test_a_mean_over_a_dynamic_dimension_divides_by_its_size():
    text = "g (float[n, 3] x) => (float[3] y) { y = ReduceMean<axes = [0], keepdims = 0>(x) }"
    text = f'<ir_version: 9, opset_import: ["" : 17]> {text}'
    model = load_model(parser.parse_model(text))
    graph = specialise(model, bind_shapes(model, {"x": (4, 3)}, {"n": (1, 100)}).shapes)
    expand(graph)
    for size in (1, 4, 100):
        value = np.random.default_rng(size).standard_normal((size, 3)).astype(np.float32)
        (result,) = run_graph(graph, {"x": value})
        assert np.allclose(result, value.mean(axis=0), rtol=1e-5, atol=1e-6)
