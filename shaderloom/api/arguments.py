"""Arguments of public calls, checked: what is of another type is an error, never converted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from ..runtime.plan.errors import InputError

Value = TypeVar("Value")


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or numpy; a boolean is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a real number of Python or numpy; a boolean is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def integer(name: str, value: Any) -> int:
    """Return an argument as Python's integer.  Raises :class:`InputError` for a value of another type."""
    if not is_integer(value):
        raise InputError(f"{name} is an integer, not {value!r:.80}")
    return int(value)


def count(name: str, value: Any, of: str) -> int:
    """Return an argument that is a number of things as Python's integer.

    Raises :class:`InputError` for a value of another type, and for less than 1.
    """
    if not is_integer(value) or value < 1:
        raise InputError(f"{name} is a number of {of}, not {value!r:.80}", hint="pass an integer of at least 1")
    return int(value)


def entries(value: Any, meaning: str, hint: str | None = None) -> list[Any]:
    """Return the entries of a list, an array or an iterator; raise :class:`InputError` with ``meaning`` otherwise.

    A text, bytes and a mapping are one value each, whose entries nobody means.
    """
    return list(iterable(value, meaning, hint))


def iterable(value: Any, meaning: str, hint: str | None = None) -> Iterable[Any]:
    """Return what :func:`entries` lists, as it is."""
    if type(value) is list:
        return value
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{meaning}, not {value!r:.80}", hint=hint)
    return value


def functions(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    """Return an argument that is a list of functions.  Raises :class:`InputError` for anything else."""
    meaning = f"{name} is a list of functions"
    listed = entries(value, meaning)
    for each in listed:
        if not callable(each):
            raise InputError(f"{meaning}; {each!r:.80} is none")
    return tuple(listed)


def instance(name: str, value: Any, kind: type[Value]) -> Value:
    """Return an argument of a class.  Raises :class:`InputError` for a value of another one."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is a {kind.__name__}, not {value!r:.80}")
    return value


def path(name: str, value: Any) -> Path:
    """Return an argument that is a path.  Raises :class:`InputError` for anything else."""
    if not isinstance(value, (str, os.PathLike)):
        raise InputError(f"{name} is a path, not {value!r:.80}", hint="pass a text or a pathlib.Path")
    return Path(value)
