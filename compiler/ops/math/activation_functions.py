"""The activation functions that recurrent layers name, with their parameters."""

from __future__ import annotations

from collections.abc import Callable

from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ..onnx.activations import number, sigmoid, softplus

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
    return ex.select(ex.compare("lt", value, number(0.0)), negative, value)


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
