"""wgpu-py's structs as dataclasses that are completed when they are first used.

wgpu-py defines 60, for each of which ``dataclass`` writes and compiles methods: 17 ms of every process, which uses a
few of them at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MODULE = "wgpu.structs"
#: What ``dataclass`` generates for such a class
_GENERATED = (
    "__init__",
    "__eq__",
    "__hash__",
    "__match_args__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__doc__",
)


class _Late:
    """An attribute of a class that ``complete`` sets."""

    def __init__(self, name: str, complete: Callable[[], None]) -> None:
        self._name = name
        self._complete = complete

    def __get__(self, instance: object | None, owner: type) -> Any:
        self._complete()
        return getattr(owner if instance is None else instance, self._name)


def complete_later(cls: type, options: dict[str, Any]) -> type:
    """Return ``cls``, which becomes a dataclass with ``options`` when one is made, compared or looked at."""
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}

    def complete() -> None:
        # of a twin, as other threads may use the class meanwhile
        twin: type = dataclasses.dataclass(**options)(type(cls)(cls.__name__, cls.__bases__, dict(own)))
        for name in _GENERATED:
            setattr(cls, name, vars(twin)[name])

    for name in _GENERATED:
        setattr(cls, name, _Late(name, complete))
    return cls


@contextmanager
def late_structs() -> Iterator[None]:
    """Complete the structs of wgpu-py late if ``with`` imports them; other dataclasses stay as they are."""
    plain = dataclasses.dataclass

    def decorator(cls: type | None = None, **options: Any) -> Any:
        if cls is not None:
            return plain(cls, **options)
        at_once = plain(**options)
        is_late = options == {"kw_only": True, "repr": False}
        return lambda each: complete_later(each, options) if is_late and each.__module__ == _MODULE else at_once(each)

    dataclasses.dataclass = decorator
    try:
        yield
    finally:
        dataclasses.dataclass = plain
