"""Maps with numpy: operators are evaluated through their own expressions, in the compute types of the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.dtypes import compute_dtype
from ...runtime.plan.errors import InternalError
from ..ir.coordinates import Sizes, shape_of
from ..ir.graph import Node, Value
from ..ops.registry import registry
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.evaluate import evaluate_expr
from ..symbolic.expr import Expr, Load
from ..symbolic.polynomial import Dim

#: what a load outside its operand gives: a guard must keep it from every result
_POISON = {"f": float("nan"), "i": -0x5A5A, "u": 0xA5, "b": True}


def compute_map(node: Node, operands: Sequence[np.ndarray | None], sizes: Sizes) -> np.ndarray:
    """Return the result of a map node; ``operands`` are by input position."""
    definition = registry.of(node)
    output = node.outputs[0]
    shape = shape_of(output, sizes)
    variables: dict[str, np.ndarray] = {}
    coordinates: list[Dim] = []
    for axis, size in enumerate(output.shape):
        sides = [1] * len(shape)
        sides[axis] = shape[axis]
        variables[f"axis{axis}"] = np.arange(shape[axis], dtype=np.int64).reshape(sides)
        coordinates.append(ix.variable(f"axis{axis}", 0, max(ix.bounds(size)[1] - 1, 0)))
    if 0 in shape:
        return np.zeros(shape, compute_dtype(output.dtype))

    def read(position: int, coordinates: Sequence[Dim]) -> Expr:
        value = node.operand(position)
        if len(coordinates) != value.rank:
            raise InternalError(f"{node.op} reads {value!r} at {len(coordinates)} coordinates", origin=node.origin)
        return ex.load(position, value.dtype.name, tuple(coordinates), value.dtype.compute)

    if definition.element is not None:
        args = [
            read(position, _broadcast_coordinates(value, coordinates))
            for position, value in enumerate(node.inputs)
            if value is not None
        ]
        result = definition.element(node, args)
    else:
        assert definition.gather is not None
        result = definition.gather(node, coordinates, read)
    if result.dtype != output.dtype.compute:
        raise InternalError(f"{node.op} computes {result.dtype}, not {output.dtype.compute}", origin=node.origin)
    array = evaluate_expr(result, lambda load, at: _load(load, at, operands), {**sizes, **variables})
    stored = np.broadcast_to(np.asarray(array), shape)
    _check_narrow(node, stored, output)
    with np.errstate(all="ignore"):
        return stored.astype(compute_dtype(output.dtype))


def _broadcast_coordinates(value: Value, coordinates: Sequence[Dim]) -> list[Dim]:
    """Return the coordinates of an operand for an output element, under numpy's broadcasting."""
    own = coordinates[len(coordinates) - value.rank :]
    return [
        0 if not isinstance(size, ix.Index) and size == 1 else coordinate for size, coordinate in zip(value.shape, own)
    ]


def _load(load: Load, coordinates: tuple[np.ndarray, ...], operands: Sequence[np.ndarray | None]) -> np.ndarray:
    array = operands[load.operand]  # type: ignore[call-overload]  # operands are named by position
    assert array is not None
    inside = np.asarray(True)
    safe = []
    for axis, size in zip(coordinates, array.shape):
        inside = inside & (axis >= 0) & (axis < size)
        safe.append(np.clip(axis, 0, max(size - 1, 0)))
    poison = np.asarray(_POISON.get(array.dtype.kind, 0)).astype(array.dtype)
    if not array.size:
        return np.broadcast_to(poison, inside.shape)
    return np.where(inside, array[tuple(safe)], poison)


def _check_narrow(node: Node, array: np.ndarray, output: Value) -> None:
    """Raise :class:`InternalError` unless the operator wrapped its 8- or 16-bit integers: stores truncate them."""
    dtype = output.dtype
    if dtype.is_integer and dtype.bits < 32 and array.size:
        low, high = dtype.integer_range
        if array.min() < low or array.max() > high:
            raise InternalError(f"{node.op} does not wrap its result to {dtype}", origin=node.origin)
