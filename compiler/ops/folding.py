"""Folding of elementwise operators on the host.

Numbers are folded by evaluating the operator's own expression, so folding cannot disagree with the kernels.  Integer
operands with symbolic elements (shape arithmetic over declared dynamic dimensions) go through ``SYMBOLIC``, a table of
exact integer rules; what it cannot decide raises :class:`~.polynomial.Undecidable` and stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.plan.dtypes import compute_dtype
from ..ir.graph import Node
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.evaluate import evaluate_expr
from ..symbolic.polynomial import Dim, Undecidable
from .checks import is_symbolic
from .registry import Element, Fold, Infer


def elementwise_fold(element: Element, infer: Infer) -> Fold:
    """Return the fold of an operator whose lowering is ``element`` and whose type rule is ``infer``."""

    def fold(node: Node, *operands: np.ndarray | None) -> np.ndarray:
        if any(is_symbolic(operand) for operand in operands):
            return fold_symbolic(node, operands)
        dtype = infer(node)[0][0]
        if not dtype.on_device or any(value is not None and not value.dtype.on_device for value in node.inputs):
            return _fold_double(node, operands)
        return evaluate_element(node, element, operands).astype(compute_dtype(dtype))

    return fold


def evaluate_element(node: Node, element: Element, operands: tuple[np.ndarray | None, ...]) -> np.ndarray:
    """Evaluate an elementwise node with numpy, in the compute type of its output."""
    registers: dict[str, np.ndarray] = {}
    args = []
    for position, operand in enumerate(operands):
        value = node.inputs[position]
        if operand is None or value is None:
            continue
        name = f"operand{position}"
        registers[name] = operand
        args.append(ex.register(name, value.dtype.compute))
    shape = np.broadcast_shapes(*(operand.shape for operand in registers.values()))
    return np.broadcast_to(evaluate_expr(element(node, args), registers=registers), shape)


#: operators on float64 constants (the device has no float64: only shape arithmetic and scales meet them)
_DOUBLE: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Exp": np.exp,
    "Log": np.log,
    "Reciprocal": np.reciprocal,
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "Where": np.where,
}


def _fold_double(node: Node, operands: tuple[np.ndarray | None, ...]) -> np.ndarray:
    function = _DOUBLE.get(node.op)
    if function is None:
        raise Undecidable(f"{node.op} of {node.operand(0).dtype} is not folded")
    with np.errstate(all="ignore"):
        return np.asarray(function(*operands))


# -- symbolic integers -----------------------------------------------------------------------------------------------


def fold_symbolic(node: Node, operands: tuple[np.ndarray | None, ...]) -> np.ndarray:
    """Apply an exact integer rule to each element; the result is an object array (bool arrays for comparisons)."""
    rule = SYMBOLIC.get(node.op)
    if rule is None or any(operand is None for operand in operands):
        raise Undecidable(f"{node.op} of symbolic integers")
    if node.op == "Mod" and node.attributes.fmod:
        rule = truncated_remainder
    arrays = [np.asarray(operand, dtype=object) for operand in operands]
    result = np.asarray(np.frompyfunc(rule, len(arrays), 1)(*arrays), dtype=object)
    return result.astype(np.bool_) if node.op in _GIVES_BOOL else result


def truncated_quotient(left: Dim, right: Dim) -> Dim:
    """Divide integers as ONNX does, truncating; symbolic operands must have known signs."""
    if not isinstance(left, ix.Index) and not isinstance(right, ix.Index):
        if right == 0:
            raise Undecidable("division by zero")
        quotient = abs(int(left)) // abs(int(right))
        return quotient if (left < 0) == (right < 0) else -quotient
    if ix.bounds(right)[0] <= 0 or ix.bounds(left)[0] < 0:
        raise Undecidable(f"the signs of {ix.text(left)} / {ix.text(right)}")
    return ix.floordiv(left, right)


def floored_remainder(left: Dim, right: Dim) -> Dim:
    if not isinstance(left, ix.Index) and not isinstance(right, ix.Index):
        if right == 0:
            raise Undecidable("remainder of a division by zero")
        return int(left) % int(right)
    if ix.bounds(right)[0] <= 0:
        raise Undecidable(f"the sign of {ix.text(right)}")
    return ix.modulo(left, right)


def truncated_remainder(left: Dim, right: Dim) -> Dim:
    return ix.add(left, ix.multiply(truncated_quotient(left, right), ix.multiply(right, -1)))


def _absolute(value: Dim) -> Dim:
    low, high = ix.bounds(value)
    if low >= 0:
        return value
    if high <= 0:
        return ix.multiply(value, -1)
    raise Undecidable(f"the sign of {ix.text(value)}")


def _sign(value: Dim) -> Dim:
    return int(ix.less(0, value)) - int(ix.less(value, 0))


def _total(*values: Dim) -> Dim:
    result: Dim = 0
    for value in values:
        result = ix.add(result, value)
    return result


def _reduce(rule: Callable[[Dim, Dim], Dim]) -> Callable[..., Dim]:
    def apply(first: Dim, *others: Dim) -> Dim:
        for other in others:
            first = rule(first, other)
        return first

    return apply


SYMBOLIC: dict[str, Callable[..., Any]] = {
    "Add": ix.add,
    "Sub": lambda left, right: ix.add(left, ix.multiply(right, -1)),
    "Mul": ix.multiply,
    "Div": truncated_quotient,
    "Mod": floored_remainder,
    "Neg": lambda value: ix.multiply(value, -1),
    "Abs": _absolute,
    "Sign": _sign,
    "Sum": _total,
    "Max": _reduce(ix.maximum),
    "Min": _reduce(ix.minimum),
    "Relu": lambda value: ix.maximum(value, 0),
    "Clip": lambda value, low, high: ix.minimum(ix.maximum(value, low), high),
    "Equal": ix.equal,
    "Less": ix.less,
    "Greater": lambda left, right: ix.less(right, left),
    "LessOrEqual": lambda left, right: not ix.less(right, left),
    "GreaterOrEqual": lambda left, right: not ix.less(left, right),
    "Where": lambda condition, left, right: left if condition else right,
}

_GIVES_BOOL = frozenset({"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"})
