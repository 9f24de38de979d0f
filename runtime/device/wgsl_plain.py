"""Texts that plainly do not expand: most shaders, told from the others by a few regular expressions.

In such a text functions have arrays only as variables that are declared with their type and indexed, and structs are
uniforms of scalars whose members alone are read: nothing is an array or a struct as a value, and what expands is these
variables and the functions that are inlined.  Characters bound tokens.  :mod:`.wgsl_values` says what is bounded, and
looks closer at all other texts.
"""

from __future__ import annotations

import re

_SCALAR = r"(?:f32|f16|i32|u32|bool)"
# Nothing is tried twice, in a text of any spelling: expressions begin at words and give nothing back.  That the word is
# a whole one is asked behind it, since Python searches for letters faster than for the edge of a word.
_OF_DEVICE = re.compile(r"var(?<!\wvar)\s*+<\s*+(?:storage|uniform|workgroup)\b[\s\w,]*+>[^;(){}]*+;")
_ARRAY = re.compile(
    rf"var(?<!\wvar)\s*+(?:<\s*+(?:private|function)\s*+>\s*+)?(\w++)\s*+:"
    rf"\s*+array\s*+<\s*+(?:{_SCALAR}|vec([234])\s*+<\s*+{_SCALAR}\s*+>)\s*+,\s*+(\d{{1,9}})[iu]?\s*+>"
)
_STRUCT = re.compile(rf"struct(?<!\wstruct)\s++(\w++)\s*+\{{(?:\s*+\w++\s*+:\s*+{_SCALAR}\s*+,?+)*+\s*+\}}")
_UNIFORM = re.compile(r"var(?<!\wvar)\s*+<\s*+uniform\s*+>\s*+(\w++)\s*+:\s*+(\w++)\s*+;")
_FUNCTION = re.compile(r"fn(?<!\wfn)\s++(\w++)")
_WORD = re.compile(r"\w++")
#: Functions and arrays of plain texts: each is looked for in all of the text
_MOST_NAMES = 256


def is_plain(text: str, max_scalars: int, max_inlined: int) -> bool:
    """Return whether a text without comments is known to stay within both bounds; False if that takes a closer look.

    A name is looked for as a part of any word, which finds it too often, and never too seldom.
    """
    if "struct" in text:
        text = _without_uniforms(text)
    text = _OF_DEVICE.sub("", text)
    scalars = _count_scalars(text)
    return scalars is not None and scalars <= max_scalars and _is_inlined_within(text, max_inlined)


def _without_uniforms(text: str) -> str:
    """Return the text without structs of scalars, if no value is one: they are the types of uniforms alone, of which
    only members are read."""
    structs = _STRUCT.findall(text)
    rest = _UNIFORM.sub("", _STRUCT.sub("", text))
    names = [name for name, kind in _UNIFORM.findall(text) if kind in structs]
    if len(structs) > _MOST_NAMES or len(names) > _MOST_NAMES or any(kind in rest for kind in structs):
        return text
    return rest if all(rest.count(name) == rest.count(f"{name}.") for name in names) else text


def _count_scalars(text: str) -> int | None:
    """Return the scalars of all array variables of functions; None if there are other arrays, structs or uses."""
    arrays = _ARRAY.findall(text)
    if len(arrays) > _MOST_NAMES or len(arrays) != text.count("array") or "struct" in text or "alias" in text:
        return None
    names = [name for name, _, _ in arrays]
    if any(text.count(name) != text.count(f"{name}[") + names.count(name) for name in names):
        return None
    return sum(int(lanes or 1) * int(count) for _, lanes, count in arrays)


def _is_inlined_within(text: str, most: int) -> bool:
    """Return whether each function has at most so many characters with all that it calls in its place; False for
    functions that are not declared once and before they are called."""
    _, *parts = _FUNCTION.split(text)
    names, bodies = parts[::2], parts[1::2]
    if len(names) > _MOST_NAMES:
        return False
    sizes: dict[str, int] = {}
    for index, (name, body) in enumerate(zip(names, bodies, strict=True)):
        size = len(body) + sum(body.count(called) * inlined for called, inlined in sizes.items())
        if size > most or name in sizes:
            return False
        likely = [later for later in names[index:] if later in body]
        if likely and not set(_WORD.findall(body)).isdisjoint(likely):
            return False
        sizes[name] = size
    return True
