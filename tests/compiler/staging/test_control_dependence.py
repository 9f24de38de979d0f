"""Names that control decisions depend on: sizes, conditions, and what loops carry."""

from __future__ import annotations

import onnx.parser
import pytest

from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.staging.control_dependence import deciding_names
from shaderloom.compiler.staging.program_graph import ProgramScope

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'

NESTED = {
    "a branch decides": (
        """g (float[4] x, float[4] z) => (int64[1, m] y) { c = Cast<to = 9>(z)  a = Exp(x)
            y = If(c) <then_branch = t () => (int64[1, m] p) { q = Neg(a)  p = NonZero(q) },
                       else_branch = e () => (int64[1, m] o) { o = NonZero(z) }> }""",
        {"a", "z", "x"},
        {"q"},
    ),
    "a size in a body": (
        """g (float[4] x, int64 n, bool c) => (float[4] y) { a = Exp(x)  b = Neg(x)
            y, o = Loop(n, c, a, b) <body = l (int64 i, bool d, float[4] s, float[4] u)
                    => (bool e, float[4] v, float[4] w) {
                e = Identity(d)  v = Neg(s)  k = ReduceMax(u)  m = Cast<to = 7>(k)  w = Expand(u, m) }> }""",
        {"n", "c", "b", "x"},
        {"a"},
    ),
    "what a later iteration decides by": (
        """g (float[4] x, float[4] z, int64 n, bool c) => (float[4] y) { a = Exp(x)  b = Neg(z)
            y, o = Loop(n, c, a, b) <body = l (int64 i, bool d, float[4] s, float[4] u)
                    => (bool e, float[4] v, float[4] w) {
                m = ReduceMax<keepdims = 0>(s)  e = Cast<to = 9>(m)  v = Identity(u)  w = Neg(u) }> }""",
        {"n", "c", "a", "b", "x", "z"},
        set(),
    ),
    "sizes alone": (
        """g (float[4] x, float[4] z) => (float[4] y) { a = Exp(x)  s = Shape(a)  y = Expand(z, s) }""",
        {"s"},
        {"a", "x", "z"},
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_names_that_decide(name):
    text, deciding, others = NESTED[name]
    model = load_model(onnx.parser.parse_model(HEADER + text).SerializeToString())
    found = deciding_names(ProgramScope(model.graph).nodes(), ())
    assert deciding <= found
    assert not found & others
