"""The WGSL emitter and its helper functions against numpy, as scalars and four lanes at a time; golden map kernels."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler import expr as ex
from shaderloom.compiler import index as ix
from shaderloom.compiler.codegen.emitter import Emitter
from shaderloom.compiler.codegen.helpers import helper_files
from shaderloom.compiler.codegen.render import render
from shaderloom.compiler.codegen.writer import Functions
from shaderloom.compiler.kernels.map import MapConfig
from shaderloom.compiler.kernels.spec import Hook, KernelSpec, Operand, Store
from shaderloom.compiler.lanes import is_aligned, lane_variable, split_lane
from shaderloom.compiler.sources import numpy_dtype
from shaderloom.runtime.device_profile import WEB
from shaderloom.runtime.dtypes import BY_NAME, from_border, padded_bytes
from shaderloom.runtime.errors import LimitError

from .support.golden import check_golden
from .support.kernels import STORAGE, compile_kernels, make_model

STORAGE_OF = {"f32": "float32", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64"}
FLOATS = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-30, -1e-30, 1e-3, 0.0624, 0.0626, 7.25, -88.0, 88.0,
     1e4, -1e4, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)  # fmt: skip
INT32 = np.array([0, 1, -1, 2, -2, 3, -3, 7, -7, 100, 65535, -65536, 2**30, -(2**31), 2**31 - 1], np.int32)
UINT32 = np.array([0, 1, 2, 3, 5, 31, 32, 33, 65535, 65536, 2**31, 2**32 - 1], np.uint32)
INT64 = np.array(
    [0, 1, -1, 2, -2, 3, -7, 10, 2**31, -(2**31), 2**32 - 1, 2**32, -(2**32), 2**32 + 5, 10**12, -(10**12), 2**53 + 1,
     2**62, -(2**63), 2**63 - 1, 0x0123456789ABCDEF], np.int64)  # fmt: skip
UINT64 = np.concatenate([INT64.view(np.uint64), np.array([63, 64, 65, 33, 31], np.uint64)])
VALUES = {"f32": FLOATS, "i32": INT32, "u32": UINT32, "i64": INT64, "u64": UINT64}


def pairs(left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
    """Every combination of the elements of two arrays."""
    both = np.array(list(itertools.product(range(len(left)), range(len(right)))))
    return [left[both[:, 0]], right[both[:, 1]]]


def evaluate(device, build: Callable[..., ex.Expr], arrays: list[np.ndarray], result: str, lanes: int) -> np.ndarray:
    """``build`` of the elements of ``arrays`` on the device, stored as ``result``.

    Arrays are lengthened to whole groups of lanes: an access past the end would be moved onto the last element.
    """
    wanted = len(arrays[0])
    arrays = [np.resize(array, -(-len(array) // lanes) * lanes) for array in arrays]
    count = len(arrays[0])
    threads = -(-count // lanes)
    thread = ix.variable("q", 0, max(threads - 1, 1))
    position = ix.add(ix.multiply(thread, 4), lane_variable()) if lanes == 4 else thread
    names = [array.dtype.name for array in arrays]
    loads = [ex.load(f"x{number}", name, position, BY_NAME[name].compute) for number, name in enumerate(names)]
    value = build(*loads)
    if value.dtype == "bool" and result != "bool":
        value = ex.select(value, ex.const(1, BY_NAME[result].compute), ex.const(0, BY_NAME[result].compute))
    operands = [Operand(f"x{number}", "read", name) for number, name in enumerate(names)]
    spec = KernelSpec(
        "map", MapConfig(lanes, 64), (*operands, Operand("y", "read_write", result)),
        (Hook("store", ("q",), lanes, (), None, (Store("y", result, position, value),)),),
        (("threads", threads),), (64, 1, 1), (-(-threads // 64), 1, 1),
    )  # fmt: skip
    kernel = render(spec)
    pipeline = device.pipeline(kernel, checked=True, max_wgsl_bytes=1 << 20).pipeline
    buffers = []
    for array in arrays:
        data = array.tobytes()
        data += bytes(padded_bytes(len(array), BY_NAME[array.dtype.name]) - len(data))
        buffers.append(device.gpu.create_buffer_with_data(data=data, usage=STORAGE))
    size = padded_bytes(count, BY_NAME[result])
    buffers.append(device.gpu.create_buffer_with_data(data=b"\xff" * size, usage=STORAGE))
    group = device.gpu.create_bind_group(
        layout=pipeline.layout,
        entries=[
            {"binding": number, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
            for number, buffer in enumerate(buffers)
        ],
    )
    encoder = device.gpu.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline.pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(*spec.grid)
    compute.end()
    device.submit([encoder.finish()], "a helper function")
    return np.frombuffer(device.queue.read_buffer(buffers[-1]), numpy_dtype(BY_NAME[result]), wanted)


def both_forms(
    device, build: Callable[..., ex.Expr], arrays: list[np.ndarray], result: str, rounding: float = 0.0
) -> np.ndarray:
    """The result, which scalars and four lanes must agree on: bit by bit (NaN is NaN), or up to ``rounding``.

    A driver may contract a product and a sum in one of the forms and not in the other.
    """
    one = evaluate(device, build, arrays, result, 1)
    four = evaluate(device, build, arrays, result, 4)
    np.testing.assert_allclose(one, four, rtol=rounding, atol=0.0)
    return one


def unary(op: str) -> Callable[[ex.Expr], ex.Expr]:
    return lambda value: ex.unary(op, value)


def binary(op: str) -> Callable[[ex.Expr, ex.Expr], ex.Expr]:
    return lambda left, right: ex.binary(op, left, right)


def quiet(function: Callable[[], np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()


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


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_integer_comparisons(op, dtype, each_device):
    left, right = pairs(VALUES[dtype], VALUES[dtype])
    rule = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }[op]
    found = both_forms(each_device, lambda a, b: ex.compare(op, a, b), [left, right], "int32")
    assert found.astype(bool).tolist() == rule(left, right).tolist()


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


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_float_comparisons_with_nan(op, each_device):
    left, right = pairs(FLOATS, FLOATS)
    rule = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }[op]
    found = both_forms(each_device, lambda a, b: ex.compare(op, a, b), [left, right], "int32")
    assert found.astype(bool).tolist() == rule(left, right).tolist()


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


# -- packed storage ----------------------------------------------------------------------------------------------------

PACKED = ("bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "int4", "uint4", "int2", "uint2")


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 63, 256])
def test_packed_round_trip(name, count, each_device):
    dtype = numpy_dtype(BY_NAME[name])
    if name == "bool":
        values = np.arange(count) % 3 == 0
    elif BY_NAME[name].is_float:
        values = quiet(lambda: np.resize(FLOATS, count).astype(dtype))
    else:
        values = np.linspace(*BY_NAME[name].integer_range, count).astype(np.int32).astype(dtype)
    found = from_border(evaluate(each_device, lambda x: x, [values], name, 4), BY_NAME[name])
    np.testing.assert_array_equal(found.astype(np.float64), values.astype(np.float64))


@pytest.mark.parametrize("name", PACKED)
def test_unpacking_one_element(name, each_device):
    dtype = numpy_dtype(BY_NAME[name])
    if BY_NAME[name].is_float:
        values = quiet(lambda: np.resize(FLOATS, 27).astype(dtype))
    else:
        values = from_border(
            (np.arange(27) * 9973 % 65536).astype(np.uint16).view(np.int16).astype(dtype), BY_NAME[name]
        )
    wide = {"f32": "float32", "i32": "int32", "u32": "uint32", "bool": "int32"}[BY_NAME[name].compute]
    found = both_forms(each_device, lambda x: x, [values], wide)
    np.testing.assert_array_equal(found, values.astype(wide))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_round_to_nearest_even(name, each_device):
    values = np.array([1.0, 1.00048828125, 1.0009765625, 1.00390625, 1.01171875, 3.14159, -2.71828, 65504.0, 1e-3, 0.1,
                       65519.0, 65520.0, -65520.0, 1e6, np.inf, -np.inf, np.nan], np.float32)  # fmt: skip
    found = evaluate(each_device, lambda x: x, [values], name, 4)
    expected = quiet(lambda: values.astype(numpy_dtype(BY_NAME[name])))
    step = 2.0**-10 if name == "float16" else 0.0  # WGSL lets packing to f16 round either way
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=step)


def test_packed_stores_need_whole_words():
    position = ix.variable("q", 0, 9)
    store = Store("y", "int8", position, ex.const(1, "i32"))
    spec = KernelSpec(
        "map",
        MapConfig(1, 64),
        (Operand("y", "read_write", "int8"),),
        (Hook("store", ("q",), 1, (), None, (store,)),),
        (("threads", 10),),
        (64, 1, 1),
        (1, 1, 1),
    )
    with pytest.raises(LimitError, match="whole words"):
        render(spec)


# -- indices and lanes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("offset", [0, -20])
def test_index_divisions(divisor, offset, each_device):
    """Floor division and remainder of coordinates, also of negative ones."""

    def build(value: ex.Expr) -> ex.Expr:
        shifted = ix.add(value.payload.position, offset)
        quotient, rest = ix.floordiv(shifted, divisor), ix.modulo(shifted, divisor)
        return ex.binary("add", ex.binary("mul", ex.coordinate(quotient), ex.const(1000, "i32")), ex.coordinate(rest))

    values = np.arange(40, dtype=np.int32)
    found = both_forms(each_device, build, [values], "int32")
    shifted = values + offset
    np.testing.assert_array_equal(found, shifted // divisor * 1000 + shifted % divisor)


def test_guarded_loads_of_lanes(each_device):
    """A guard that differs by lane, one that all lanes agree on, and one inside another."""
    values = np.arange(1, 41, dtype=np.float32)

    def build(load: ex.Expr) -> ex.Expr:
        where = load.payload.position
        shifted = ex.load("x0", "float32", ix.add(where, -3), "f32")
        inner = ex.guard(ex.in_range(ix.add(where, -3), 0, 31), shifted, ex.const(-1.0, "f32"))
        outer = ex.guard(ex.in_range(where, 0, 20), ex.binary("add", inner, load), ex.const(-2.0, "f32"))
        return ex.binary("mul", outer, ex.const(2.0, "f32"))

    found = both_forms(each_device, build, [values], "float32")
    place = np.arange(40)
    shifted = np.where((place >= 3) & (place < 34), np.roll(values, 3), -1.0)
    np.testing.assert_array_equal(found, 2 * np.where(place < 20, shifted + values, -2.0))


def test_indices_read_at_run_time(each_device):
    table = np.arange(100, 140, dtype=np.float32)
    places = np.array([39, 0, 5, 5, -1, 17, 2, 38] * 5, np.int64)

    def build(_: ex.Expr, place: ex.Expr) -> ex.Expr:
        wrapped = ex.select(
            ex.compare("lt", place, ex.const(0, "i64")), ex.binary("add", place, ex.const(40, "i64")), place
        )
        return ex.load("x0", "float32", ex.as_index(wrapped, 0, 39), "f32")

    np.testing.assert_array_equal(both_forms(each_device, build, [table, places], "float32"), table[places])


def test_alignment_of_lanes():
    base = ix.variable("q", 0, 9)
    lanes = ix.add(ix.multiply(base, 4), lane_variable())
    assert is_aligned(lanes)
    assert not is_aligned(ix.add(lanes, 2))
    assert not is_aligned(ix.multiply(lanes, 2))
    assert not is_aligned(base)
    assert split_lane(ix.add(ix.multiply(lane_variable(), 3), base)) == (base, 3)
    assert split_lane(ix.modulo(lanes, 3)) == (None, 0)


def test_sizes_with_divisions_stand_inline():
    """A dim of a declared dynamic size may need a division; it has no statement of its own."""
    size = ix.variable("n", 1, 1000)
    functions = Functions()
    emitter = Emitter({}, frozenset(), frozenset({"n"}), functions)
    emitter.index(ix.ceildiv(size, 4))
    assert emitter.lines, "a division gets a name in a function"
    store = Store(
        "y", "float32", ix.add(ix.multiply(ix.variable("q", 0, 249), 4), lane_variable()), ex.const(1.0, "f32")
    )
    spec = KernelSpec(
        "map",
        MapConfig(4, 64),
        (Operand("y", "read_write", "float32"),),
        (Hook("store", ("q",), 4, (), None, (store,)),),
        (("threads", ix.ceildiv(size, 4)),),
        (64, 1, 1),
        (ix.ceildiv(size, 256), 1, 1),
        ("n",),
    )
    assert "q < " in render(spec).wgsl and "symbols.s_n" in render(spec).wgsl


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
    covered |= {"of_pair", "of_pairs"}  # tests/test_paired_words.py
    covered |= {"angle", "reduce_angle", "far_angle", "sine", "leading", "positive_pow"}  # sin, cos, tan, pow
    covered |= {"log_near", "log_limits", "erfc_tail"}  # log, log1p, erf, erfc
    assert macros <= covered, f"no test calls {sorted(macros - covered)}"


# -- golden kernels ----------------------------------------------------------------------------------------------------


def _map_models() -> dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, list]]]:
    """Name -> nodes, inputs, declared shapes with names of dynamic dimensions."""
    node = helper.make_node
    f32, f16 = np.float32, np.float16
    return {
        "relu_vector": ([node("Relu", ["x"], ["y"])], {"x": np.zeros((2, 8), f32)}, {}),
        "relu_dynamic": ([node("Relu", ["x"], ["y"])], {"x": np.zeros((2, 8), f32)}, {"x": ["n", 7]}),
        "add_broadcast_odd": (
            [node("Add", ["x", "b"], ["y"])], {"x": np.zeros((3, 5), f32), "b": np.zeros((5,), f32)}, {}),
        "gelu_chain": (
            [node("Gelu", ["x"], ["t"]), node("Mul", ["t", "b"], ["y"])],
            {"x": np.zeros((4, 8), f32), "b": np.zeros((8,), f32)}, {}),
        "half_sigmoid": ([node("Sigmoid", ["x"], ["y"])], {"x": np.zeros((3, 7), f16)}, {}),
        "cast_to_bytes": ([node("Cast", ["x"], ["y"], to=3)], {"x": np.zeros((10,), f32)}, {}),
        "wide_integers": (
            [node("Mul", ["x", "b"], ["t"]), node("Max", ["t", "x"], ["y"])],
            {"x": np.zeros((6,), np.int64), "b": np.zeros((6,), np.int64)}, {}),
        "transpose": ([node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": np.zeros((3, 5), f32)}, {}),
        "where_isnan": (
            [node("IsNaN", ["x"], ["m"]), node("Where", ["m", "b", "x"], ["y"])],
            {"x": np.zeros((8,), f32), "b": np.zeros((1,), f32)}, {}),
    }  # fmt: skip


@pytest.mark.parametrize("name", _map_models())
def test_golden_map_kernels(name):
    nodes, feeds, dims = _map_models()[name]
    model = make_model(nodes, feeds, ["y"], dims=dims)
    dynamic = {dim: (1, 64) for shape in dims.values() for dim in shape if isinstance(dim, str)}
    feeds = {key: np.zeros((2, 7), array.dtype) if key in dims else array for key, array in feeds.items()}
    _, made, _ = compile_kernels(model, feeds, WEB, dynamic=dynamic)
    ((kernel, _),) = made
    check_golden(f"wgsl/{name}.wgsl", kernel.wgsl)
