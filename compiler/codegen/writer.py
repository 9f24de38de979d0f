"""The statements of one WGSL function, and the helpers and bindings that they need."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..symbolic.dimensions import Dimension, declared_dimension
from ..symbolic.lanes import LANES

_INLINE_LENGTH = 88  #: longer sub-expressions get a name of their own

#: what a name of the form letter and number must not be
_TYPE_NAMES = frozenset({"i8", "i16", "i32", "i64"})


def symbol_field(name: str) -> str:
    """Return the field of the ``symbols`` uniform for a declared dynamic dimension: a legal WGSL identifier."""
    declared = declared_dimension(name) or Dimension(name)
    safe = "".join(
        character
        if character.isascii() and character.isalnum()
        else "__"
        if character == "_"
        else f"_{ord(character):x}_"
        for character in declared.name
    )
    return f"s_{safe}" if declared.step == 1 else f"steps_{safe}"


class Numbers:
    """The numbers of one problem in a text that several problems share: a field of a uniform for each place."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def field(self, value: int) -> str:
        """Return a new field that holds ``value``."""
        self.values.append(value)
        return f"problem.n{len(self.values) - 1}"


@dataclass
class Functions:
    """The helper functions and bindings that emitted text needs, collected while emitting."""

    helpers: dict[tuple[str, str], None] = field(default_factory=dict)  #: (name, WGSL type suffix: "1" or "4")
    symbols: dict[str, None] = field(default_factory=dict)  #: declared dynamic dimensions that are read
    numbers: Numbers | None = None  #: sizes that the text does not spell; None: it spells them all
    by_bits: tuple[str, ...] = ()  #: helpers that the driver is better given as integer arithmetic

    def declare(self, helper: str, suffix: str) -> str:
        """Register a helper for declaration; return the name of its function."""
        name = f"{helper}_bits" if helper in self.by_bits else helper
        self.helpers[name, suffix] = None
        return f"{name}_{suffix}"


class Writer:
    """Collects statements; a *text* is a WGSL expression."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.lines: list[str] = []
        self.indent = 1
        self._counter = 0

    def write(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def write_return(self, text: str) -> None:
        """Return the value of ``text``."""
        self.write_value("return ", text)

    def write_value(self, head: str, text: str) -> None:
        """Write a statement that ends with ``text``: where the last statement names it, in place of that statement."""
        naming = f"{'  ' * self.indent}let {text} = "
        if self.lines and self.lines[-1].startswith(naming):
            text = self.lines.pop()[len(naming) : -1]
        self.write(f"{head}{bare(text)};")

    def number(self) -> int:
        """Return the next number for a generated name."""
        self._counter += 1
        return self._counter

    def name(self, text: str, prefix: str = "t") -> str:
        """Bind the value of ``text`` to a variable at this point; return its name."""
        name = f"{prefix}{self.number()}"
        if name in _TYPE_NAMES:
            return self.name(text, prefix)
        self.write(f"let {name} = {bare(text)};")
        return name

    def short(self, text: str) -> str:
        """Return ``text``, or the name of a variable bound to it if it is long."""
        return text if len(text) <= _INLINE_LENGTH else self.name(text)

    def call(self, helper: str, arguments: list[str], lanes: int = 1) -> str:
        """Format a call of a helper function, and register the helper for declaration."""
        function = self.functions.declare(helper, "4" if lanes == LANES else "1")
        return f"{function}({', '.join(map(bare, arguments))})"


def is_atomic(text: str) -> bool:
    """Return whether a text is a name, a number or a component, which needs neither a variable nor parentheses."""
    return text.replace(".", "").replace("_", "").isalnum()


def bare(text: str) -> str:
    """Return an expression without parentheses around the whole of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, character in enumerate(text, 1):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return bare(text[1:-1]) if place == len(text) else text
    return text
