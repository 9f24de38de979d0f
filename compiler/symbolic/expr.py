"""Scalar value expressions: what one element of a fused kernel computes.

An :class:`Expr` is an immutable, hash-consed tree: structurally equal expressions are the same object, so common
subexpressions cost nothing and ``is`` compares.  Trees are lane-agnostic: the code generator renders one tree for a
single element or for four neighbours.  Fusion composes trees with :func:`.substitution.replace`; it never touches text.

Result types are *compute* types (``f32 i32 u32 i64 u64 bool``; see :mod:`.dtypes`).

====================  =========================================================================================
``const``             payload: Python bool, int or float
``load``              payload: :class:`Load` (operand, element type, coordinates); args: none
``coordinate``        payload: :class:`~.polynomial.Dim`; an integer of the iteration space, type i32
``register``          payload: name of a template variable (an accumulator, a reduced value)
``cast``              one argument, converts to the node's type with ONNX's rules
``bitcast``           one argument, the same 32 bits as another type (f32, i32, u32)
``select``            condition, value if true, value if false; both values are computed
``guard``             the same, but the value is computed only where the condition holds (its loads may be out of range)
``word``              four integers of 32 bits: their low bytes as one u32, the first in the low bits
everything else       see ``UNARY``, ``BINARY`` and ``COMPARISONS``
====================  =========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from ...runtime.plan.errors import ShapeError
from ...runtime.plan.record import record
from . import polynomial as ix
from .polynomial import Dim
from .terms import shortened

UNARY = frozenset(
    "neg abs sign exp expm1 log log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "floor ceil round trunc erf erfc not bitnot isnan isinf round_float16 round_bfloat16".split()
)
#: ``mod`` takes the sign of the divisor (Python), ``fmod`` that of the dividend (C); ``div`` truncates on integers
#: ``min`` and ``max`` give NaN for NaN; ``min_number`` and ``max_number`` give either operand then
BINARY = frozenset("add sub mul div mod fmod pow min max min_number max_number and or xor shl shr".split())
COMPARISONS = frozenset("eq ne lt le gt ge".split())
#: Functions of the special function unit, or polynomials of several terms
EXPENSIVE_FUNCTIONS = frozenset(
    "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow sqrt".split()
)
#: Operations that cost about four simple ones
EXPENSIVE = EXPENSIVE_FUNCTIONS | {"div", "mod", "fmod"}
FLOATS = frozenset({"f32"})
_WORDS = frozenset({"i32", "u32"})  #: casts between them change no bit


@record
class Load:
    """One element of an operand.

    While a fused group is being composed, ``coordinates`` are logical, one per axis; once layouts are chosen there is
    one left: the position in the operand's physical order, counted in elements.
    """

    operand: Hashable
    dtype: str  #: storage type, a name of ``runtime.dtypes``
    coordinates: tuple[Dim, ...]

    @property
    def position(self) -> Dim:
        (position,) = self.coordinates
        return position


class Expr:
    """One node of an expression; see the module's table.  Build with the functions of this module."""

    __slots__ = ("__weakref__", "_loads", "args", "dtype", "op", "payload")
    op: str
    args: tuple[Expr, ...]
    dtype: str
    payload: Any
    _loads: tuple[Expr, ...] | None  #: what :func:`loads` gave

    def __repr__(self) -> str:
        return describe(self)

    def __add__(self, other: Expr) -> Expr:
        return binary("add", self, other)

    def __sub__(self, other: Expr) -> Expr:
        return binary("sub", self, other)

    def __mul__(self, other: Expr) -> Expr:
        return binary("mul", self, other)

    def __truediv__(self, other: Expr) -> Expr:
        return binary("div", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)


_interned: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()


def _make(op: str, args: tuple[Expr, ...], dtype: str, payload: Any = None) -> Expr:
    # bool, int and float constants compare equal across types (True == 1 == 1.0) and -0.0 == 0.0: tell them apart
    identity = (op, args, dtype, payload, type(payload), math.copysign(1.0, payload) if op == "const" else 0)
    interned = _interned.get(identity)
    if interned is not None:
        return interned
    node = Expr()
    node.op, node.args, node.dtype, node.payload = op, args, dtype, payload
    node._loads = None
    return _interned.setdefault(identity, node)


def const(value: bool | int | float, dtype: str) -> Expr:
    """Create a literal.  NaN is stored as one canonical object so that it interns."""
    if dtype == "bool":
        return _make("const", (), dtype, bool(value))
    if dtype in FLOATS:
        number = float(value)
        return _make("const", (), dtype, _NAN if number != number else number)
    return _make("const", (), dtype, wrap_integer(int(value), dtype))


_NAN = float("nan")
_INTEGER_BITS = {"i32": (32, True), "u32": (32, False), "i64": (64, True), "u64": (64, False)}


def wrap_integer(value: int, dtype: str) -> int:
    """Reduce ``value`` modulo two to the width of an integer compute type."""
    bits, signed = _INTEGER_BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def load(operand: Hashable, storage: str, position: Dim | tuple[Dim, ...], dtype: str) -> Expr:
    """Load an element of ``operand`` (stored as ``storage``), converted to the compute type ``dtype``.

    ``position`` is the one in memory, or a tuple of logical coordinates; see :class:`Load`.
    """
    coordinates = position if isinstance(position, tuple) else (position,)
    return _make("load", (), dtype, Load(operand, storage, coordinates))


def coordinate(value: Dim) -> Expr:
    """Create an i32 value from an integer of the iteration space."""
    if not isinstance(value, ix.Index):
        return const(value, "i32")
    return _make("coordinate", (), "i32", value)


_32_BITS = range(-(1 << 31), 1 << 31)


def of_dim(value: Dim, dtype: str) -> Expr:
    """Create a value of ``dtype``, exact in its width, from an integer of the iteration space.

    Device indices have 32 bits, and sizes fit them; numbers computed from sizes may not, and are summed in ``dtype``.
    Raises :class:`ShapeError` for a quotient or a comparison of numbers that do not fit.
    """
    if not isinstance(value, ix.Index):
        return const(value, dtype)
    if _fits(value):
        return cast(coordinate(value), dtype)
    total = const(0, dtype)
    for monomial, coefficient in value.terms:
        term = const(coefficient, dtype)
        for atom in monomial:
            if not all(map(_fits, atom.args)):
                raise ShapeError(f"{ix.text(value)} divides or compares numbers of more than 32 bits")
            term = term * cast(coordinate(ix.of_atom(atom)), dtype)
        total = total + term
    return total


def _fits(value: Dim) -> bool:
    """Return whether 32 bits hold an integer, its coefficients, and all operands of its divisions and comparisons."""
    parts = (value, *(argument for atom in ix.atoms(value) for argument in atom.args))
    return all(
        part in _32_BITS
        if not isinstance(part, ix.Index)
        else all(number in _32_BITS for number in (*ix.bounds(part), *(coefficient for _, coefficient in part.terms)))
        for part in parts
    )


def register(name: str, dtype: str) -> Expr:
    """Create a reference to a variable that the kernel template provides."""
    return _make("register", (), dtype, name)


def cast(value: Expr, dtype: str) -> Expr:
    """Convert: floats to integers truncate, anything to bool compares with zero, integers wrap."""
    if value.dtype == dtype:
        return value
    if value.op == "const":
        return _cast_const(value.payload, dtype)
    if value.op == "cast" and value.args[0].dtype == dtype and {dtype, value.dtype} == _WORDS:
        return value.args[0]
    if value.op == "cast" and dtype == "f32" and value.dtype == "i32" and _is_clamped_whole(value.args[0]):
        return binary("add", value.args[0], const(0.0, dtype))  # an integer has no -0
    return _make("cast", (value,), dtype)


def _is_clamped_whole(value: Expr) -> bool:
    """Return whether a float is a whole number that a float and i32 hold exactly; a NaN may be any."""
    if value.op != "min_number" or value.args[0].op != "max_number":
        return False
    rounded, least = value.args[0].args
    return rounded.op == "round" and all(_magnitude(end) < 1 << 24 for end in (least, value.args[1]))


def _magnitude(value: Expr) -> float:
    """Return a bound of sums of whole constants and loaded bytes; infinity for anything else."""
    if value.op == "const":
        return abs(value.payload) if math.isfinite(value.payload) and value.payload % 1 == 0 else math.inf
    if value.op == "load":
        return 255 if value.payload.dtype in ("int8", "uint8") else math.inf
    if value.op == "cast" and value.dtype in ("i32", "f32"):
        return _magnitude(value.args[0])
    if value.op in ("add", "sub") and value.dtype == "i32":
        return sum(map(_magnitude, value.args))
    return math.inf


def bitcast(value: Expr, dtype: str) -> Expr:
    """Reinterpret the bits of a 32-bit value as another 32-bit type."""
    assert {value.dtype, dtype} <= {"f32", "i32", "u32"}, (value.dtype, dtype)
    return value if value.dtype == dtype else _make("bitcast", (value,), dtype)


def _cast_const(value: bool | int | float, dtype: str) -> Expr:
    if dtype == "bool":
        return const(value != 0, "bool")
    if dtype in FLOATS:
        return const(float(value), dtype)
    if isinstance(value, float) and not math.isfinite(value):
        return const(0, dtype)
    return const(int(value), dtype)


def unary(op: str, value: Expr) -> Expr:
    assert op in UNARY, op
    dtype = "bool" if op in ("not", "isnan", "isinf") else value.dtype
    if value.op == "const" and op in ("neg", "not"):
        return const(not value.payload if op == "not" else -value.payload, dtype)
    if op == "neg" and value.op == "neg":
        return value.args[0]
    if op == "not" and value.op == "not":
        return value.args[0]
    return _make(op, (value,), dtype)


def binary(op: str, left: Expr, right: Expr) -> Expr:
    """Create an arithmetic or logical operation on two values of one type."""
    assert op in BINARY, op
    assert left.dtype == right.dtype, (op, left.dtype, right.dtype)
    simpler = _simplify_binary(op, left, right)
    if simpler is not None:
        return simpler
    return _make(op, (left, right), left.dtype)


def _is_const(value: Expr, number: float) -> bool:
    return value.op == "const" and value.dtype != "bool" and value.payload == number


def _simplify_binary(op: str, left: Expr, right: Expr) -> Expr | None:
    """Apply identities that hold for every input, including NaN, infinities and signed zeros; None if none applies."""
    integer = left.dtype not in FLOATS and left.dtype != "bool"
    if op == "mul":
        if _is_const(right, 1):
            return left
        if _is_const(left, 1):
            return right
    elif op == "div" and _is_const(right, 1):
        return left
    elif op == "add" and integer and _is_const(right, 0):
        return left
    elif op == "add" and integer and _is_const(left, 0):
        return right
    elif op == "sub" and integer and _is_const(right, 0):
        return left
    elif op == "sub" and integer and left.op == "add" and right in left.args:  # also where the sum has wrapped
        return left.args[left.args[0] is right]
    elif op == "pow" and right.op == "const" and not integer:
        return _simplify_pow(left, right.payload)
    elif op in ("and", "or") and left.dtype == "bool":
        for one, other in ((left, right), (right, left)):
            if one.op == "const":
                return other if one.payload == (op == "and") else one
    if integer and left.op == right.op == "const" and op in ("add", "sub", "mul"):
        number = {
            "add": left.payload + right.payload,
            "sub": left.payload - right.payload,
            "mul": left.payload * right.payload,
        }[op]
        return const(number, left.dtype)
    return None


def _simplify_pow(base: Expr, exponent: float) -> Expr | None:
    if exponent == 1.0:
        return base
    if exponent == 2.0:
        return binary("mul", base, base)
    if exponent == 3.0:
        return binary("mul", binary("mul", base, base), base)
    if exponent == -1.0:
        return binary("div", const(1.0, base.dtype), base)
    return None


def compare(op: str, left: Expr, right: Expr) -> Expr:
    assert op in COMPARISONS, op
    assert left.dtype == right.dtype, (op, left.dtype, right.dtype)
    return _make(op, (left, right), "bool")


def select(condition: Expr, if_true: Expr, if_false: Expr) -> Expr:
    assert condition.dtype == "bool" and if_true.dtype == if_false.dtype
    if condition.op == "const":
        return if_true if condition.payload else if_false
    if if_true is if_false:
        return if_true
    return _make("select", (condition, if_true, if_false), if_true.dtype)


def guard(condition: Expr, value: Expr, otherwise: Expr) -> Expr:
    """Select ``value`` where ``condition`` holds, else ``otherwise``; its loads execute only there."""
    assert condition.dtype == "bool" and value.dtype == otherwise.dtype
    if condition.op == "const":
        return value if condition.payload else otherwise
    return _make("guard", (condition, value, otherwise), value.dtype)


def in_range(value: Dim, low: Dim, high: Dim) -> Expr:
    """Return ``low <= value < high`` as a bool expression; constant when the bounds decide it."""
    value_low, _ = ix.bounds(value)
    result = const(True, "bool")
    if value_low < ix.bounds(low)[1]:
        result = compare("ge", coordinate(value), coordinate(low))
    if not ix.always_less(value, high):
        upper = compare("lt", coordinate(value), coordinate(high))
        result = upper if result.op == "const" else binary("and", result, upper)
    if result.op != "const" and (ix.always_less(value, low) or ix.always_less(ix.add(high, -1), value)):
        return const(False, "bool")
    return result


def word(codes: Sequence[Expr]) -> Expr:
    """Join the low bytes of four integers of 32 bits."""
    first, second, third, fourth = codes
    return _make("word", (first, second, third, fourth), "u32")


def as_index(value: Expr, low: int, high: int) -> Dim:
    """Use an integer value as a coordinate.  ``low`` and ``high`` (inclusive) must really bound it."""
    if value.op == "const":
        return int(value.payload)
    if value.op == "coordinate":
        return value.payload
    narrow = cast(value, "i32")
    return ix.opaque(narrow, low, high, describe(narrow))


def fold(value: Expr, visit: Callable[[Expr, tuple[Any, ...]], Any], memo: dict[Expr, Any] | None = None) -> Any:
    """Fold bottom-up over the graph of shared nodes (each visited once), without recursion on depth."""
    results: dict[Expr, Any] = {} if memo is None else memo
    stack = [value]
    while stack:
        node = stack[-1]
        if node in results:
            stack.pop()
            continue
        if node.args:
            waiting = [argument for argument in node.args if argument not in results]
            if waiting:
                stack.extend(reversed(waiting))
                continue
        stack.pop()
        results[node] = visit(node, tuple([results[argument] for argument in node.args]))
    return results[value]


def walk(value: Expr) -> list[Expr]:
    """Return all distinct nodes, arguments first, including those inside opaque run-time indices."""
    order: dict[Expr, None] = {}
    stack = [value]
    while stack:
        node = stack[-1]
        if node not in order:
            waiting = [inner for inner in node.args or opaque_values(node) if inner not in order]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            order[node] = None
        stack.pop()
    return list(order)


def opaque_values(node: Expr) -> list[Expr]:
    """Return the value expressions that the position of a load, or a coordinate, reads at run time."""
    if node.op == "load":
        return [value for axis in node.payload.coordinates for value in ix.opaque_payloads(axis)]
    if node.op == "coordinate":
        return ix.opaque_payloads(node.payload)
    return []


def loads(value: Expr) -> tuple[Expr, ...]:
    """Return the distinct load nodes, in evaluation order."""
    nodes = value._loads
    if nodes is None:
        nodes = tuple(node for node in walk(value) if node.op == "load")
        if value.op != "load":  # which would hold itself
            value._loads = nodes
    return nodes


def describe(value: Expr) -> str:
    """Return the deterministic text of an expression, shared nodes written out each time; long text is shortened."""

    def visit(node: Expr, args: tuple[str, ...]) -> str:
        if node.op == "const":
            return f"{node.payload!r}:{node.dtype}"
        if node.op == "load":
            coordinates = ", ".join(ix.text(axis) for axis in node.payload.coordinates)
            return shortened(f"{node.payload.operand}[{coordinates}]")
        if node.op == "coordinate":
            return f"({ix.text(node.payload)})"
        if node.op == "register":
            return str(node.payload)
        name = f"{node.op}<{node.dtype}>" if node.op in ("cast", "bitcast") else node.op
        return shortened(f"{name}({', '.join(args)})")

    return fold(value, visit)
