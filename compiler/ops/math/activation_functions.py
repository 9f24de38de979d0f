"""Activation functions, computed in f32.  Formulas are those of the ONNX operator specification."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...symbolic import expr as ex
from ...symbolic.expr import Expr


def number(value: float) -> Expr:
    return ex.const(value, "f32")


def exponential(value: Expr) -> Expr:
    return ex.unary("exp", value)


def sigmoid(value: Expr) -> Expr:
    """Return 1 / (1 + exp(-x)): the exponential overflows to infinity for very negative x, which gives 0."""
    return number(1.0) / (number(1.0) + exponential(-value))


def softplus(value: Expr) -> Expr:
    """Return log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which never overflows."""
    tail = ex.unary("log1p", exponential(-ex.unary("abs", value)))
    return ex.binary("max", value, number(0.0)) + tail


def gelu(value: Expr) -> Expr:
    """Return 0.5 x (1 + erf(x / sqrt 2)), as 0.5 x erfc(-x / sqrt 2): the sum would cancel for negative x."""
    return number(0.5) * value * ex.unary("erfc", value * number(-math.sqrt(0.5)))


def gelu_tanh(value: Expr) -> Expr:
    """Approximate Gelu by 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + exp(-2 u))."""
    inner = number(-2.0 * math.sqrt(2.0 / math.pi)) * (value + number(0.044715) * value * value * value)
    return value / (number(1.0) + exponential(inner))


def mish(value: Expr) -> Expr:
    """Return x tanh(log(1 + exp(x))).

    With e = exp(-|x|) it is x n / (n + d), n = 1 + 2 e, d = 2 e^2 for positive x, and n = e (e + 2), d = 2 for
    negative: nothing overflows or cancels.
    """
    power = exponential(-ex.unary("abs", value))
    negative = below(value, 0.0)
    part = ex.select(negative, power * (power + number(2.0)), number(1.0) + number(2.0) * power)
    return value * (part / (part + ex.select(negative, number(2.0), number(2.0) * power * power)))


def below(value: Expr, limit: float) -> Expr:
    return ex.compare("lt", value, number(limit))


# -- by the names of recurrent layers --------------------------------------------------------------------------------

#: Defaults of alpha and beta; None: the function does not have it
DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
    "softsign": (None, None),
    "softplus": (None, None),
}


def _where_negative(value: Expr, negative: Expr) -> Expr:
    return ex.select(below(value, 0.0), negative, value)


_FUNCTIONS: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {
    "relu": lambda x, alpha, beta: ex.binary("max", x, number(0.0)),
    "tanh": lambda x, alpha, beta: ex.unary("tanh", x),
    "sigmoid": lambda x, alpha, beta: sigmoid(x),
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "leakyrelu": lambda x, alpha, beta: _where_negative(x, alpha * x),
    "thresholdedrelu": lambda x, alpha, beta: ex.select(ex.compare("lt", x, alpha), number(0.0), x),
    "scaledtanh": lambda x, alpha, beta: alpha * ex.unary("tanh", beta * x),
    "hardsigmoid": lambda x, alpha, beta: ex.binary(
        "max", ex.binary("min", alpha * x + beta, number(1.0)), number(0.0)
    ),
    "elu": lambda x, alpha, beta: _where_negative(x, alpha * ex.unary("expm1", x)),
    "softsign": lambda x, alpha, beta: x / (number(1.0) + ex.unary("abs", x)),
    "softplus": lambda x, alpha, beta: softplus(x),
}


def activation(name: str, alpha: float, beta: float, value: Expr) -> Expr:
    """Apply the activation function ``name``, in lower case, to ``value``."""
    return _FUNCTIONS[name](value, number(alpha), number(beta))
