"""What waits in registers: loads as memory has them, and functions that make of them what a hook returns.

Covers: compiler/codegen/held.py.
"""

from __future__ import annotations

import pytest

from shaderloom.compiler.codegen.emitter import Emitter
from shaderloom.compiler.codegen.held import held_result
from shaderloom.compiler.codegen.spec import Hook
from shaderloom.compiler.codegen.writer import Functions
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.expr import Expr
from shaderloom.compiler.symbolic.lanes import LANES, lane_variable

ROW = ix.coordinate("n", 64)
FOUR = ix.add(ix.multiply(ROW, LANES), lane_variable())


def load(storage: str, dtype: str, operand: str = "x") -> Expr:
    return ex.load(operand, storage, FOUR, dtype)


def guarded(value: Expr) -> Expr:
    return ex.guard(ex.in_range(ROW, 0, 60), value, ex.const(0, value.dtype))


BYTES, FLOATS, HALVES = load("int8", "i32"), load("float32", "f32"), load("float16", "f32")
SCALE = ex.load("s", "float32", FOUR, "f32")
#: Results, the type of what is held, and the statements of what makes the result of it, or the helper that does
SPLIT = {
    "bytes as floats": (ex.cast(BYTES, "f32"), "u32", ["let held = unpack_int8_4(words);", "vec4<f32>(held)"]),
    "bytes behind a guard": (guarded(ex.cast(BYTES, "f32")), "u32", ["unpack_int8_4(words)", "vec4<f32>(held)"]),
    "halves": (HALVES, "vec2<u32>", "unpack_float16_4"),
    "halves behind a guard": (guarded(HALVES), "vec2<u32>", "unpack_float16_4"),
    "rounded floats": (ex.unary("round_float16", FLOATS), "vec4<f32>", "round_float16_4"),
    "rounded behind a guard": (guarded(ex.unary("round_float16", FLOATS)), "vec4<f32>", "round_float16_4"),
    "scaled floats": (FLOATS * ex.const(0.5, "f32"), "vec4<f32>", ["return held * 0.5f;"]),
}
#: Results that hooks compute where they load
WHOLE = {
    "floats": FLOATS,
    "two loads": ex.cast(BYTES, "f32") * SCALE,
    "zeros that would become other numbers": ex.cast(BYTES - ex.const(3, "i32"), "f32"),
    "loads of which other values are made": ex.guard(
        ex.in_range(ROW, 0, 60), ex.cast(BYTES, "f32"), ex.cast(load("int8", "i32", "z"), "f32") * ex.const(2.0, "f32")
    ),
    "a coordinate": ex.cast(BYTES + ex.coordinate(ROW), "f32"),
}


def split(value: Expr, *, held: bool = True):
    names = {"x": "x0", "s": "x1", "z": "x2"}
    emitter = Emitter(names, frozenset(names), frozenset(), Functions())
    return held_result(Hook("load_b", ("n",), LANES, (), value, held=held), emitter)


@pytest.mark.parametrize("name", SPLIT)
def test_what_is_made_of_one_load_follows(name):
    value, kind, maker = SPLIT[name]
    found = split(value)
    assert found is not None and found.kind == kind and found.is_packed == ("u32" in kind)
    assert found.hook.result is not None and not ex.loads(found.hook.result)[0].args
    if isinstance(maker, str):
        assert (found.function, found.maker) == (maker, None)
    else:
        assert found.maker is not None and found.function == found.maker.name == "made_load_b"
        assert all(text in "\n".join(found.maker.lines) for text in maker)
        assert found.maker.returns == "vec4<f32>" and found.maker.parameters[0][1] == kind


@pytest.mark.parametrize("name", WHOLE)
def test_other_results_are_computed_where_they_are_loaded(name):
    assert split(WHOLE[name]) is None


def test_a_result_that_does_not_wait_is_whole():
    assert split(HALVES, held=False) is None
