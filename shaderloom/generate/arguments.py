"""Arguments of generation, checked: what is of another type is an error, never converted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any

from ..runtime.plan.errors import InputError


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or numpy; a boolean is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def integer(name: str, value: Any) -> int:
    """Return an argument as Python's integer.  Raises :class:`InputError` for a value of another type."""
    if not is_integer(value):
        raise InputError(f"{name} is an integer, not {value!r:.80}")
    return int(value)


def entries(value: Any, meaning: str) -> list[Any]:
    """Return the entries of a list, an array or an iterator; raise :class:`InputError` with ``meaning`` otherwise.

    A text, bytes and a mapping are one value each, whose entries nobody means.
    """
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{meaning}, not {value!r:.80}")
    return list(value)


def functions(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    """Return an argument that is a list of functions.  Raises :class:`InputError` for anything else."""
    meaning = f"{name} is a list of functions"
    listed = entries(value, meaning)
    for each in listed:
        if not callable(each):
            raise InputError(f"{meaning}; {each!r:.80} is none")
    return tuple(listed)
