"""Operations and helper functions in WGSL against numpy, as scalars and four lanes at a time.

Covers: compiler/codegen/emitter, compiler/codegen/helpers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from shaderloom.compiler.codegen.helpers import helper_files
from shaderloom.compiler.symbolic import expr as ex

from ...support.wgsl import (
    FLOATS,
    INT64,
    PACKED,
    STORAGE_OF,
    VALUES,
    binary,
    both_forms,
    evaluate,
    pairs,
    quiet,
    unary,
)

# -- integers: exact ---------------------------------------------------------------------------------------------------


def truncated_quotient(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


INTEGER_RULES: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": truncated_quotient,
    "mod": lambda a, b: a % b,
    "fmod": lambda a, b: a - truncated_quotient(a, b) * b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("op", INTEGER_RULES)
def test_integer_arithmetic(op, dtype, each_device):
    values = VALUES[dtype]
    divisors = values[values != 0] if op in ("div", "mod", "fmod") else values
    left, right = pairs(values, divisors)
    if op in ("div", "mod", "fmod") and dtype in ("i32", "i64"):
        smallest = np.iinfo(values.dtype).min
        keep = ~((left == smallest) & (right == -1))  # overflows: WGSL and C leave it open
        left, right = left[keep], right[keep]
    expected = [ex.wrap_integer(INTEGER_RULES[op](int(a), int(b)), dtype) for a, b in zip(left, right)]
    found = both_forms(each_device, binary(op), [left, right], STORAGE_OF[dtype])
    assert found.tolist() == expected


COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_integer_comparisons(op, dtype, each_device):
    left, right = pairs(VALUES[dtype], VALUES[dtype])
    found = both_forms(each_device, lambda a, b: ex.compare(op, a, b), [left, right], "int32")
    assert found.astype(bool).tolist() == COMPARISONS[op](left, right).tolist()


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("op", ["neg", "abs", "sign", "bitnot"])
def test_integer_unary(op, dtype, each_device):
    rule = {"neg": lambda a: -a, "abs": abs, "sign": lambda a: (a > 0) - (a < 0), "bitnot": lambda a: ~a}[op]
    expected = [ex.wrap_integer(rule(int(a)), dtype) for a in VALUES[dtype]]
    assert both_forms(each_device, unary(op), [VALUES[dtype]], STORAGE_OF[dtype]).tolist() == expected


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
def test_integer_powers_wrap(dtype, each_device):
    exponents = np.array([0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 1000], VALUES[dtype].dtype)
    base, exponent = pairs(VALUES[dtype], exponents)
    bits = 64 if dtype.endswith("64") else 32
    expected = [ex.wrap_integer(pow(int(b), int(e), 1 << bits), dtype) for b, e in zip(base, exponent)]
    assert both_forms(each_device, binary("pow"), [base, exponent], STORAGE_OF[dtype]).tolist() == expected


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_negative_integer_powers(dtype, each_device):
    base, exponent = pairs(
        np.array([2, 1, -1, -3, 10], VALUES[dtype].dtype), np.array([-1, -2, -3], VALUES[dtype].dtype)
    )
    expected = [{1: 1, -1: 1 if e % 2 == 0 else -1}.get(int(b), 0) for b, e in zip(base, exponent)]
    assert both_forms(each_device, binary("pow"), [base, exponent], STORAGE_OF[dtype]).tolist() == expected


@pytest.mark.parametrize("dtype", ["i32", "u32", "u64"])
@pytest.mark.parametrize("op", ["shl", "shr"])
def test_shifts(op, dtype, each_device):
    width = 64 if dtype.endswith("64") else 32
    counts = np.array([0, 1, 5, 31, 32, 33, 63, 64, 100], VALUES[dtype].dtype)
    values, count = pairs(VALUES[dtype], counts)
    expected = [
        ex.wrap_integer(int(v) << int(c) if op == "shl" else int(v) >> int(c), dtype) if c < width else 0
        for v, c in zip(values, count)
    ]
    assert both_forms(each_device, binary(op), [values, count], STORAGE_OF[dtype]).tolist() == expected


def test_left_shift_of_two_words(each_device):
    values, count = pairs(INT64, np.array([0, 1, 31, 32, 33, 63, 64], np.int64))
    expected = [ex.wrap_integer(int(v) << int(c), "i64") if c < 64 else 0 for v, c in zip(values, count)]
    assert both_forms(each_device, binary("shl"), [values, count], "int64").tolist() == expected


@pytest.mark.parametrize("target", ["i32", "u32", "i64", "u64", "f32"])
@pytest.mark.parametrize("source", ["i32", "u32", "i64", "u64", "f32"])
def test_casts(source, target, each_device):
    values = VALUES[source]
    if source == "f32":
        low, high = {
            "i32": (-(2**31), 2**31),
            "u32": (0, 2**32),
            "i64": (-(2**63), 2**63),
            "u64": (0, 2**64),
            "f32": (-math.inf, math.inf),
        }[target]
        values = np.concatenate([values, np.array([2.0**40 + 2**20, -(2.0**62), 123456.7], np.float32)])
        values = values[np.isfinite(values) & (values >= low) & (values < high)]
    if target == "f32":
        expected = values.astype(np.float32)
    else:
        expected = np.array([ex.wrap_integer(int(value), target) for value in values], STORAGE_OF[target])
    found = both_forms(each_device, lambda value: ex.cast(value, target), [values], STORAGE_OF[target])
    if target == "f32":  # two words are rounded one by one: one unit in the last place
        np.testing.assert_allclose(found, expected, rtol=1.2e-7)
    else:
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64", "f32"])
def test_casts_from_and_to_bool(dtype, each_device):
    values = VALUES[dtype]
    found = evaluate(each_device, lambda value: ex.cast(value, "bool"), [values], "bool", 4)
    assert found.tolist() == (values != 0).tolist()
    flags = values != 0
    found = both_forms(each_device, lambda value: ex.cast(value, dtype), [flags], STORAGE_OF[dtype])
    assert found.tolist() == flags.astype(STORAGE_OF[dtype]).tolist()


# -- floats ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["min", "max"])
def test_nan_wins_in_minimum_and_maximum(op, each_device):
    left, right = pairs(FLOATS, FLOATS)
    rule = np.minimum if op == "min" else np.maximum
    np.testing.assert_array_equal(both_forms(each_device, binary(op), [left, right], "float32"), rule(left, right))


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("constant_first", [False, True])
def test_nan_passes_a_clip(op, constant_first, each_device):
    bound = ex.const(0.5, "f32")
    found = both_forms(
        each_device, lambda x: ex.binary(op, *((bound, x) if constant_first else (x, bound))), [FLOATS], "float32"
    )
    np.testing.assert_array_equal(found, (np.minimum if op == "min" else np.maximum)(FLOATS, np.float32(0.5)))


@pytest.mark.parametrize("op", COMPARISONS)
def test_float_comparisons_with_nan(op, each_device):
    left, right = pairs(FLOATS, FLOATS)
    found = both_forms(each_device, lambda a, b: ex.compare(op, a, b), [left, right], "int32")
    assert found.astype(bool).tolist() == COMPARISONS[op](left, right).tolist()


@pytest.mark.parametrize("op", ["isnan", "isinf"])
def test_classes_of_floats(op, each_device):
    found = both_forms(each_device, unary(op), [FLOATS], "int32").astype(bool)
    assert found.tolist() == getattr(np, op)(FLOATS).tolist()


@pytest.mark.parametrize("op", ["neg", "abs", "sign", "floor", "ceil", "trunc", "round"])
def test_exact_float_functions(op, each_device):
    rule = {"neg": np.negative, "round": np.rint}.get(op) or getattr(np, op)
    expected = quiet(lambda: rule(FLOATS))
    np.testing.assert_array_equal(both_forms(each_device, unary(op), [FLOATS], "float32"), expected)


def spread(low: float, high: float, count: int = 4001) -> np.ndarray:
    return np.linspace(low, high, count, dtype=np.float32)


_erf = np.vectorize(math.erf)
_erfc = np.vectorize(math.erfc)
#: function -> values, reference in double precision, relative and absolute tolerance
FUNCTIONS = {
    "erf": (np.concatenate([spread(-6, 6), spread(-1e-3, 1e-3, 101)]), _erf, 4e-7, 1e-37),
    "erfc": (spread(-6, 4), _erfc, 5e-6, 0.0),
    "tanh": (np.concatenate([spread(-12, 12), spread(-0.1, 0.1)]), np.tanh, 4e-7, 1e-37),
    "atanh": (np.concatenate([spread(-0.999, 0.999), spread(-0.1, 0.1)]), np.arctanh, 4e-7, 1e-37),
    "exp": (spread(-80, 80), np.exp, 2e-5, 0.0),
    "expm1": (np.concatenate([spread(-10, 10), spread(-1e-3, 1e-3, 101)]), np.expm1, 3e-6, 0.0),
    "log": (np.geomspace(1e-30, 1e30, 2001).astype(np.float32), np.log, 2e-7, 0.0),
    "log1p": (np.concatenate([spread(-0.99, 50), spread(-1e-3, 1e-3, 101)]), np.log1p, 4e-7, 0.0),
    "sqrt": (np.geomspace(1e-30, 1e30, 2001).astype(np.float32), np.sqrt, 2e-7, 0.0),
    "sin": (spread(-314, 314), np.sin, 4e-7, 0.0),
    "cos": (spread(-314, 314), np.cos, 4e-7, 0.0),
    "tan": (spread(-14, 14), np.tan, 6e-7, 0.0),
    "asin": (spread(-1, 1), np.arcsin, 4e-7, 0.0),
    "acos": (spread(-1, 1), np.arccos, 4e-7, 0.0),
    "atan": (spread(-50, 50), np.arctan, 4e-7, 0.0),
    "sinh": (spread(-20, 20), np.sinh, 6e-6, 0.0),
    "cosh": (spread(-20, 20), np.cosh, 6e-6, 0.0),
    "asinh": (spread(-50, 50), np.arcsinh, 4e-7, 0.0),
    "acosh": (spread(1, 50), np.arccosh, 4e-7, 0.0),
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_float_functions(op, each_device):
    values, rule, relative, absolute = FUNCTIONS[op]
    found = both_forms(each_device, unary(op), [values], "float32", rounding=1e-6)
    np.testing.assert_allclose(found, rule(values.astype(np.float64)), rtol=relative, atol=absolute)


@pytest.mark.parametrize(("op", "limits"), [("tanh", (-1.0, 1.0)), ("erf", (-1.0, 1.0))])
def test_functions_saturate_and_pass_nan(op, limits, each_device):
    values = np.array([-np.inf, -3e38, -100.0, 100.0, 3e38, np.inf, np.nan], np.float32)
    found = both_forms(each_device, unary(op), [values], "float32")
    assert found.tolist()[:6] == [limits[0]] * 3 + [limits[1]] * 3
    assert np.isnan(found[6])


def test_power_follows_c(each_device):
    bases = np.array([0.0, 0.25, 1.0, 2.0, 3.5, 10.0, -1.0, -2.0, -2.5], np.float32)
    exponents = np.array([0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 2.5, 7.0], np.float32)
    base, exponent = pairs(bases, exponents)
    expected = quiet(lambda: np.power(base.astype(np.float64), exponent.astype(np.float64)))
    found = both_forms(each_device, binary("pow"), [base, exponent], "float32", rounding=3e-7)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


@pytest.mark.parametrize("op", ["mod", "fmod"])
def test_float_remainders(op, each_device):
    left, right = pairs(
        np.array([0.0, 1.0, 5.5, -5.5, 7.0, -7.0, 0.3], np.float32), np.array([1.0, 2.0, -2.0, 3.0, -3.0], np.float32)
    )
    expected = np.mod(left, right) if op == "mod" else np.fmod(left, right)
    found = both_forms(each_device, binary(op), [left, right], "float32")
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_float_arithmetic_with_special_values(op, each_device):
    left, right = pairs(FLOATS, FLOATS)
    if op == "div":  # a quotient near the ends of the range is not required to be right
        keep = (np.abs(right) >= 1e-3) & (np.abs(right) < 1e30) & (np.abs(left) < 1e30)
        left, right = left[keep], right[keep]
    tiny = np.finfo(np.float32).tiny  # results below it may be flushed to zero
    rule = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[op]
    expected = quiet(lambda: rule(left, right))
    found = both_forms(each_device, binary(op), [left, right], "float32")
    np.testing.assert_allclose(found, expected, rtol=5e-7, atol=tiny)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, 1e-40, 3.4e38, 16777216.0, -1.5])
def test_float_literals(value, each_device):
    found = both_forms(
        each_device,
        lambda x: ex.select(ex.compare("eq", x, x), ex.const(value, "f32"), x),
        [np.ones(5, np.float32)],
        "float32",
    )
    np.testing.assert_allclose(found, np.full(5, value, np.float32), atol=2e-40)


def test_every_helper_is_tested():
    """The names of helper macros occur in a rule of this file, so that a new one is not forgotten."""
    macros = set(helper_files())
    covered = {"infinity", "not_a_number", "floor_div", "floor_mod_i32", "floor_mod_f32", "half_asin"}
    for op in (*INTEGER_RULES, "pow", "shl", "shr", "abs", "sign", "neg", "lt"):
        covered |= {f"{op}_{dtype}" for dtype in VALUES}
    covered |= {"isnan", "isinf", "min_f32", "max_f32", "sign", "pow"} | set(FUNCTIONS)
    covered |= {f"{source}_to_{target}" for source in (*VALUES, "bool") for target in (*VALUES, "bool")}
    for name in PACKED:
        covered |= {f"pack_{name}", f"unpack_{name}"}
    covered |= {"of_pair", "of_pairs", "of_word_pair", "of_word_pairs"}  # tests/compiler/kernels/test_paired_words.py
    covered |= {"round_float16", "round_bfloat16"}  # tests/compiler/ops/test_cast_rounding.py
    covered |= {f"{name}_float16_bits" for name in ("pack", "unpack", "round")}  # test_wgsl_storage.py
    covered |= {"range_registers", "extend_range"}  # tests/compiler/planning/test_stored_ranges.py
    covered |= {"angle", "reduce_angle", "far_angle", "sine", "leading", "positive_pow"}  # sin, cos, tan, pow
    covered |= {"log_near", "log_limits", "erfc_tail"}  # log, log1p, erf, erfc
    assert macros <= covered, f"no test calls {sorted(macros - covered)}"
