"""Helpers shared by the operator files: shape rules, known integers, element-type sets, integer width, adapters.

Conventions of every operator file:

* ``infer(node)`` gives (element type, shape) of each output; it raises :class:`ShapeError` where operands do not fit;
* ``fold(node, *operands)`` gets one numpy array for each input (None for an omitted one) and gives one array, or a
  sequence of arrays when the operator has several outputs.  Integer arrays may be object arrays that hold ``Index``
  elements.  A fold may raise :class:`~.polynomial.Undecidable`: then the result is not known;
* ``element(node, args)`` gets one expression for each operand that is present, in order: an omitted input has none;
* an adapter changes a :class:`RawNode` in place to the next newer form of its operator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import LimitError, NotKnownError, ShapeError, UnsupportedError
from ..ir.graph import Node, Shape, Value
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim
from .registry import Adapter, Infer, Inferred, RawNode

FLOATS = frozenset({"float32", "float16", "bfloat16"})
SIGNED_INTEGERS = frozenset({"int8", "int16", "int32", "int64"})
UNSIGNED_INTEGERS = frozenset({"uint8", "uint16", "uint32", "uint64"})
INTEGERS = SIGNED_INTEGERS | UNSIGNED_INTEGERS
NUMERIC = FLOATS | INTEGERS
SIGNED = FLOATS | SIGNED_INTEGERS
BOOLEAN = frozenset({"bool"})
ANY = NUMERIC | BOOLEAN
NARROW_INTEGERS = frozenset({"int4", "uint4", "int2", "uint2"})
FLOAT8 = frozenset({"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"})
CODES = FLOAT8 | {"float4e2m1", "float8e8m0"}
#: What is moved and converted, not computed with
MOVED = ANY | NARROW_INTEGERS | CODES
INDICES = frozenset({"int32", "int64"})


# -- shapes ----------------------------------------------------------------------------------------------------------


def broadcast_dim(left: Dim, right: Dim) -> Dim | None:
    """Return the size of an axis broadcast from two sizes; None when the sizes are incompatible.

    Two sizes are compatible when they are equal for every value of the declared dimensions, or when one of them is the
    constant 1.
    """
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    return None


def broadcast_shapes(node: Node, shapes: Sequence[Shape]) -> Shape:
    """Broadcast any number of shapes by numpy's rules, symbolic dimensions included.

    Raise :class:`ShapeError` for incompatible shapes.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for axis, size in enumerate(shape, offset):
            merged = broadcast_dim(result[axis], size)
            if merged is None:
                listed = " and ".join(describe_shape(each) for each in shapes)
                reason = f"shapes {listed} do not broadcast"
                is_same = require_decided(node, reason, ((result[axis], size), (size, 1), (result[axis], 1)))
                require(is_same, node, reason)
                merged = result[axis]
            result[axis] = merged
    return tuple(result)


def require_decided(node: Node, reason: str, pairs: Sequence[tuple[Dim, Dim]]) -> bool:
    """Return whether the sizes of the first of ``pairs`` are equal, once it is known of each pair.

    Raise :class:`ShapeError` with the ``reason`` where it is not known of one; its cause is the comparison.
    """
    try:
        is_equal, *_ = [ix.equal(*pair) for pair in pairs]
        return is_equal
    except ix.Undecidable as error:
        raise ShapeError(reason, origin=node.origin) from error


def require_equal(node: Node, left: Dim, right: Dim, reason: str) -> None:
    """Raise :class:`ShapeError` unless two sizes are equal, whatever the run."""
    require(require_decided(node, reason, ((left, right),)), node, reason)


def product_shape(node: Node, left: Shape, right: Shape) -> Shape:
    """Return the shape of numpy.matmul: a rank-1 operand gets an axis of size 1, which the result lacks."""
    require(bool(left) and bool(right), node, "a matrix product needs operands of rank at least 1")
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if not ix.equal(rows[-1], columns[-2]):
        raise ShapeError(
            f"{describe_shape(left)} times {describe_shape(right)}: the inner sizes differ",
            origin=node.origin,
        )
    shape = [*broadcast_shapes(node, [rows[:-2], columns[:-2]]), rows[-2], columns[-1]]
    if len(right) == 1:
        shape.pop(-1)
    if len(left) == 1:
        shape.pop(-1 if len(right) == 1 else -2)
    return tuple(shape)


def describe_shape(shape: Shape) -> str:
    return f"({', '.join(ix.text(size) for size in shape)})"


def normalise_axis(node: Node, axis: int, rank: int) -> int:
    """Return ``axis`` counted from the front; a negative one counts from the back.

    Raise :class:`ShapeError` if it is out of range.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for rank {rank}", origin=node.origin)
    return axis + rank if axis < 0 else axis


def normalise_axes(node: Node, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return distinct axes counted from the front, in their order."""
    result = tuple(normalise_axis(node, int(axis), rank) for axis in axes)
    if len(set(result)) != len(result):
        raise ShapeError(f"axes {tuple(axes)} name one axis twice", origin=node.origin)
    return result


def require(condition: bool, node: Node, reason: str) -> None:
    """Raise :class:`ShapeError` with the node's origin unless ``condition`` holds."""
    if not condition:
        raise ShapeError(reason, origin=node.origin)


def require_choice(node: Node, name: str, supported: Collection[Any]) -> None:
    """Raise :class:`UnsupportedError` with the supported values unless the attribute has one of them."""
    value = getattr(node.attributes, name)
    if value not in supported:
        raise UnsupportedError.of_attribute(node.op, name, value, supported, origin=node.origin)


def static_elements(node: Node, value: Value, what: str) -> np.ndarray:
    """Return elements that must be known at compile time.

    Raise :class:`NotKnownError` if they are computed, and :class:`LimitError` if there are too many.
    """
    if value.static_value is None:
        raise _not_known(node, value, what)
    return value.static_value


def _not_known(node: Node, value: Value | None, what: str) -> LimitError | NotKnownError:
    """Return the error for elements that are computed, or a constant of more than the host reads while compiling."""
    if value is not None and value.is_constant:
        return LimitError(f"{what} has {ix.text(value.elements)} elements", origin=node.origin)
    return NotKnownError(f"{what} must be known at compile time", origin=node.origin)


def is_size(size: Dim, number: int) -> bool:
    """Return whether a dimension is the constant ``number``."""
    return not isinstance(size, ix.Index) and size == number


def may_equal(left: Dim, right: Dim) -> bool:
    """Return whether two dimensions are equal for some sizes of the run."""
    try:
        return ix.equal(left, right)
    except ix.Undecidable:
        return True


def require_keys_and_values(node: Node, batch: Dim, key: Value, value: Value) -> None:
    """Raise :class:`ShapeError` unless keys and values agree in all but the last axis, with ``batch`` sequences."""
    sequences = key.shape[0] == value.shape[0] == batch  # nothing is broadcast here
    fits = sequences and key.rank == value.rank and all(map(may_equal, key.shape[:-1], value.shape[:-1]))
    shapes = f"{describe_shape(key.shape)} and {describe_shape(value.shape)}"
    require(fits, node, f"{shapes} are no keys and values of {ix.text(batch)} sequences")


def past_length(node: Node, position: int, key: tuple[Dim, Dim, Dim], value: tuple[Dim, Dim, Dim]) -> Dim:
    """Return how many keys the past has, of which keys are the input ``position`` and values the next; 0 without one.

    ``key`` and ``value`` are the sizes of the other axes: sequences, heads, elements of a head.  Raise
    :class:`ShapeError` where one of them is missing or does not fit.
    """
    past_key, past_value = node.optional(position), node.optional(position + 1)
    require((past_key is None) == (past_value is None), node, "past keys and past values come together")
    if past_key is None or past_value is None:
        return 0
    require(past_key.rank == 4, node, "past keys are not of rank 4")
    length = past_key.shape[2]
    for what, past, (batch, heads, size) in (("keys", past_key, key), ("values", past_value, value)):
        wanted = (batch, heads, length, size)
        fits = past.rank == 4 and all(map(may_equal, past.shape, wanted))
        require(fits, node, f"a past of shape {describe_shape(past.shape)} for {what}, not {describe_shape(wanted)}")
    return length


def concrete(node: Node, size: Dim, what: str) -> int:
    """Return a dimension that must be a number. Raise :class:`ShapeError` for a declared dynamic one."""
    if isinstance(size, ix.Index):
        raise ShapeError(f"{what} must be known, but is {ix.text(size)}", origin=node.origin)
    return int(size)


# -- inference -------------------------------------------------------------------------------------------------------


def same_as_input(position: int = 0) -> Infer:
    """Return the inference of operators whose only output has the type and shape of input ``position``."""

    def infer(node: Node) -> Inferred:
        value = node.operand(position)
        return [(value.dtype, value.shape)]

    return infer


def within_matrix(k: Dim, shape: Shape) -> Dim:
    """Clamp the diagonal ``k`` of matrices to the nearest one that misses them on the same side, a 32-bit integer."""
    rows, columns = shape[-2:]
    return ix.maximum(ix.minimum(k, columns), ix.multiply(rows, -1))


def broadcast_inference(output: DType | None = None, *, same_type: bool = True) -> Infer:
    """Return the inference of broadcasting operators: the type of input 0, or ``output`` (comparisons)."""

    def infer(node: Node) -> Inferred:
        values = [value for value in node.inputs if value is not None]
        require(bool(values), node, f"{node.op} needs at least one operand")
        if same_type:
            require_same_type(node, values)
        return [(output or values[0].dtype, broadcast_shapes(node, [value.shape for value in values]))]

    return infer


def require_same_type(node: Node, values: Sequence[Value]) -> None:
    for value in values[1:]:
        if value.dtype != values[0].dtype:
            raise ShapeError(f"operands of types {values[0].dtype} and {value.dtype}", origin=node.origin)


# -- values known at compile time ------------------------------------------------------------------------------------


def optional_integers(node: Node, position: int) -> list[Dim] | None:
    """Return the elements of an integer input, in order; None when it is omitted or not known at compile time."""
    value = node.optional(position)
    if value is None or value.static_value is None:
        return None
    return [element if isinstance(element, ix.Index) else int(element) for element in value.static_value.reshape(-1)]


def static_dims(node: Node, position: int, what: str) -> list[Dim]:
    """Return the elements, possibly symbolic, of an integer input that must be known at compile time.

    Raise :class:`NotKnownError` if it is not, and :class:`LimitError` if it has too many.
    """
    elements = optional_integers(node, position)
    if elements is None:
        raise _not_known(node, node.optional(position), what)
    return elements


def static_integers(node: Node, position: int, what: str) -> list[int]:
    """Return the elements of an integer input that must be plain numbers at compile time (axes, pads, permutations)."""
    return [concrete(node, element, what) for element in static_dims(node, position, what)]


# -- expressions -----------------------------------------------------------------------------------------------------


def literal(value: float | int | bool, dtype: DType) -> Expr:
    """Return a constant in the compute type of ``dtype``."""
    return ex.const(value, dtype.compute)


def wrap(value: Expr, dtype: DType) -> Expr:
    """Wrap an integer result to the width of ``dtype``: integers of fewer than 32 bits compute in 32."""
    if not dtype.is_integer or dtype.width >= 32:
        return value
    low_bits = ex.binary("and", value, ex.const((1 << dtype.width) - 1, value.dtype))
    if not dtype.is_signed:
        return low_bits
    # sign extension without shifts: flipping the sign bit and subtracting it again
    sign = ex.const(1 << (dtype.width - 1), value.dtype)
    return ex.binary("xor", low_bits, sign) - sign


# -- adapters --------------------------------------------------------------------------------------------------------


def attribute_to_input(name: str, position: int, dtype: np.dtype | type = np.int64) -> Adapter:
    """Return the adapter for an attribute that newer versions take as input ``position``."""

    def adapt(raw: RawNode) -> None:
        value = raw.attributes.pop(name, None)
        if value is not None:
            set_input(raw, position, raw.add_constant(np.asarray(value, dtype)))

    return adapt


def set_input(raw: RawNode, position: int, name: str) -> None:
    """Set an input of a raw node, with omitted ones before it where needed."""
    raw.inputs.extend([""] * (position + 1 - len(raw.inputs)))
    raw.inputs[position] = name


def is_symbolic(array: Any) -> bool:
    """Return whether a known array has the dtype ``object``, and thus may hold ``Index`` elements."""
    return isinstance(array, np.ndarray) and array.dtype == object
