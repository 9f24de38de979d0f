"""Expressions to WGSL text.

An :class:`Emitter` writes the statements of one function.  The same expression renders for one element or for four
neighbours: in a function of four lanes every node is

* *uniform* when it does not depend on the lane: computed once as a scalar;
* a ``vec4`` when its type allows it and its loads are aligned neighbours;
* four scalars otherwise (64-bit integers, scattered loads, guards that differ by lane).

Coordinates are ``i32``.  Divisions of non-negative values by powers of two become shifts and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Union

from ...runtime.plan.dtypes import BY_NAME
from ...runtime.plan.errors import InternalError
from ..ir.dataflow import post_order
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic import substitution
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANE, LANES, is_aligned, is_multiple, split_lane
from ..symbolic.polynomial import Dim
from .operations import literal, operation
from .types import VECTOR_TYPES, wgsl_type
from .writer import Functions, Writer, bare, is_atomic, symbol_field

_COMPONENTS = "xyzw"
#: Operations of WGSL on a vector and a scalar
_MIXED = frozenset(("add", "sub", "mul", "div"))

Rendered = Union[str, tuple[str, str, str, str]]

#: Element types that two to a 64-bit word may be read as, with the helper that takes one out of it
PAIRED = {"float32": "of_pair", "uint32": "of_word_pair"}


class Emitter(Writer):
    """Writes statements; ``scalar``/``vector`` give the WGSL text of a value.

    ``buffers`` names the array of each operand; ``vector_buffers`` says which of them are declared with four elements
    an entry, ``paired_buffers`` which of those in two 64-bit words, and ``word_buffers`` which of packed bytes with
    four words.  ``symbols`` are the declared dynamic dimensions.
    """

    def __init__(
        self,
        buffers: Mapping[object, str],
        vector_buffers: frozenset[object],
        symbols: frozenset[str],
        functions: Functions,
        vector_registers: frozenset[str] = frozenset(),
        paired_buffers: frozenset[object] = frozenset(),
        word_buffers: frozenset[object] = frozenset(),
    ) -> None:
        super().__init__(functions)
        self.buffers = buffers
        self.vector_buffers = vector_buffers
        self.symbols = symbols
        self.vector_registers = vector_registers
        self.paired_buffers = paired_buffers
        self.word_buffers = word_buffers
        self._scalars: dict[Expr, str] = {}
        self._vectors: dict[Expr, Rendered] = {}
        self._atoms: dict[ix.Atom, str] = {}
        self._varies: dict[Expr, bool] = {}
        self._at_lane = [substitution.Substitution({LANE: lane}) for lane in range(LANES)]

    # -- indices -------------------------------------------------------------------------------------------------

    def _place(self, position: Dim) -> str:
        """Emit an array index, clamped to 0: naga rejects negative literals, whose elements are never used."""
        return bare(self.index(position if isinstance(position, ix.Index) else max(position, 0)))

    def index(self, value: Dim) -> str:
        """Emit an i32 expression."""
        if not isinstance(value, ix.Index):
            return self._number(int(value))
        parts: list[str] = []
        for monomial, coefficient in value.terms:
            factors = [self._atom(atom) for atom in monomial]
            if not factors or abs(coefficient) != 1:
                factors.append(self._number(abs(coefficient)))
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

    def _number(self, value: int) -> str:
        """Emit an integer."""
        return self._field(value) or str(value)

    def _field(self, value: int) -> str | None:
        """Return a field that holds a number; None for one that the text spells.

        Any text spells what may be the number of a lane, and what exceeds 32 bits.
        """
        numbers = self.functions.numbers
        if numbers is None or 0 <= value < LANES or abs(value) >= 1 << 31:
            return None
        return numbers.field(value)

    def _atom(self, atom: ix.Atom) -> str:
        if atom.kind == "var":
            if atom.payload in self.symbols:
                self.functions.symbols[atom.payload] = None
                return f"symbols.{symbol_field(atom.payload)}"
            return str(atom.payload)
        text = self._atoms.get(atom)
        if text is None:
            text = self._atoms[atom] = self._compose_atom(atom)
        return text

    def _compose_atom(self, atom: ix.Atom) -> str:
        if atom.kind == "opaque":
            text = self.scalar(atom.payload)
            return text if text.isidentifier() else self.name(text, "i")
        left, right = atom.args
        numbers = self.functions.numbers
        left_text = self.index(left)
        if atom.kind in ("min", "max"):
            return self.name(f"{atom.kind}({left_text}, {self.index(right)})", "i")
        # a divisor is never the number of a lane
        right_text = self.index(right) if numbers is None or not isinstance(right, int) else numbers.field(right)
        non_negative = ix.bounds(left)[0] >= 0
        if numbers is not None and non_negative:
            operator = "/" if atom.kind == "floordiv" else "%"
            return self.name(f"i32(u32({left_text}) {operator} u32({right_text}))", "i")
        power = right if numbers is None and isinstance(right, int) and right & (right - 1) == 0 else 0
        if atom.kind == "floordiv":
            if power:  # an arithmetic shift floors, also for negative values
                return self.name(f"{left_text} >> {power.bit_length() - 1}u", "i")
            if non_negative:
                return self.name(f"{left_text} / {right_text}", "i")
            return self.name(self.call("floor_div", [left_text, right_text]), "i")
        if power:
            return self.name(f"{left_text} & {power - 1}", "i")
        if non_negative:
            return self.name(f"{left_text} % {right_text}", "i")
        return self.name(self.call("floor_mod_i32", [left_text, right_text]), "i")

    # -- lanes ---------------------------------------------------------------------------------------------------

    def varies(self, value: Expr) -> bool:
        """Return whether the value differs between the four lanes."""

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
        return any(self.varies(inner) for inner in ix.opaque_payloads(value))

    def at_lane(self, value: Expr, lane: int) -> Expr:
        """Return the expression of the value in one lane."""

        def leaf(node: Expr) -> Expr | None:
            if node.op == "register" and node.payload in self.vector_registers:
                return ex.register(f"{node.payload}.{_COMPONENTS[lane]}", node.dtype)
            return None

        value = self._at_lane[lane](value)
        return substitution.replace(value, leaf) if self.vector_registers else value

    # -- scalars -------------------------------------------------------------------------------------------------

    def scalar(self, value: Expr) -> str:
        """Return the text of a value that does not depend on the lane."""
        # Guarded values must not be computed before their condition is known, so this walk is written by hand.
        present = self._scalars.get(value)
        if present is not None:
            return present
        for node in self._postorder(value, self._scalars):
            if node in self._scalars:
                continue
            if node.op == "guard":
                text = self._guard(node, self.scalar)
            else:
                arguments = [self._scalars[argument] for argument in node.args]
                text = self._leaf(node) if not node.args else operation(node, arguments, 1, self)
            self._scalars[node] = text if is_atomic(text) else self.short(text)
        return self._scalars[value]

    @staticmethod
    def _postorder(value: Expr, done: Mapping[Expr, object]) -> list[Expr]:
        """Return the nodes to compute, arguments first; guarded values are not entered."""
        left = post_order([value], lambda node: () if node.op == "guard" or node in done else node.args)
        return [node for node in left if node not in done]

    @contextmanager
    def scope(self, opening: str) -> Iterator[None]:
        """Open a block; names that are defined inside go out of scope at its end."""
        self.write(opening)
        saved = dict(self._scalars), dict(self._vectors), dict(self._atoms)
        self.indent += 1
        yield
        self.indent -= 1
        self._scalars, self._vectors, self._atoms = saved
        self.write("}")

    def _guard(self, node: Expr, render: Callable[[Expr], Rendered]) -> str:
        condition, value, otherwise = node.args
        condition_text = self.scalar(condition)
        name = f"g{self.number()}"
        self.write(f"var {name} = {render(otherwise)};")
        with self.scope(f"if ({bare(condition_text)}) {{"):
            self.write_value(f"{name} = ", str(render(value)))
        return name

    def _leaf(self, node: Expr) -> str:
        if node.op == "const":
            return (self._field(node.payload) if node.dtype == "i32" else None) or literal(node, self)
        if node.op == "coordinate":
            return self.index(node.payload)
        if node.op == "register":
            return str(node.payload)
        if node.op == "load":
            return self._load_scalar(node)
        raise InternalError(f"cannot render {node.op}")

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
                    pair, half = ix.floordiv(component, 2), ix.modulo(component, 2)
                    word = f"{buffer}[{self._place(vector)}][{self.index(pair)}]"
                    return self.call(PAIRED[payload.dtype], [word, self.index(half)])
                return f"{buffer}[{self._place(vector)}][{self.index(component)}]"
            return self._word(payload.operand, position)
        per_word = storage.packing
        if wide and per_word == 2:
            word_vector, component = ix.floordiv(position, 4), ix.modulo(ix.floordiv(position, 2), 2)
            text = f"{buffer}[{self._place(word_vector)}][{self.index(component)}]"
        else:
            text = self._word(payload.operand, ix.floordiv(position, per_word))
        return self.call(f"unpack_{storage.format}", [text, self.index(ix.modulo(position, per_word))])

    def _word(self, operand: object, number: Dim) -> str:
        """Emit entry ``number`` of an operand that is not declared with four elements an entry."""
        buffer = self.buffers[operand]
        if operand not in self.word_buffers:
            return f"{buffer}[{self._place(number)}]"
        return f"{buffer}[{self._place(ix.floordiv(number, LANES))}][{self.index(ix.modulo(number, LANES))}]"

    # -- vectors -------------------------------------------------------------------------------------------------

    def vector(self, value: Expr) -> Rendered:
        """Return the text of a ``vec4``, or of four scalars for types that have no vec4 form."""
        rendered = self._vectors.get(value)
        if rendered is not None:
            return rendered
        for node in self._postorder(value, self._vectors):
            if node not in self._vectors:
                self._vectors[node] = self._vector_node(node)
        return self._vectors[value]

    def _vector_node(self, node: Expr) -> Rendered:
        has_vector = node.dtype in VECTOR_TYPES
        if not self.varies(node):
            text = self.scalar(node)
            return f"{wgsl_type(node.dtype, LANES)}({text})" if has_vector else (text, text, text, text)
        if node.op == "register":
            return str(node.payload)
        if node.op == "guard":
            condition = self.without_lane(node.args[0])
            if condition is not None and has_vector:
                uniform = ex.guard(condition, node.args[1], node.args[2])
                return self._guard(uniform, self.vector)
            return self._by_lane(node)
        if node.op == "load":
            return self._load_vector(node)
        if node.op == "coordinate":
            return self._coordinate_vector(node)
        if node.op in ex.COMPARISONS:
            condition = self.without_lane(node)
            if condition is not None:
                return f"vec4<bool>({self.scalar(condition)})"
        arguments = [self._argument(node, argument) for argument in node.args]
        if has_vector and all(isinstance(argument, str) for argument in arguments):
            text = operation(node, [str(argument) for argument in arguments], LANES, self)
            return text if is_atomic(text) else self.short(text)
        lanes = []
        for lane in range(LANES):
            parts = [self._component(argument, lane) for argument in arguments]
            lanes.append(self.short(operation(node, parts, 1, self)))
        return self._assemble(node, lanes)

    def _argument(self, node: Expr, argument: Expr) -> Rendered:
        """Return an argument of a node that differs between lanes; arithmetic takes a scalar beside a vector."""
        scalar = node.op in _MIXED and argument.dtype in VECTOR_TYPES and not self.varies(argument)
        return self.scalar(argument) if scalar else self._vectors[argument]

    def _component(self, rendered: Rendered, lane: int) -> str:
        if isinstance(rendered, tuple):
            return rendered[lane]
        return f"{rendered}.{_COMPONENTS[lane]}"

    def _assemble(self, node: Expr, lanes: list[str]) -> Rendered:
        if node.dtype in VECTOR_TYPES:
            return self.name(f"{wgsl_type(node.dtype, LANES)}({', '.join(lanes)})")
        return lanes[0], lanes[1], lanes[2], lanes[3]

    def _by_lane(self, node: Expr) -> Rendered:
        return self._assemble(node, [self.scalar(self.at_lane(node, lane)) for lane in range(LANES)])

    def without_lane(self, condition: Expr) -> Expr | None:
        """Return a lane-independent form of the condition if all four lanes agree on it, else None."""
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
            if step == 1 and low is not None and is_multiple(low, LANES) and is_multiple(bound, LANES):
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
        if not is_aligned(payload.position) or node.dtype not in VECTOR_TYPES:
            return self._by_lane(node)
        storage, text = BY_NAME[payload.dtype], self._four(payload)
        if payload.operand in self.paired_buffers:
            text = self.call(f"{PAIRED[payload.dtype]}s", [text], LANES)
        if storage.packing > 1:
            text = self.call(f"unpack_{storage.format}", [text], LANES)
        return self.name(text)

    def words(self, value: Expr) -> str:
        """Emit the packed words of a value for which :func:`packed_words` is not None; zeros for a constant."""
        kind, _ = packed_words(value) or ("", "")

        def emit(node: Expr) -> str:
            if node.op != "guard":
                return f"{kind}()" if node.op == "const" else self._four(node.payload)
            condition, inside, otherwise = node.args
            uniform = self.without_lane(condition)
            assert uniform is not None
            return self._guard(ex.guard(uniform, inside, otherwise), emit)

        return emit(value)

    def _four(self, load: ex.Load) -> str:
        """Emit what memory has of four aligned neighbours: a vector, or packed words."""
        base, _ = split_lane(load.position)
        assert base is not None
        quarter = ix.floordiv(base, LANES)
        if BY_NAME[load.dtype].packing == LANES:
            return self._word(load.operand, quarter)
        return f"{self.buffers[load.operand]}[{self._place(quarter)}]"


def packed_words(value: Expr) -> tuple[str, str] | None:
    """Return the WGSL type of the words behind four neighbours of packed operands, and the helper that unpacks them.

    Returns None for any other expression; guards may choose between loads of one type, and zeros.
    """
    kinds = {2: "vec2<u32>", 4: "u32"}
    forms = set()
    _, ends = choices(value)
    for each in ends:
        if each.op == "const" and each.payload == 0:
            continue
        if each.op != "load" or not is_aligned(each.payload.position) or each.dtype not in VECTOR_TYPES:
            return None
        storage = BY_NAME[each.payload.dtype]
        if storage.packing not in kinds:
            return None
        forms.add((kinds[storage.packing], f"unpack_{storage.name}"))
    return forms.pop() if len(forms) == 1 else None


def choices(value: Expr) -> tuple[list[Expr], list[Expr]]:
    """Return the conditions of the guards around a value, and what they choose between: itself where there is none."""
    if value.op != "guard":
        return [], [value]
    condition, inside, otherwise = value.args
    (more, ends), (others, further) = choices(inside), choices(otherwise)
    return [condition, *more, *others], [*ends, *further]
