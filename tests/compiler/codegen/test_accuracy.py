"""Functions of one float over the whole range of their arguments against float64, with stated bounds in ulps.

WGSL lets a device flush subnormal numbers.  So a result is right if it is right for the argument or, where that is
subnormal, for zero of its sign; results below the smallest normal number count as zero.

Covers: compiler/codegen/helpers, templates/functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import helper

from ...support.kernels import make_model
from ...support.running import run_model

Function = Callable[[np.ndarray], np.ndarray]

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)
TINY = float(np.finfo(np.float32).tiny)


def number(value: float) -> Function:
    return lambda x: np.full_like(x, value)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def expm1(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def gelu_inner(x: np.ndarray) -> np.ndarray:
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


@dataclass(frozen=True)
class Rule:
    """``function`` in float64; the bound in ulps of float32 at x; results below ``floor`` may be flushed."""

    operator: str
    function: Function
    bound: Function
    floor: float = TINY
    attributes: tuple[tuple[str, object], ...] = ()
    opset: int = 22


#: WGSL's own bound for exp; functions made of it inherit it
def EXP(x: np.ndarray) -> np.ndarray:
    return 4 + 2 * np.abs(x)


RULES = [
    Rule("Exp", np.exp, EXP),
    Rule("Log", np.log, number(1)),
    Rule("Sqrt", np.sqrt, number(1)),
    Rule("Reciprocal", lambda x: 1 / x, number(2.5), 4 * TINY),
    Rule("Sin", np.sin, number(3)),
    Rule("Cos", np.cos, number(3)),
    Rule("Tan", np.tan, number(5)),
    Rule("Asin", np.arcsin, number(3)),
    Rule("Acos", np.arccos, number(2)),
    Rule("Atan", np.arctan, number(3)),
    Rule("Sinh", np.sinh, EXP),
    Rule("Cosh", np.cosh, EXP),
    Rule("Tanh", np.tanh, number(4)),
    Rule("Asinh", np.arcsinh, number(4)),
    Rule("Acosh", np.arccosh, number(3)),
    Rule("Atanh", np.arctanh, number(4)),
    Rule("Erf", lambda x: _erf(x).astype(np.float64), number(4)),
    Rule("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), EXP, 8 * TINY),
    Rule("Softplus", softplus, EXP),
    Rule("Softsign", lambda x: x / (1 + np.abs(x)), number(4), 4 * TINY),
    Rule("Mish", lambda x: x * np.tanh(softplus(x)), EXP, 200 * TINY),
    Rule("Elu", expm1, number(4)),
    Rule("Celu", expm1, number(4)),
    Rule("Selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * expm1(x)), number(5), 4 * TINY),
    Rule("Swish", lambda x: x / (1 + np.exp(-x)), EXP, 200 * TINY, opset=24),
    Rule(
        "Gelu", lambda x: 0.5 * x * _erfc(-x * math.sqrt(0.5)).astype(np.float64), lambda x: 9 + 2 * x * x, 200 * TINY
    ),
    Rule(
        "Gelu",
        lambda x: x / (1 + np.exp(-gelu_inner(x))),
        lambda x: 6 + 4 * np.abs(gelu_inner(x)),
        200 * TINY,
        (("approximate", "tanh"),),
    ),
    Rule("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), number(4), 4 * TINY),
    Rule("Round", np.rint, number(0)),
    Rule("Floor", np.floor, number(0)),
    Rule("Ceil", np.ceil, number(0)),
    Rule("Abs", np.abs, number(0)),
    Rule("Neg", np.negative, number(0)),
    Rule("Sign", np.sign, number(0)),
]


def arguments() -> np.ndarray:
    """Both signs of: every binade, the usual range, neighbours of special points, multiples of quarter turns, noise."""
    points = [
        *(0.0625, 0.25, 0.29, 0.34657, 0.41, 0.5, 0.6, math.log(2), 1.0, math.sqrt(2) - 1, math.sqrt(2) + 1, 2.0),
        *(math.e, 3.0, 6.0, 87.33655, 88.72284, 89.41599, 103.97208, 4096.0, 32768.0, 2.0**23, 2.0**24, 2.0**31),
        3.4028235e38,
    ]
    near = np.array(points, np.float32).view(np.int32)[:, None] + np.arange(-40, 41, dtype=np.int32)
    turns = np.concatenate([np.arange(1, 400), np.arange(1, 2000) * 997, 2.0 ** np.arange(8, 90)]) * (math.pi / 4)
    noise = np.random.default_rng(0).integers(0, 0x7F800000, 20_000).astype(np.int32)
    positive = np.concatenate(
        [
            np.exp2(np.linspace(-149, 127.99, 20_001)).astype(np.float32),
            np.linspace(0, 20, 10_001, dtype=np.float32),
            near.reshape(-1).view(np.float32),
            turns.astype(np.float32),
            noise.view(np.float32),
        ]
    )
    positive = positive[np.isfinite(positive)]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([positive, -positive, special])


def errors(rule: Rule, x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Errors in ulps by the rules of this module, infinite where a result is of the wrong kind."""
    with np.errstate(all="ignore"):
        wanted = rule.function(x.astype(np.float64))
        of_zero = rule.function(np.where(np.signbit(x), -0.0, 0.0))
    kind = found.dtype.type
    information = np.finfo(kind)
    largest, smallest = float(information.max), max(rule.floor, float(information.tiny))
    with np.errstate(all="ignore"):
        rounded = wanted.astype(kind)
        actual = found.astype(np.float64)
        size = np.where(np.isfinite(wanted), np.maximum(np.abs(wanted), float(information.tiny)), 1.0)
        ulp = np.exp2(np.floor(np.log2(size)) - information.nmant)
        result = np.abs(actual - wanted) / ulp
    result = np.where((np.abs(actual) <= smallest) & (np.abs(wanted) <= smallest), 0.0, result)
    # at the end of the range a result that is nearly too large may become infinite, and the other way round
    border = np.isfinite(wanted) & (np.abs(wanted) > largest * (1 - 1e-4)) & (np.sign(wanted) == np.sign(actual))
    result = np.where(border & (np.abs(actual) > largest * (1 - 1e-4)), 0.0, result)
    special = ~np.isfinite(rounded) & ~border
    right = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    result = np.where(special, np.where(right, 0.0, np.inf), result)
    result = np.where(~special & ~border & ~np.isfinite(actual), np.inf, result)
    subnormal = np.abs(x.astype(np.float64)) < float(np.finfo(x.dtype).tiny)
    flushed = np.where(np.abs(actual) < float(information.tiny), 0.0, actual)
    zero_is_right = (flushed == of_zero) | (np.isnan(actual) & np.isnan(of_zero))
    return np.where(subnormal & zero_is_right, 0.0, result)


def unary_model(rule: Rule, x: np.ndarray) -> onnx.ModelProto:
    node = helper.make_node(rule.operator, ["x"], ["y"], **dict(rule.attributes))
    return make_model([node], {"x": x}, ["y"], opset=rule.opset)


def name(rule: Rule) -> str:
    return "-".join([rule.operator, *(str(value) for _, value in rule.attributes)])


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_function_of_one_float(rule: Rule, each_device) -> None:
    x = arguments()
    (found,) = run_model(each_device, unary_model(rule, x), {"x": x})
    error = errors(rule, x, found)
    with np.errstate(all="ignore"):
        excess = np.nan_to_num(error, nan=np.inf) - np.nan_to_num(
            rule.bound(x.astype(np.float64)), nan=0.0, posinf=1e30
        )
    worst = int(np.argmax(excess))
    assert excess[worst] <= 0, f"{rule.operator}({x[worst]!r}) = {found[worst]!r}, off by {error[worst]:.3g} ulps"


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_function_of_one_half(rule: Rule, each_device) -> None:
    """All 65,536 arguments: computed in float32, rounded once, so at most one ulp of a half."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    (found,) = run_model(each_device, unary_model(rule, x), {"x": x})
    error = errors(rule, x, found)
    worst = int(np.argmax(np.nan_to_num(error, nan=np.inf)))
    assert error[worst] <= 1, f"{rule.operator}({x[worst]!r}) = {found[worst]!r}, off by {error[worst]:.3g} ulps"


def powers() -> tuple[np.ndarray, np.ndarray]:
    """Bases and exponents: random ones with results in range, and all pairs of special ones."""
    generator = np.random.default_rng(1)
    base = np.exp2(generator.uniform(-126, 127, 30_000))
    base[::2] = generator.uniform(0.5, 2.0, 15_000)
    base[::10] = 1 + generator.uniform(-1e-4, 1e-4, 3_000)
    with np.errstate(all="ignore"):
        exponent = generator.uniform(-130, 130, 30_000) / np.log2(base)
    positive = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 7.5, 16777217.0, 1e30, np.inf])
    special = np.concatenate([positive, -positive, [np.nan]])
    left, right = np.meshgrid(special, special)
    return (
        np.concatenate([base, left.reshape(-1)]).astype(np.float32),
        np.concatenate([exponent, right.reshape(-1)]).astype(np.float32),
    )


def test_powers(each_device) -> None:
    x, y = powers()
    model = make_model([helper.make_node("Pow", ["x", "y"], ["z"])], {"x": x, "y": y}, ["z"])
    (found,) = run_model(each_device, model, {"x": x, "y": y})
    rule = Rule("Pow", lambda base: np.power(base, y.astype(np.float64)), number(8), 8 * TINY)
    error = np.nan_to_num(errors(rule, x, found), nan=np.inf)
    worst = int(np.argmax(error))
    assert error[worst] <= 8, f"{x[worst]!r} ** {y[worst]!r} = {found[worst]!r}, off by {error[worst]:.3g} ulps"
