"""Expressions to WGSL text.

An :class:`Emitter` writes the statements of one function.  The same expression renders for one element or for four
neighbours: in a function of four lanes the variable :data:`LANE` (0 to 3) tells the neighbours apart, and every node is

* *uniform* when it does not depend on the lane: computed once as a scalar;
* a ``vec4`` when its type allows it and its loads are aligned neighbours;
* four scalars otherwise (64-bit integers, scattered loads, guards that differ by lane).

Coordinates are ``i32``.  Divisions of non-negative values by powers of two become shifts and masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from ...runtime.dtypes import BY_NAME
from ...runtime.errors import InternalError
from .. import expr as ex
from .. import index as ix
from ..expr import Expr
from ..index import Dim

LANE = "lane"
LANES = 4
_COMPONENTS = "xyzw"

#: compute types that have a vec4 form, and the WGSL name of each compute type
VECTOR_TYPES = frozenset({"f32", "i32", "u32", "bool"})
WGSL_TYPES = {"f32": "f32", "i32": "i32", "u32": "u32", "bool": "bool", "i64": "vec2<u32>", "u64": "vec2<u32>"}

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_BUILTIN = frozenset("abs sqrt floor ceil trunc round".split())
#: Built-in functions of most of these names lose NaN, or have large errors, on one driver or another
_HELPERS = frozenset(
    "exp expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "pow isnan isinf sign".split()
)
_INLINE_LENGTH = 88  #: longer sub-expressions get a name of their own

Rendered = Union[str, tuple[str, str, str, str]]


def lane_variable() -> Dim:
    return ix.variable(LANE, 0, LANES - 1)


def float_literal(value: float) -> str:
    """A WGSL f32 literal; finite values only."""
    text = repr(float(np.float32(value)))
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f" if value >= 0 and not text.startswith("-") else f"({text}f)"


def symbol_field(name: str) -> str:
    """The field of the ``symbols`` uniform that holds a declared dynamic dimension: a legal WGSL identifier."""
    plain = name.removeprefix(ix.DIMENSION_PREFIX)
    safe = "".join(
        character
        if character.isascii() and character.isalnum()
        else "__"
        if character == "_"
        else f"_{ord(character):x}_"
        for character in plain
    )
    return f"s_{safe}"


#: what a name of the form letter and number must not be
_TYPE_NAMES = frozenset({"i8", "i16", "i32", "i64"})


@dataclass
class Functions:
    """The helper functions and bindings that emitted text needs, collected while emitting."""

    helpers: dict[tuple[str, str], None] = field(default_factory=dict)  #: (name, WGSL type suffix: "1" or "4")
    symbols: dict[str, None] = field(default_factory=dict)  #: declared dynamic dimensions that are read


class Emitter:
    """Writes statements; ``scalar``/``vector`` give the WGSL text of a value.

    ``buffers`` names the array of each operand; ``vector_buffers`` says which of them are declared with four elements
    an entry, and ``paired_buffers`` which of those in two 64-bit words.  ``symbols`` are the declared dynamic
    dimensions.
    """

    def __init__(
        self,
        buffers: Mapping[object, str],
        vector_buffers: frozenset[object],
        symbols: frozenset[str],
        functions: Functions,
        vector_registers: frozenset[str] = frozenset(),
        paired_buffers: frozenset[object] = frozenset(),
    ) -> None:
        self.buffers = buffers
        self.vector_buffers = vector_buffers
        self.symbols = symbols
        self.functions = functions
        self.vector_registers = vector_registers
        self.paired_buffers = paired_buffers
        self.lines: list[str] = []
        self.indent = 1
        self._counter = 0
        self._scalars: dict[Expr, str] = {}
        self._vectors: dict[Expr, Rendered] = {}
        self._atoms: dict[ix.Atom, str] = {}
        self._varies: dict[Expr, bool] = {}

    # -- statements ----------------------------------------------------------------------------------------------

    def write(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def _name(self, text: str, prefix: str = "t") -> str:
        self._counter += 1
        name = f"{prefix}{self._counter}"
        if name in _TYPE_NAMES:
            return self._name(text, prefix)
        self.write(f"let {name} = {text};")
        return name

    def _short(self, text: str) -> str:
        return text if len(text) <= _INLINE_LENGTH else self._name(text)

    def _place(self, position: Dim) -> str:
        """An index into an array.  One below zero is of an element that nobody uses, and naga refuses the literal."""
        return self.index(position if isinstance(position, ix.Index) else max(position, 0))

    # -- indices -------------------------------------------------------------------------------------------------

    def index(self, value: Dim) -> str:
        """An i32 expression."""
        if not isinstance(value, ix.Index):
            return str(int(value))
        parts: list[str] = []
        for monomial, coefficient in value.terms:
            factors = [self._atom(atom) for atom in monomial]
            if not factors or abs(coefficient) != 1:
                factors.append(str(abs(coefficient)))
            term = " * ".join(factors)
            if not parts:
                parts.append(
                    f"-{term}" if coefficient < 0 and len(factors) == 1 else f"-({term})" if coefficient < 0 else term
                )
            else:
                parts.append(f"{'-' if coefficient < 0 else '+'} {term}")
        return (
            parts[0]
            if len(parts) == 1 and len(value.terms[0][0]) == 1 and abs(value.terms[0][1]) == 1 and value.terms[0][1] > 0
            else f"({' '.join(parts)})"
        )

    def _atom(self, atom: ix.Atom) -> str:
        if atom.kind == "var":
            if atom.payload in self.symbols:
                self.functions.symbols[atom.payload] = None
                return f"symbols.{symbol_field(atom.payload)}"
            return str(atom.payload)
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._compose_atom(atom)
        return found

    def _compose_atom(self, atom: ix.Atom) -> str:
        if atom.kind == "opaque":
            text = self.scalar(atom.payload)
            return text if text.isidentifier() else self._name(text, "i")
        left, right = atom.args
        left_text, right_text = self.index(left), self.index(right)
        if atom.kind in ("min", "max"):
            return self._name(f"{atom.kind}({left_text}, {right_text})", "i")
        non_negative = ix.bounds(left)[0] >= 0
        power = right if isinstance(right, int) and right & (right - 1) == 0 else 0
        if atom.kind == "floordiv":
            if power:  # an arithmetic shift floors, also for negative values
                return self._name(f"{left_text} >> {power.bit_length() - 1}u", "i")
            if non_negative:
                return self._name(f"{left_text} / {right_text}", "i")
            self.functions.helpers["floor_div", "1"] = None
            return self._name(f"floor_div_1({left_text}, {right_text})", "i")
        if power:
            return self._name(f"{left_text} & {power - 1}", "i")
        if non_negative:
            return self._name(f"{left_text} % {right_text}", "i")
        self.functions.helpers["floor_mod_i32", "1"] = None
        return self._name(f"floor_mod_i32_1({left_text}, {right_text})", "i")

    # -- lanes ---------------------------------------------------------------------------------------------------

    def varies(self, value: Expr) -> bool:
        """Whether the value differs between the four lanes."""

        def visit(node: Expr, args: tuple[bool, ...]) -> bool:
            if any(args):
                return True
            if node.op == "load":
                return any(self._index_varies(axis) for axis in node.payload.coordinates)
            if node.op == "coordinate":
                return self._index_varies(node.payload)
            return node.op == "register" and node.payload in self.vector_registers

        return bool(ex.fold(value, visit, self._varies))

    def _index_varies(self, value: Dim) -> bool:
        if LANE in ix.variables(value):
            return True
        return any(self.varies(inner) for inner in ex.opaque_in(value))

    def at_lane(self, value: Expr, lane: int) -> Expr:
        """The value for one lane."""

        def leaf(node: Expr) -> Expr | None:
            if node.op == "register" and node.payload in self.vector_registers:
                return ex.register(f"{node.payload}.{_COMPONENTS[lane]}", node.dtype)
            return None

        value = ex.substitute_variables(value, {LANE: lane})
        return ex.replace(value, leaf) if self.vector_registers else value

    # -- scalars -------------------------------------------------------------------------------------------------

    def scalar(self, value: Expr) -> str:
        """Text of a value that does not depend on the lane."""
        # Guarded values must not be computed before their condition is known, so this walk is written by hand.
        found = self._scalars.get(value)
        if found is not None:
            return found
        for node in self._postorder(value, self._scalars):
            if node in self._scalars:
                continue
            if node.op == "guard":
                text = self._guard(node, self.scalar, WGSL_TYPES[node.dtype])
            else:
                arguments = [self._scalars[argument] for argument in node.args]
                text = self._leaf(node) if not node.args else self.operation(node, arguments, 1)
            self._scalars[node] = text if self._is_atomic(text) else self._short(text)
        return self._scalars[value]

    @staticmethod
    def _is_atomic(text: str) -> bool:
        return text.replace(".", "").replace("_", "").isalnum()

    @staticmethod
    def _postorder(value: Expr, done: Mapping[Expr, object]) -> list[Expr]:
        """Nodes to compute, arguments first; does not look into guarded values."""
        order: list[Expr] = []
        seen: set[Expr] = set()
        stack = [(value, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                continue
            if node in seen or node in done:
                continue
            seen.add(node)
            stack.append((node, True))
            if node.op != "guard":
                stack.extend((argument, False) for argument in reversed(node.args))
        return order

    @contextmanager
    def scope(self, opening: str) -> Iterator[None]:
        """A block: names that are made inside are forgotten at its end."""
        self.write(opening)
        saved = dict(self._scalars), dict(self._vectors), dict(self._atoms)
        self.indent += 1
        yield
        self.indent -= 1
        self._scalars, self._vectors, self._atoms = saved
        self.write("}")

    def _guard(self, node: Expr, render: Callable[[Expr], Rendered], wgsl_type: str) -> str:
        condition, value, otherwise = node.args
        condition_text = self.scalar(condition)
        self._counter += 1
        name = f"g{self._counter}"
        self.write(f"var {name}: {wgsl_type} = {render(otherwise)};")
        with self.scope(f"if ({condition_text}) {{"):
            self.write(f"{name} = {render(value)};")
        return name

    def _leaf(self, node: Expr) -> str:
        if node.op == "const":
            return self.literal(node)
        if node.op == "coordinate":
            return self.index(node.payload)
        if node.op == "register":
            return str(node.payload)
        if node.op == "load":
            return self._load_scalar(node)
        raise InternalError(f"cannot render {node.op}")

    def literal(self, node: Expr) -> str:
        value = node.payload
        if node.dtype == "bool":
            return "true" if value else "false"
        if node.dtype == "f32":
            if math.isfinite(np.float32(value)):
                return float_literal(value)
            name = "not_a_number" if value != value else "infinity"
            self.functions.helpers[name, "1"] = None
            return f"-{name}_1()" if value < 0 else f"{name}_1()"
        if node.dtype == "i32":
            return str(value) if value >= 0 else f"i32({value})"
        if node.dtype == "u32":
            return f"{value}u"
        bits = value & (1 << 64) - 1
        return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)"

    def _load_scalar(self, node: Expr) -> str:
        payload = node.payload
        buffer = self.buffers[payload.operand]
        storage = BY_NAME[payload.dtype]
        wide = payload.operand in self.vector_buffers
        position = payload.position
        if storage.packing == 1:
            if wide:
                vector, component = ix.floordiv(position, LANES), ix.modulo(position, LANES)
                if payload.operand in self.paired_buffers:
                    self.functions.helpers["of_pair", "1"] = None
                    pair, half = ix.floordiv(component, 2), ix.modulo(component, 2)
                    return f"of_pair_1({buffer}[{self._place(vector)}][{self.index(pair)}], {self.index(half)})"
                return f"{buffer}[{self._place(vector)}][{self.index(component)}]"
            return f"{buffer}[{self._place(position)}]"
        per_word = storage.packing
        word = self._place(ix.floordiv(position, per_word))
        if wide and per_word == 2:
            word_vector, component = ix.floordiv(position, 4), ix.modulo(ix.floordiv(position, 2), 2)
            text = f"{buffer}[{self._place(word_vector)}][{self.index(component)}]"
        else:
            text = f"{buffer}[{word}]"
        helper = f"unpack_{storage.format}"
        self.functions.helpers[helper, "1"] = None
        return f"{helper}_1({text}, {self.index(ix.modulo(position, per_word))})"

    # -- vectors -------------------------------------------------------------------------------------------------

    def vector(self, value: Expr) -> Rendered:
        """Text of a ``vec4``, or of four scalars for types that have no vec4 form."""
        found = self._vectors.get(value)
        if found is not None:
            return found
        for node in self._postorder(value, self._vectors):
            if node not in self._vectors:
                self._vectors[node] = self._vector_node(node)
        return self._vectors[value]

    def _vector_node(self, node: Expr) -> Rendered:
        has_vector = node.dtype in VECTOR_TYPES
        if not self.varies(node):
            text = self.scalar(node)
            return f"vec4<{WGSL_TYPES[node.dtype]}>({text})" if has_vector else (text, text, text, text)
        if node.op == "register":
            return str(node.payload)
        if node.op == "guard":
            condition = self.without_lane(node.args[0])
            if condition is not None and has_vector:
                uniform = ex.guard(condition, node.args[1], node.args[2])
                return self._guard(uniform, self.vector, f"vec4<{WGSL_TYPES[node.dtype]}>")
            return self._by_lane(node)
        if node.op == "load":
            return self._load_vector(node)
        if node.op == "coordinate":
            return self._coordinate_vector(node)
        if node.op in ex.COMPARISONS:
            condition = self.without_lane(node)
            if condition is not None:
                return f"vec4<bool>({self.scalar(condition)})"
        arguments = [self._vectors[argument] for argument in node.args]
        if has_vector and all(isinstance(argument, str) for argument in arguments):
            text = self.operation(node, [str(argument) for argument in arguments], LANES)
            return text if self._is_atomic(text) else self._short(text)
        lanes = []
        for lane in range(LANES):
            parts = [self._component(argument, lane) for argument in arguments]
            lanes.append(self._short(self.operation(node, parts, 1)))
        return self._assemble(node, lanes)

    def _component(self, rendered: Rendered, lane: int) -> str:
        if isinstance(rendered, tuple):
            return rendered[lane]
        return f"{rendered}.{_COMPONENTS[lane]}"

    def _assemble(self, node: Expr, lanes: list[str]) -> Rendered:
        if node.dtype in VECTOR_TYPES:
            return self._name(f"vec4<{WGSL_TYPES[node.dtype]}>({', '.join(lanes)})")
        return lanes[0], lanes[1], lanes[2], lanes[3]

    def _by_lane(self, node: Expr) -> Rendered:
        return self._assemble(node, [self.scalar(self.at_lane(node, lane)) for lane in range(LANES)])

    def without_lane(self, condition: Expr) -> Expr | None:
        """The condition without the lane, when all four lanes agree on it."""
        if not self.varies(condition):
            return condition
        if condition.op in ("and", "or"):
            parts = [self.without_lane(argument) for argument in condition.args]
            if parts[0] is None or parts[1] is None:
                return None
            return ex.binary(condition.op, parts[0], parts[1])
        if (
            condition.op in ("lt", "ge")
            and condition.args[0].op == "coordinate"
            and condition.args[1].op in ("const", "coordinate")
        ):
            low, step = split_lane(condition.args[0].payload)
            bound = condition.args[1].payload
            if step == 1 and low is not None and _divisible(low, LANES) and _divisible(bound, LANES):
                return ex.compare(condition.op, ex.coordinate(low), condition.args[1])
        return None

    def _coordinate_vector(self, node: Expr) -> Rendered:
        base, step = split_lane(node.payload)
        if base is None:
            return self._by_lane(node)
        lanes = ", ".join(str(step * lane) for lane in range(LANES))
        return f"(vec4<i32>({self.index(base)}) + vec4<i32>({lanes}))"

    def _load_vector(self, node: Expr) -> Rendered:
        payload = node.payload
        base, _ = split_lane(payload.position)
        if not is_aligned(payload.position) or node.dtype not in VECTOR_TYPES:
            return self._by_lane(node)
        assert base is not None
        quarter = self._place(ix.floordiv(base, LANES))
        buffer = self.buffers[payload.operand]
        storage = BY_NAME[payload.dtype]
        if storage.packing == 4:
            helper = f"unpack_{storage.format}"
            self.functions.helpers[helper, "4"] = None
            return self._name(f"{helper}_4({buffer}[{quarter}])")
        text = f"{buffer}[{quarter}]"
        if payload.operand in self.paired_buffers:
            self.functions.helpers["of_pairs", "4"] = None
            text = f"of_pairs_4({text})"
        if storage.packing == 2:
            helper = f"unpack_{storage.format}"
            self.functions.helpers[helper, "4"] = None
            text = f"{helper}_4({text})"
        return self._name(text)

    def words(self, value: Expr) -> str:
        """The packed words of a value that has :func:`packed_words`; zeros where a guard fails."""
        kind, _ = packed_words(value) or ("", "")
        if value.op == "guard":
            condition = self.without_lane(value.args[0])
            assert condition is not None
            zero = ex.const(0, value.dtype)
            uniform = ex.guard(condition, value.args[1], zero)
            return self._guard(uniform, lambda node: f"{kind}()" if node is zero else self.words(node), kind)
        base, _ = split_lane(value.payload.position)
        assert base is not None
        return f"{self.buffers[value.payload.operand]}[{self._place(ix.floordiv(base, LANES))}]"

    # -- operations ----------------------------------------------------------------------------------------------

    def operation(self, node: Expr, arguments: list[str], lanes: int) -> str:
        """Text of one operation on rendered arguments of one or four lanes."""
        op, dtype = node.op, node.args[-1].dtype
        if dtype in ("i64", "u64") or node.dtype in ("i64", "u64"):
            return self._wide_operation(node, arguments)
        if op == "cast":
            return self._cast(node, arguments[0], lanes)
        if op == "bitcast":
            return f"bitcast<{self._type(node.dtype, lanes)}>({arguments[0]})"
        if op == "select":
            return f"select({arguments[2]}, {arguments[1]}, {arguments[0]})"
        if op == "neg":
            return f"(-{arguments[0]})" if dtype != "u32" else f"(~{arguments[0]} + {self._splat('1u', lanes, 'u32')})"
        if op == "not":
            return f"!{arguments[0]}" if self._is_atomic(arguments[0]) else f"(!{arguments[0]})"
        if op == "bitnot":
            return f"(~{arguments[0]})"
        if op == "xor" and dtype == "bool":
            return f"({arguments[0]} != {arguments[1]})"
        if op in ("shl", "shr"):
            return self._call(f"{op}_{dtype}", arguments, lanes)
        if op in ("min", "max"):
            return self._extremum(node, arguments, lanes)
        if op == "mod" and dtype == "f32":
            return self._call("floor_mod_f32", arguments, lanes)
        if op in ("mod", "fmod") and dtype == "i32":
            return self._call("floor_mod_i32" if op == "mod" else "fmod_i32", arguments, lanes)
        if op in ("mod", "fmod"):
            return f"({arguments[0]} % {arguments[1]})"
        if op in ("lt", "le", "gt", "ge") and dtype == "bool":
            raise InternalError(f"{op} on bool")
        if op == "ne" and dtype == "f32":  # naga compares in order: x != y is false for NaN
            return f"(!({arguments[0]} == {arguments[1]}))"
        if op in _INFIX:
            return f"({arguments[0]} {_INFIX[op]} {arguments[1]})"
        if op in ("abs", "sign") and dtype == "u32":
            return arguments[0] if op == "abs" else f"min({arguments[0]}, {self._splat('1u', lanes, 'u32')})"
        if op in ("floor", "ceil", "round", "trunc") and dtype != "f32":
            return arguments[0]
        if op in ("isnan", "isinf") and dtype != "f32":
            return self._splat("false", lanes, "bool")
        if op in _BUILTIN:
            return f"{op}({arguments[0]})"
        if op in _HELPERS:
            return self._call(op if dtype == "f32" else f"{op}_{dtype}", arguments, lanes)
        raise InternalError(f"operation {op} on {dtype} has no WGSL form")

    def _splat(self, text: str, lanes: int, wgsl_type: str) -> str:
        return text if lanes == 1 else f"vec4<{wgsl_type}>({text})"

    def _call(self, helper: str, arguments: list[str], lanes: int) -> str:
        suffix = "4" if lanes == LANES else "1"
        self.functions.helpers[helper, suffix] = None
        return f"{helper}_{suffix}({', '.join(arguments)})"

    def _extremum(self, node: Expr, arguments: list[str], lanes: int) -> str:
        """Minimum or maximum where NaN wins, as in ONNX.

        The built-in functions may lose NaN.  A comparison that NaN fails does so too: some drivers take it for a sign
        that there is none.  So bits decide.
        """
        op = node.op
        if node.args[0].dtype != "f32":
            return f"{op}({arguments[0]}, {arguments[1]})"
        left, right = arguments
        if node.args[0].op == "const":
            left, right = right, left
        elif node.args[1].op != "const":
            return self._call(f"{op}_f32", arguments, lanes)
        value = self._short(left) if self._is_atomic(left) else self._name(left)
        return f"select({op}({value}, {right}), {value}, {self._call('isnan', [value], lanes)})"

    def _cast(self, node: Expr, argument: str, lanes: int) -> str:
        source, target = node.args[0].dtype, node.dtype
        if target == "bool":
            zero = self._splat({"f32": "0.0f", "i32": "0", "u32": "0u"}[source], lanes, source)
            # naga compares floats in order: NaN != 0 would be false
            return f"(!({argument} == {zero}))" if source == "f32" else f"({argument} != {zero})"
        return f"{self._type(target, lanes)}({argument})"

    @staticmethod
    def _type(dtype: str, lanes: int) -> str:
        return WGSL_TYPES[dtype] if lanes == 1 else f"vec4<{WGSL_TYPES[dtype]}>"

    def _wide_operation(self, node: Expr, arguments: list[str]) -> str:
        """64-bit integers: two words, helpers of their own; one lane at a time."""
        op = node.op
        if op == "cast":
            return self._call(f"{node.args[0].dtype}_to_{node.dtype}", arguments, 1)
        if op == "select":
            return f"select({arguments[2]}, {arguments[1]}, {arguments[0]})"
        if op in ("eq", "ne"):
            quantifier = "all" if op == "eq" else "any"
            return f"{quantifier}({arguments[0]} {_INFIX[op]} {arguments[1]})"
        if op in ("and", "or", "xor"):
            return f"({arguments[0]} {_INFIX[op]} {arguments[1]})"
        if op == "bitnot":
            return f"(~{arguments[0]})"
        if op in ("floor", "ceil", "round", "trunc") or (op == "abs" and node.dtype == "u64"):
            return arguments[0]
        if op in ("isnan", "isinf"):
            return "false"
        if op in ("gt", "le"):  # a > b is b < a; a <= b is not b < a
            less = self._call(f"lt_{node.args[0].dtype}", arguments[::-1], 1)
            return less if op == "gt" else f"(!{less})"
        if op in ("lt", "ge"):
            less = self._call(f"lt_{node.args[0].dtype}", arguments, 1)
            return less if op == "lt" else f"(!{less})"
        dtype = node.dtype
        if op in ("add", "sub", "mul", "neg"):
            dtype = "i64"  # the same bits for signed and unsigned
        return self._call(f"{op}_{dtype}", arguments, 1)


def packed_words(value: Expr) -> tuple[str, str] | None:
    """The WGSL type of the words behind four neighbours of a packed operand, and the helper that unpacks them.

    None for values that are more than that: a guard with zeros is all that may be around the load.
    """
    if value.op == "guard":
        _, inside, otherwise = value.args
        if otherwise.op != "const" or otherwise.payload != 0 or inside.op != "load":
            return None
        return packed_words(inside)
    if value.op != "load" or not is_aligned(value.payload.position) or value.dtype not in VECTOR_TYPES:
        return None
    storage = BY_NAME[value.payload.dtype]
    kinds = {2: "vec2<u32>", 4: "u32"}
    return (kinds[storage.packing], f"unpack_{storage.name}") if storage.packing in kinds else None


def depends_on_lane(value: Dim) -> bool:
    """Whether an index differs between lanes, directly or through a run-time value that it reads."""
    if LANE in ix.variables(value):
        return True
    for inner in ex.opaque_in(value):
        for node in ex.walk(inner):
            if node.op == "load":
                where = node.payload.coordinates
            else:
                where = (node.payload,) if node.op == "coordinate" else ()
            if any(LANE in ix.variables(axis) for axis in where):
                return True
    return False


def split_lane(value: Dim) -> tuple[Dim | None, int]:
    """``value == base + step * lane`` with a base that does not depend on the lane; (None, 0) if it is not so."""
    if not isinstance(value, ix.Index):
        return value, 0
    step = 0
    rest: Dim = 0
    for monomial, coefficient in value.terms:
        if len(monomial) == 1 and monomial[0].kind == "var" and monomial[0].payload == LANE:
            step = coefficient
            continue
        term = ix.Index(((monomial, coefficient),)) if monomial else coefficient
        if depends_on_lane(term):
            return None, 0
        rest = ix.add(rest, term)
    return rest, step


def is_aligned(position: Dim) -> bool:
    """Whether the four lanes touch four neighbours that start at a multiple of four."""
    base, step = split_lane(position)
    return base is not None and step == 1 and _divisible(base, LANES)


def _divisible(value: Dim, divisor: int) -> bool:
    if not isinstance(value, ix.Index):
        return int(value) % divisor == 0
    return all(coefficient % divisor == 0 for _, coefficient in value.terms)
