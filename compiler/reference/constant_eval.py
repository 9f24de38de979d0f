"""Values of constants in numpy.

Elementwise operators are evaluated through the expressions that their kernels would be made of, in the same compute
types (:mod:`.evaluate`); others through :mod:`.interpreter`, floats in double precision, rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.plan.dtypes import compute_dtype
from ...runtime.plan.errors import InternalError
from ..ir.coordinates import shape_of
from ..ir.dataflow import operands, post_order
from ..ir.graph import Node, Value
from ..ops.registry import registry
from ..symbolic import expr as ex
from ..symbolic.evaluate import evaluate_expr
from .interpreter import run_node


def evaluate_constant(value: Value) -> np.ndarray:
    """Evaluate a value that depends on constants alone; return its elements in ONNX order."""
    arrays: dict[Value, np.ndarray] = {}
    waiting: dict[Value, int] = {}  #: how many nodes still read a value: large arrays go as early as they can
    order = post_order([value], _sources_of)
    for current in order:
        for operand in _sources_of(current):
            waiting[operand] = waiting.get(operand, 0) + 1
    for current in order:
        if current.constant is not None:
            arrays[current] = current.constant.read()
            continue
        node = current.producer
        assert node is not None
        result = _run(node, [None if operand is None else arrays[operand] for operand in node.inputs])
        with np.errstate(over="ignore"):
            # a weight may be stored in another type than the node computes
            arrays[current] = result.astype(compute_dtype(current.dtype), copy=False)
        for operand in {operand for operand in node.inputs if operand is not None}:
            waiting[operand] -= 1
            if not waiting[operand]:
                del arrays[operand]
    return arrays[value]


def _sources_of(value: Value) -> list[Value]:
    """Return what a value is computed from; none for a constant.  Raises :class:`InternalError` if it is neither."""
    if value.constant is not None:
        return []
    node = value.producer
    if node is None or len(node.outputs) != 1 or node.blocks:
        raise InternalError(f"{value!r} is no constant")
    return operands(value)


def _run(node: Node, operands: list[np.ndarray | None]) -> np.ndarray:
    definition = registry.of(node)
    output = node.outputs[0]
    if node.op == "Relayout":  # logical elements stay where they are
        assert operands[0] is not None
        return operands[0]
    if definition.element is not None:
        return _run_elementwise(node, operands)
    if definition.family is not None:
        double = [
            operand.astype(np.float64) if _is_float(value) else operand  # type: ignore[union-attr]
            for operand, value in zip(operands, node.inputs)
        ]
        with np.errstate(all="ignore"):
            return run_node(node, double, {})[0].astype(compute_dtype(output.dtype))
    return run_node(node, operands, {})[0]


def _is_float(value: Value | None) -> bool:
    return value is not None and value.dtype.is_float


def _run_elementwise(node: Node, operands: list[np.ndarray | None]) -> np.ndarray:
    """Evaluate an elementwise operator by its expression, with numpy's broadcasting in place of index arithmetic."""
    output = node.outputs[0]
    arguments: list[ex.Expr] = []
    registers: Mapping[str, np.ndarray] = {
        f"x{position}": operand for position, operand in enumerate(operands) if operand is not None
    }
    for position, value in enumerate(node.inputs):
        if value is not None:
            arguments.append(ex.register(f"x{position}", value.dtype.compute))
    definition = registry.of(node)
    assert definition.element is not None
    result = evaluate_expr(definition.element(node, arguments), registers=registers)
    with np.errstate(all="ignore"):
        # one- and two-byte integers keep their low bits, as stores do
        return np.broadcast_to(np.asarray(result), shape_of(output, {})).astype(compute_dtype(output.dtype))
