"""Fast look-up of wgpu-native's C types by name.

wgpu-py names a C type by text wherever it makes a struct, and cffi parses each new text together with all 430 type
names of the header: 20 to 50 milliseconds a type, one second of every process before its first result.  The texts that
wgpu-py uses are a declared or a basic type, a pointer to one, an array of one, or a callback; cffi's own tables answer
these at once.  Everything else goes to cffi's parser as before.
"""

from __future__ import annotations

import re
from typing import Any

_SIMPLE = re.compile(r"(\w+)( const)?(?: ?(\*|\[\]))? ?")
_CALLBACK = re.compile(r"void\(([^()]*)\)")
_BASIC = frozenset({"char", "intptr_t", "size_t", "uint8_t", "uint32_t", "uint64_t", "uintptr_t"})


class _ParsedTypes(dict[Any, Any]):
    """cffi's table of parsed types, which finds what it can by itself and leaves the others to the parser."""

    def __init__(self, ffi: Any, types: dict[Any, Any]) -> None:
        super().__init__(types)
        self._ffi = ffi

    def __missing__(self, text: Any) -> Any:
        result = find_type(self._ffi, text)
        if result is None:
            raise KeyError(text)
        self[text] = result
        return result


def find_type(ffi: Any, text: Any) -> tuple[Any, bool] | None:
    """Return the entry of cffi's type table for ``text`` (the type, and whether it is a function), or None."""
    from cffi import model

    if not isinstance(text, str):
        return None
    callback = _CALLBACK.fullmatch(text)
    if callback is None:
        form = _find_simple(ffi, text)
    else:
        arguments = [_find_simple(ffi, argument.strip()) for argument in callback[1].split(",")]
        if None in arguments:
            return None
        form = model.RawFunctionType(tuple(arguments), model.void_type, False, None).as_function_pointer()
    if form is None or form.is_raw_function:
        return None
    with ffi._lock:  # free here: cffi asks the table before it takes the lock
        return ffi._get_cached_btype(form), callback is not None


def _find_simple(ffi: Any, text: str) -> Any:
    """Return cffi's model of a named type, a pointer to one, or an array of one; None if it is something else."""
    from cffi import model

    match = _SIMPLE.fullmatch(text)
    if match is None:
        return None
    name, constant, suffix = match.groups()
    qualifiers = model.Q_CONST if constant else 0
    if name == "void":
        form = model.void_type
    elif name in _BASIC:
        form = model.PrimitiveType(name)
    else:
        declaration = ffi._parser._declarations.get(f"typedef {name}")
        if declaration is None:
            return None
        form, declared = declaration
        qualifiers |= declared
    if suffix == "*":
        return ffi._parser._get_type_pointer(form, qualifiers)
    if suffix == "[]":
        return model.ArrayType(form, None)
    return form


def install(ffi: Any) -> bool:
    """Install the fast table in ``ffi``; return False and change nothing if this cffi is built differently."""
    parsed_types = getattr(ffi, "_parsed_types", None)
    if isinstance(parsed_types, _ParsedTypes):
        return True
    if type(parsed_types) is not dict or not hasattr(ffi, "_get_cached_btype") or not hasattr(ffi, "_lock"):
        return False
    parser = getattr(ffi, "_parser", None)
    if not hasattr(parser, "_declarations") or not hasattr(parser, "_get_type_pointer"):
        return False
    ffi._parsed_types = _ParsedTypes(ffi, parsed_types)
    return True
