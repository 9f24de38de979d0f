"""The functions of a kernel's text with the parameters that they read.

Hooks have the same parameters for every problem, and templates pass all of them on; what a hook does not read is
dropped from its declaration and its calls, and from the template's functions that would only pass it on; what the entry
point computed for it goes, too.  A hook that returns an argument or a number is none: its calls are that text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from ...runtime.plan.record import record
from .writer import is_atomic

#: A function of a template, from the beginning of a line to a brace there; entry points have attributes
_FUNCTION = re.compile(r"^fn (\w+)\(((?:\w+: [\w<>]+(?:, )?)+)\)([^{\n]*)\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ENTRY_POINT = "@compute"
_CONSTANT = re.compile(r"^ *let (\w+) = [^;]*;\n", re.MULTILINE)
_RETURN = re.compile(r" +return ([\w.]+);")

#: Numbers of the parameters that a function keeps; or what its calls are: the number of an argument, or a text
_Form = tuple[int, ...] | int | str


@record
class HookFunction:
    """The function of a hook: parameters with their types, the type that it returns ("" for none), statements."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    returns: str
    lines: tuple[str, ...]

    @property
    def form(self) -> _Form:
        names = [name for name, _ in self.parameters]
        atom = _RETURN.fullmatch(self.lines[0]) if len(self.lines) == 1 else None
        if atom is not None:
            return names.index(atom[1]) if atom[1] in names else atom[1]
        return _read("\n".join(self.lines), names)

    @property
    def text(self) -> str:
        """The declaration, with the parameters that are read; "" where calls are replaced."""
        form = self.form
        if not isinstance(form, tuple):
            return ""
        parameters = ", ".join(f"{name}: {kind}" for name, kind in (self.parameters[place] for place in form))
        arrow = f" -> {self.returns}" if self.returns else ""
        return "\n".join([f"fn {self.name}({parameters}){arrow} {{", *self.lines, "}"])


def with_calls_of(body: str, functions: Sequence[HookFunction]) -> str:
    """Return a template's text with calls of ``functions`` as they are declared."""
    return _fitted(body, tuple((each.name, len(each.parameters), each.form) for each in functions))


@lru_cache(maxsize=256)
def _fitted(body: str, forms: tuple[tuple[str, int, _Form], ...]) -> str:
    changed = {name: form for name, count, form in forms if form != tuple(range(count))}
    while changed:
        body = _calls(body, changed)
        changed = {}
        for function in list(_FUNCTION.finditer(body)):
            name, parameters, arrow, statements = function.groups()
            declared = parameters.split(", ")
            form = _read(statements, [each.split(":")[0] for each in declared])
            if len(form) < len(declared):
                changed[name] = form
                head = f"fn {name}({', '.join(declared[place] for place in form)}){arrow}{{\n"
                body = body.replace(function[0], f"{head}{statements}}}")
    return _without_unread_constants(body)


def _without_unread_constants(body: str) -> str:
    """Return a template's text without what its entry point names and does not read."""
    functions, mark, entry_point = body.partition(_ENTRY_POINT)
    while True:
        words = Counter(re.findall(r"\w+", entry_point))
        unread = [constant for constant in _CONSTANT.finditer(entry_point) if words[constant[1]] == 1]
        if not unread:
            return functions + mark + entry_point
        for constant in unread:
            entry_point = entry_point.replace(constant[0], "", 1)


def _read(statements: str, names: Sequence[str]) -> tuple[int, ...]:
    words = set(re.findall(r"\w+", statements))
    return tuple(place for place, name in enumerate(names) if name in words)


def _calls(text: str, forms: dict[str, _Form]) -> str:
    """Return ``text`` with the calls of functions in their new forms."""
    call = re.compile(rf"(?<!fn )\b({'|'.join(forms)})\(")
    pieces, position = [], 0
    while match := call.search(text, position):
        arguments, end = _arguments(text, match.end())
        values = [_calls(each, forms) for each in arguments]
        pieces += [text[position : match.start()], _call(match[1], values, forms[match[1]])]
        position = end
    return "".join([*pieces, text[position:]])


def _call(name: str, values: Sequence[str], form: _Form) -> str:
    if isinstance(form, tuple):
        return f"{name}({', '.join(values[place] for place in form)})"
    if isinstance(form, str):
        return form
    return values[form] if is_atomic(values[form]) else f"({values[form]})"


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """Return the arguments of the call whose parenthesis opens before ``start``, and the place behind the call."""
    arguments, depth, first, position = [], 0, start, start
    while depth >= 0:
        character = text[position]
        depth += (character in "([") - (character in ")]")
        if depth < 0 or (character == "," and depth == 0):
            arguments.append(text[first:position].strip())
            first = position + 1
        position += 1
    return (arguments if arguments != [""] else []), position
