"""Upper bounds of what a WGSL text makes a driver expand: scalars of arrays and structs, and inlined functions.

A dozen lines of ``const c1 = array(c0, c0);`` are a value of millions of scalars, and naga ends the process when it
writes them out; functions that call each other twice are inlined as often.  One pass over the tokens bounds both.
Sizes are by name alone, the largest of all declarations of a name: too large for some texts, never too small.  A name
that is used before its declaration, or before a larger one, takes another pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: Values of at most so many scalars are vectors and matrices, which no driver takes apart
_SMALL = 16
#: Scalars of a value of which nothing is known: what builtin functions give
_VECTOR_SIZE = 4
#: Passes over a text; each follows names at least one declaration further back
_PASSES = 8
#: Levels of a type
_TYPE_DEPTH = 32
#: Empty tokens at the end: what a step may look ahead, and three for each level of a type that is cut off
_BEHIND = 4 + 3 * (_TYPE_DEPTH + 1)
#: Sizes of names are at most so many, which is beyond any bound
_LARGEST = 1 << 40

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|[(){}\[\]<>,;:=@.]", re.ASCII)
_DIGITS = "0123456789"
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_COUNT = re.compile(r"(0|[1-9]\d{0,8}|0[xX][0-9a-fA-F]{1,7})[iu]?")
_VECTOR = re.compile(r"vec([234])[fiuh]?|mat([234])x([234])[fh]?")
#: Address spaces whose variables are buffers, or bounded by a limit of the device
_ELSEWHERE = ("storage", "uniform", "workgroup")


class TooLargeError(Exception):
    """The text expands too far, or its sizes cannot be told; the message says what is at fault."""


@dataclass
class Sizes:
    """Sizes by name: scalars of types, of members of structs and of values, constants that count, tokens of functions
    when inlined.
    """

    types: dict[str, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    inlined: dict[str, int] = field(default_factory=dict)
    immutable: set[str] = field(
        default_factory=set
    )  #: values that are no variables: to index one, it is copied to memory


@dataclass
class _Frame:
    """An open bracket: the scalars of its finished operands and of the current one."""

    done: int = 0
    current: int = 0
    value: int | None = None  #: scalars of the whole, where a declaration says them: of a constructor or a call
    expands: bool = False  #: whether the whole is written out here
    declares: str = ""  #: the name that the statement declares
    declared: int = 0  #: scalars of its type


def check_values(text: str, max_scalars: int, max_inlined: int) -> None:
    """Raise :class:`TooLargeError` if arrays and structs of a text without comments have more scalars in all than
    ``max_scalars``, or the functions that it calls more tokens than ``max_inlined``.
    """
    tokens, sizes = _TOKEN.findall(text), Sizes()
    for _ in range(_PASSES):
        if _Pass(tokens, sizes, max_scalars, max_inlined).run():
            return
    raise TooLargeError("declares names in the reverse order of their use")


class _Pass:
    """One pass over the tokens."""

    def __init__(self, tokens: Sequence[str], sizes: Sizes, max_scalars: int, max_inlined: int) -> None:
        self._tokens = [*tokens, *[""] * _BEHIND]
        self._sizes = sizes
        self._max_scalars = max_scalars
        self._max_inlined = max_inlined
        self._scalars = 0
        self._function = ""
        self._inlined = 0
        self._frames = [_Frame()]
        self._guessed: set[str] = set()  #: types and functions of which nothing was known where they were used
        self._is_settled = True
        self._handlers: dict[str, Callable[[int], int]] = {
            **dict.fromkeys("([{", self._open),
            **dict.fromkeys(")]}", self._close),
            **dict.fromkeys(("let", "const", "var", "override", "alias"), self._declaration),
            **dict.fromkeys("<>:", lambda at: at + 1),
            ",": self._separate,
            ";": self._end,
            "=": self._assign,
            "@": self._attribute,
            ".": self._member,
            "struct": self._struct,
            "fn": self._signature,
        }

    def run(self) -> bool:
        """Return whether every name had its size before it was used; call it once."""
        position, tokens = 0, self._tokens
        handlers, self._handlers = self._handlers, {}  # methods of this object would keep the tokens in a cycle
        while token := tokens[position]:
            self._inlined += 1
            handler = handlers.get(token)
            if handler is not None:
                position = handler(position)
            elif token[0] in _DIGITS:
                position += 1
            else:
                position = self._name(position, token, tokens[position + 1])
        return self._is_settled

    def _open(self, at: int) -> int:
        self._frames.append(_Frame())
        return at + 1

    def _separate(self, at: int) -> int:
        """End an operand; a literal counts one."""
        frame = self._frames[-1]
        frame.done, frame.current = frame.done + max(frame.current, 1), 0
        return at + 1

    def _assign(self, at: int) -> int:
        self._frames[-1].current = 0
        return at + 1

    def _attribute(self, at: int) -> int:
        return self._behind_brackets(at + 2) if self._tokens[at + 2] == "(" else at + 2

    def _member(self, at: int) -> int:
        """Take a member of the value before, or components of a vector."""
        frame, name = self._frames[-1], self._tokens[at + 1]
        self._guessed.add(name)
        frame.current = self._sizes.members.get(name, _VECTOR_SIZE)
        if self._tokens[at + 2] not in (".", "["):
            self._expand(frame.current)
        return at + 2

    def _end(self, at: int) -> int:
        self._end_statement()
        return at + 1

    def _close(self, at: int) -> int:
        self._end_statement()
        if len(self._frames) == 1:
            return at + 1  # a bracket too many, which the parser refuses
        frame = self._frames.pop()
        if self._tokens[at] == ")":
            size = frame.done if frame.value is None else frame.value
            self._frames[-1].current = size
            if frame.expands:
                self._expand(size)
        elif self._tokens[at] == "}" and len(self._frames) == 1 and self._function:
            self._define(self._sizes.inlined, self._function, self._inlined)
            self._function = ""
        return at + 1

    def _end_statement(self) -> None:
        frame = self._frames[-1]
        frame.done, frame.current = frame.done + max(frame.current, 1), 0
        if frame.declares:
            self._define(self._sizes.values, frame.declares, frame.declared or frame.done)
            frame.declares = ""
            frame.done = 0

    # -- names ---------------------------------------------------------------------------------------------------------

    def _define(self, kind: dict[str, int], name: str, size: int) -> None:
        size = min(size, _LARGEST)
        largest = kind.get(name, _VECTOR_SIZE if kind is self._sizes.values else 0)
        if size > largest:
            kind[name] = size
            if kind is self._sizes.values or name in self._guessed:
                self._is_settled = False

    def _expand(self, scalars: int) -> None:
        """Count a value that is written out here."""
        if scalars > _SMALL:
            self._scalars += scalars
            if self._scalars > self._max_scalars:
                raise TooLargeError(f"has arrays and structs of more than {self._max_scalars:,} scalars in all")

    def _name(self, at: int, token: str, following: str) -> int:
        """Take a constructor, a call, or the use of a value."""
        frame, sizes = self._frames[-1], self._sizes
        if token == "array" or token in sizes.types or (_VECTOR.fullmatch(token) and following in ("<", "(")):
            declared: int | None = None
            if token != "array" or following == "<":
                declared, at = self._type(at)
            else:
                at += 1
            if self._tokens[at] == "(":
                self._frames.append(_Frame(value=declared, expands=True))
                return at + 1
            return at
        if following == "(":
            self._frames.append(_Frame(value=sizes.values.get(token, _VECTOR_SIZE), expands=True))
            self._inlined += sizes.inlined.get(token, 0)
            self._guessed.add(token)
            if self._inlined > self._max_inlined:
                raise TooLargeError(f"calls functions of more than {self._max_inlined:,} tokens in all")
            return at + 2
        frame.current = sizes.values.get(token, _VECTOR_SIZE)
        if following not in (".", "[") or (following == "[" and token in sizes.immutable):
            self._expand(frame.current)
        return at + 1

    # -- declarations --------------------------------------------------------------------------------------------------

    def _struct(self, at: int) -> int:
        name, size, at = self._tokens[at + 1], 0, at + 3
        while self._tokens[at] not in ("", "}"):
            if self._tokens[at] == "@":
                at = self._behind_brackets(at + 2) if self._tokens[at + 2] == "(" else at + 2
            elif self._tokens[at] == ":":
                of_member = self._tokens[at - 1]
                member, at = self._type(at + 1)
                self._define(self._sizes.members, of_member, member)
                size += member
            else:
                at += 1
        self._define(self._sizes.types, name, size)
        return at + 1

    def _declaration(self, at: int) -> int:
        """Take ``let name``, ``var<space> name: type`` and so on, up to the initial value, or a whole ``alias``."""
        keyword, space, at = self._tokens[at], "", at + 1
        if self._tokens[at] == "<":
            space = self._tokens[at + 1]
            while self._tokens[at] not in ("", ">"):
                at += 1
            at += 1
        name, at = self._tokens[at], at + 1
        if keyword == "alias":
            size, at = self._type(at + 1)
            self._define(self._sizes.types, name, size)
            return at
        frame = self._frames[-1]
        if keyword != "var":
            self._is_settled &= name in self._sizes.immutable or name not in self._sizes.values
            self._sizes.immutable.add(name)
        frame.declares, frame.declared, frame.done, frame.current = name, 0, 0, 0
        if self._tokens[at] == ":":
            frame.declared, at = self._type(at + 1)
        if space in _ELSEWHERE:
            frame.declares = ""
            self._define(self._sizes.values, name, 1)
        elif keyword == "var":
            self._expand(frame.declared)
        if keyword == "const" and self._tokens[at + 2] == ";" and _COUNT.fullmatch(self._tokens[at + 1]):
            self._define(self._sizes.counts, name, int(self._tokens[at + 1].rstrip("iu"), 0))
        return at

    def _signature(self, at: int) -> int:
        """Take ``fn name(parameters) -> type``, up to the body."""
        self._function, self._inlined, at = self._tokens[at + 1], 0, at + 3
        while self._tokens[at] not in ("", "{"):
            if self._tokens[at] == "@":
                at = self._behind_brackets(at + 2) if self._tokens[at + 2] == "(" else at + 2
            elif self._tokens[at] == ":":
                name = self._tokens[at - 1]
                size, at = self._type(at + 1)
                self._define(self._sizes.values, name, size)
            elif self._tokens[at] == ">":
                while self._tokens[at + 1] == "@":
                    at += 2
                    at = (self._behind_brackets(at + 1) if self._tokens[at + 1] == "(" else at + 1) - 1
                size, at = self._type(at + 1)
                self._define(self._sizes.values, self._function, size)
            else:
                at += 1
        return at

    def _behind_brackets(self, at: int) -> int:
        """Return the position behind the bracket that closes the one at ``at``."""
        depth = 0
        while self._tokens[at]:
            depth += (self._tokens[at] == "(") - (self._tokens[at] == ")")
            at += 1
            if not depth:
                break
        return at

    def _type(self, at: int, depth: int = 0) -> tuple[int, int]:
        """Return the scalars of a type and the position behind it."""
        name, at = self._tokens[at], at + 1
        if depth > _TYPE_DEPTH:
            raise TooLargeError(f"has a type of more than {_TYPE_DEPTH} levels")
        vector = _VECTOR.fullmatch(name)
        size = self._sizes.types.get(name, 1)
        self._guessed.add(name)
        if vector:
            size = int(vector[1] or vector[2]) * int(vector[3] or 1)
        if self._tokens[at] != "<":
            return size, at
        element, behind = self._type(at + 1, depth + 1)
        if name == "ptr":
            element, behind = self._type(behind + 1, depth + 1)
        if name == "array":
            size = element
            if self._tokens[behind] == ",":
                size = element * self._count(self._tokens[behind + 1], self._tokens[behind + 2])
        elif not vector:
            size = element  # atomic, ptr
        while self._tokens[behind] not in ("", ">"):
            behind += 1
        return size, behind + 1

    def _count(self, token: str, following: str) -> int:
        if following in (">", ",") and _COUNT.fullmatch(token):
            return int(token.rstrip("iu"), 0)
        if following in (">", ",") and token in self._sizes.counts:
            return self._sizes.counts[token]
        if following in (">", ",") and _NAME.fullmatch(token):
            self._guessed.add(token)
            return 1  # declared later, if at all
        raise TooLargeError("has an array whose size is neither a number nor a constant that is one")
