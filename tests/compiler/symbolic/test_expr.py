"""Expressions: interning, simplifications that hold for every number, and substitution.

Random expressions are evaluated twice: as they are built (simplified), and node by node from the unsimplified tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shaderloom
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic import substitution
from shaderloom.compiler.symbolic.dimensions import dimension
from shaderloom.compiler.symbolic.evaluate import NUMPY_TYPES, apply, convert, evaluate_expr
from shaderloom.compiler.symbolic.expr import Expr, Load
from shaderloom.compiler.symbolic.terms import KEY_LENGTH
from shaderloom.runtime.plan.errors import ShapeError

Tree = tuple[Any, ...]  #: ("const", 3), ("register", name), (operator, type of the result, arguments...)

_F32 = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3e38, -3e38, 1e-40, np.inf, -np.inf, np.nan, 7.0], np.float32)
_I32 = np.array([0, 1, -1, 2, -7, 100, 2**31 - 1, -(2**31), 65536, -65537, 12, 3, 5], np.int32)
_U32 = np.array([0, 1, 2, 7, 2**31, 2**32 - 1, 65535, 65536, 100, 3, 12, 5, 255], np.uint32)
_BOOL = np.array([True, False] * 6 + [True])
REGISTERS = {
    **{f"f32_{shift}": np.roll(_F32, shift) for shift in range(3)},
    **{f"i32_{shift}": np.roll(_I32, shift) for shift in range(3)},
    **{f"u32_{shift}": np.roll(_U32, shift) for shift in range(3)},
    **{f"bool_{shift}": np.roll(_BOOL, shift) for shift in range(2)},
}
_CONSTANTS: dict[str, list[Any]] = {
    "f32": [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, float("inf"), float("nan")],
    "i32": [0, 1, -1, 2, 31, 2**31 - 1, -(2**31)],
    "u32": [0, 1, 2, 255, 2**32 - 1],
    "bool": [True, False],
}
_BINARY = {
    "f32": ["add", "sub", "mul", "div", "min", "max"],
    "i32": ["add", "sub", "mul", "and", "or", "xor"],
    "u32": ["add", "sub", "mul", "and", "or", "xor"],
    "bool": ["and", "or", "xor"],
}
_UNARY = {"f32": ["neg", "abs", "floor", "ceil"], "i32": ["neg", "bitnot"], "u32": ["bitnot"], "bool": ["not"]}
_CASTS = {"f32": ["bool"], "i32": ["u32", "bool"], "u32": ["i32", "bool"], "bool": ["f32", "i32", "u32"]}


@st.composite
def trees(draw: Any, dtype: str, depth: int = 4) -> Tree:
    kinds = ["const", "register"]
    if depth:
        kinds += ["binary", "binary", "unary", "select", "cast", "compare" if dtype == "bool" else "binary"]
    kind = draw(st.sampled_from(kinds))
    if kind == "const":
        return ("const", dtype, draw(st.sampled_from(_CONSTANTS[dtype])))
    if kind == "register":
        return ("register", dtype, draw(st.sampled_from([name for name in REGISTERS if name.startswith(dtype)])))
    if kind == "unary":
        return (draw(st.sampled_from(_UNARY[dtype])), dtype, draw(trees(dtype, depth - 1)))
    if kind == "binary":
        sides = draw(trees(dtype, depth - 1)), draw(trees(dtype, depth - 1))
        return (draw(st.sampled_from(_BINARY[dtype])), dtype, *sides)
    if kind == "select":
        sides = draw(trees(dtype, depth - 1)), draw(trees(dtype, depth - 1))
        return (draw(st.sampled_from(["select", "guard"])), dtype, draw(trees("bool", depth - 1)), *sides)
    if kind == "compare":
        operand = draw(st.sampled_from(["f32", "i32", "u32"]))
        sides = draw(trees(operand, depth - 1)), draw(trees(operand, depth - 1))
        return (draw(st.sampled_from(sorted(ex.COMPARISONS))), "bool", *sides)
    source = draw(st.sampled_from([source for source, targets in _CASTS.items() if dtype in targets] or [dtype]))
    return ("cast", dtype, draw(trees(source, depth - 1)))


DTYPES = st.sampled_from(["f32", "i32", "u32", "bool"])
TREES = DTYPES.flatmap(lambda dtype: trees(dtype))


def build(tree: Tree) -> Expr:
    op, dtype, *rest = tree
    if op == "const":
        return ex.const(rest[0], dtype)
    if op == "register":
        return ex.register(rest[0], dtype)
    args = [build(argument) for argument in rest]
    if op == "cast":
        return ex.cast(args[0], dtype)
    if op == "select":
        return ex.select(*args)
    if op == "guard":
        return ex.guard(*args)
    if op in ex.COMPARISONS:
        return ex.compare(op, *args)
    return ex.unary(op, *args) if op in ex.UNARY else ex.binary(op, *args)


def compute(tree: Tree) -> np.ndarray:
    op, dtype, *rest = tree
    if op == "const":
        with np.errstate(all="ignore"):
            return np.full(len(_F32), rest[0], NUMPY_TYPES[dtype])
    if op == "register":
        return REGISTERS[rest[0]]
    args = tuple(compute(argument) for argument in rest)
    with np.errstate(all="ignore"):
        return np.asarray(apply(op, dtype, args)).astype(NUMPY_TYPES[dtype], copy=False)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal to the bit, but for the payload of NaN."""
    actual = np.broadcast_to(actual, expected.shape)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]))


@settings(max_examples=400, deadline=None)
@given(TREES)
def test_simplified_expressions_have_the_value_of_their_tree(tree: Tree) -> None:
    assert_same(evaluate_expr(build(tree), registers=REGISTERS), compute(tree))


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_equal_trees_are_one_object_with_one_description(tree: Tree) -> None:
    first, second = build(tree), build(tree)
    assert first is second
    assert ex.describe(first) == ex.describe(second)


@settings(max_examples=200, deadline=None)
@given(TREES, DTYPES.flatmap(lambda dtype: trees(dtype, 2)))
def test_replacing_a_register_everywhere(tree: Tree, replacement: Tree) -> None:
    dtype = replacement[1]
    name = f"{dtype}_0"
    inner = build(replacement)
    replaced = substitution.replace(
        build(tree), lambda leaf: inner if leaf.op == "register" and leaf.payload == name else None
    )

    def substituted(part: Tree) -> Tree:
        if part[0] == "register":
            return replacement if part[2] == name else part
        return (part[0], part[1], *(substituted(item) if isinstance(item, tuple) else item for item in part[2:]))

    assert_same(evaluate_expr(replaced, registers=REGISTERS), compute(substituted(tree)))
    assert replaced is build(substituted(tree))


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, -1.0, 0.5, 0.0, 2.5])
def test_powers_with_a_constant_exponent(exponent: float) -> None:
    base = np.array([0.0, -0.0, 1.0, -1.5, 2.0, 1e-3, 1e10, np.inf, -np.inf, np.nan], np.float32)
    power = ex.binary("pow", ex.register("base", "f32"), ex.const(exponent, "f32"))
    with np.errstate(all="ignore"):
        expected = np.power(base, np.float32(exponent))
    np.testing.assert_allclose(evaluate_expr(power, registers={"base": base}), expected, rtol=1e-6)


# -- constants --------------------------------------------------------------------------------------------------------


def test_integers_lose_what_is_undone() -> None:
    number, zero = ex.register("n", "i32"), ex.register("z", "i32")
    assert (number + zero) - zero is number and (zero + number) - zero is number
    assert (zero + zero) - zero is zero
    assert ex.cast(ex.cast(number, "u32"), "i32") is number
    assert ex.cast(ex.cast(number, "f32"), "i32") is not number
    wide = ex.register("f", "f32")
    assert (wide + wide) - wide is not wide


def clamped(least: Expr, greatest: float) -> Expr:
    rounded = ex.unary("round", ex.register("x", "f32"))
    return ex.binary("min_number", ex.binary("max_number", rounded, least), ex.const(greatest, "f32"))


def test_quantised_numbers_that_are_floats_again_are_no_integers_between() -> None:
    """Rounded and clamped they are whole already; a zero has the sign of an integer's."""
    zero = ex.cast(ex.load("z", "uint8", (), "u32"), "i32")
    numbers = np.array([-300.0, -0.2, -0.0, 0.5, 1.5, 99.6, 1e30, -np.inf, np.inf], np.float32)
    for least in (ex.const(-128.0, "f32"), ex.cast(ex.const(-3, "i32") - zero, "f32")):
        result = ex.cast(ex.cast(clamped(least, 127.0), "i32"), "f32")
        assert result.op == "add"
        found = evaluate_expr(result, lambda *_: np.uint8(125), registers={"x": numbers})
        assert_same(found, np.clip(np.rint(numbers), -128, 127).astype(np.int32).astype(np.float32))


@pytest.mark.parametrize("end", [0.5, 1e9, np.inf, np.nan])
def test_what_is_not_surely_a_small_integer_becomes_one(end: float) -> None:
    for value in (clamped(ex.const(0.0, "f32"), end), clamped(ex.const(end, "f32"), 1.0)):
        assert ex.cast(ex.cast(value, "i32"), "f32").op == "cast"
    assert ex.cast(ex.cast(clamped(ex.register("least", "f32"), 1.0), "i32"), "f32").op == "cast"


def test_constants_of_different_types_or_signs_are_different_objects() -> None:
    assert ex.const(1, "i32") is not ex.const(1, "u32")
    assert ex.const(1.0, "f32") is not ex.const(1, "i32")
    assert ex.const(True, "bool") is not ex.const(1, "i32")
    assert ex.const(0.0, "f32") is not ex.const(-0.0, "f32")
    assert ex.const(float("nan"), "f32") is ex.const(-float("nan"), "f32")


def test_integer_constants_wrap_to_their_type() -> None:
    assert ex.const(2**31, "i32").payload == -(2**31)
    assert ex.const(-1, "u32").payload == 2**32 - 1
    assert ex.const(2**63, "i64").payload == -(2**63)
    assert ex.const(-1, "u64").payload == 2**64 - 1


@pytest.mark.parametrize("target", ["f32", "i32", "u32", "i64", "u64", "bool"])
@pytest.mark.parametrize(
    ("value", "source"),
    [(0, "i32"), (-1, "i32"), (2**31 - 1, "i32"), (2**32 - 1, "u32"), (-(2**40) - 3, "i64"), (2**63 + 5, "u64"),
     (2.75, "f32"), (-2.75, "f32"), (-0.0, "f32"), (True, "bool"), (False, "bool")],
)  # fmt: skip
def test_conversions_of_constants_are_those_of_tensors(value: Any, source: str, target: str) -> None:
    if source == "f32" and value < 0 and target in ("u32", "u64"):
        pytest.skip("ONNX leaves negative floats as unsigned integers open")
    constant = ex.cast(ex.const(value, source), target)
    assert constant.op == "const"
    expected = convert(np.array(value, NUMPY_TYPES[source]), NUMPY_TYPES[target])
    assert_same(evaluate_expr(constant), expected)


# -- coordinates ------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-4, 4),
    st.integers(1, 9),
    st.integers(-3, 3),
    st.integers(-5, 15),
    st.integers(-5, 8),
    st.integers(1, 6),
)
def test_in_range_holds_exactly_inside(start: int, extent: int, step: int, shift: int, low: int, width: int) -> None:
    x, n = ix.variable("x", start, start + extent), ix.variable("n", width, width + 3)
    value = ix.add(ix.multiply(x, step), shift)
    grid = np.meshgrid(np.arange(start, start + extent + 1), np.arange(width, width + 4), indexing="ij")
    variables = {"x": grid[0], "n": grid[1]}
    for high in (low + width, ix.add(n, low)):
        condition = ex.in_range(value, low, high)
        number = grid[0] * step + shift
        expected = (number >= low) & (number < ix.evaluate(high, variables))
        assert_same(evaluate_expr(condition, variables=variables), expected)
        if expected.all() and isinstance(high, int):
            assert condition.op == "const", "the bounds decide it"


def test_run_time_indices_are_evaluated_inside_positions() -> None:
    table = np.array([3, 0, 2], np.int32)
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    row = ix.variable("row", 0, 2)
    picked = ex.as_index(ex.load("table", "int32", (row,), "i32"), 0, 3)
    value = ex.load("data", "float32", (picked, ix.add(row, 0)), "f32")

    def read(load: Load, where: tuple[np.ndarray, ...]) -> np.ndarray:
        return (table if load.operand == "table" else data)[where]

    result = evaluate_expr(value, read, {"row": np.arange(3)})
    np.testing.assert_array_equal(result, data[table, np.arange(3)])
    assert [load.payload.operand for load in ex.loads(value)] == ["table", "data"]
    moved = substitution.substitute_variables(value, {"row": 1})
    assert evaluate_expr(moved, read, {}) == data[0, 1]


def test_constants_and_coordinates_as_indices_stay_plain() -> None:
    x = ix.variable("x", 0, 7)
    assert ex.as_index(ex.const(5, "i32"), 0, 7) == 5
    assert ex.as_index(ex.coordinate(x), 0, 7) == x


def test_substitution_reaches_loads_coordinates_and_guards() -> None:
    x, y = ix.variable("x", 0, 7), ix.variable("y", 0, 5)
    data = np.arange(4, dtype=np.float32) * 10

    def shifted(at: ix.Dim) -> Expr:
        """Data in the middle of eight elements, and the coordinate around it."""
        element = ex.load("data", "float32", (ix.add(at, -2),), "f32")
        return ex.guard(ex.in_range(at, 2, 6), element, ex.cast(ex.coordinate(at), "f32"))

    moved = substitution.substitute_variables(shifted(x), {"x": ix.add(y, 2)})
    assert [load.payload.coordinates for load in ex.loads(moved)] == [(y,)]
    result = evaluate_expr(moved, lambda load, where: data[np.clip(where[0], 0, 3)], {"y": np.arange(6)})
    np.testing.assert_array_equal(result, [0, 10, 20, 30, 6, 7])


def test_long_chains_do_not_recurse() -> None:
    value = ex.register("x", "f32")
    for _ in range(20_000):
        value = value + ex.const(1.0, "f32")
    assert evaluate_expr(value, registers={"x": np.float32(0)}) == 20_000
    assert len(ex.describe(value)) < 2 * KEY_LENGTH


def test_shared_parts_cost_nothing() -> None:
    """An index that divides itself forty times, and a run-time index that reads itself, double as trees every time."""
    here = where = ix.variable("x", 0, 999)
    for _ in range(40):
        here = ix.add(ix.multiply(ix.modulo(here, 35), 29), ix.floordiv(here, 35))
        there = ex.as_index(ex.load("table", "int32", ix.modulo(where, 7), "i32"), -1000, 999)
        where = ix.add(ix.floordiv(where, 3), ix.maximum(ix.add(where, there), 0))
    assert ix.variables(here) == ix.variables(where) == {"x"}
    assert len(ix.atoms(here)) < 400 and len(ix.atoms(where)) < 400
    assert len(ix.opaque_payloads(where)) == 40
    assert max(len(atom.key) for index in (here, where) for atom in ix.atoms(index)) < 2 * KEY_LENGTH

    number = 123
    for _ in range(40):
        number = number % 35 * 29 + number // 35
    moved = substitution.substitute_variables(ex.coordinate(here), {"x": ix.variable("y", 0, 999)})
    assert evaluate_expr(moved, variables={"y": 123}) == number
    assert ex.of_dim(here, "i64").op == "cast"
    read = evaluate_expr(ex.coordinate(where), lambda load, at: at[0] * 0 - 2, {"x": np.arange(1000)})
    assert read.shape == (1000,)


def test_integers_of_sizes_in_64_bits(device) -> None:
    """What is computed from a declared dimension is exact where 32 bits would wrap."""
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[n] x) => (int64[1] square, int64[1] sum, float[n] y)
        <int64[1] huge = {1099511627776}> {
        y = Neg(x)  size = Shape(x)  square = Mul(size, size)  sum = Add(size, huge) }"""
    model = onnx.parser.parse_model(text)
    with shaderloom.InferenceSession(model, device=device, cache=False, dynamic={"n": (2, 100000)}) as session:
        for count in (7, 70000):
            square, total, _ = session.run(None, {"x": np.zeros(count, np.float32)})
            assert (square[0], total[0]) == (count**2, count + 2**40)


def test_quotients_of_more_than_32_bits_are_refused() -> None:
    size = dimension("n", 2, 100000)
    with pytest.raises(ShapeError, match="more than 32 bits"):
        ex.of_dim(ix.multiply(ix.floordiv(ix.multiply(size, 10**9), ix.add(size, 1)), 10**9), "i64")
