"""Checked access to JSON values: what has another shape than expected is an error that says where."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

_KEY = re.compile(r"[0-9a-f]{64}")


class Reader:
    """A JSON value with its place in the file ("" for the whole), for messages.

    Every method raises :class:`ValueError` for another kind of value.
    """

    def __init__(self, value: Any, location: str) -> None:
        self.value = value
        self.location = location

    def object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise ValueError(f"{self.location or 'the file'} is not an object")
        return self.value

    def get(self, name: str) -> Reader:
        if name not in self.object():
            raise ValueError(f"{self.location or 'the file'} has no '{name}'")
        return Reader(self.value[name], f"{self.location}.{name}" if self.location else name)

    def items(self) -> list[Reader]:
        if not isinstance(self.value, list):
            raise ValueError(f"{self.location} is not a list")
        return [Reader(item, f"{self.location}[{index}]") for index, item in enumerate(self.value)]

    def sequence(self, name: str, read: Callable[[Reader], Result]) -> tuple[Result, ...]:
        return tuple(read(item) for item in self.get(name).items())

    def mapping(self, name: str, read: Callable[[Reader], Result]) -> dict[str, Result]:
        inner = self.get(name)
        return {key: read(Reader(item, f"{inner.location}['{key}']")) for key, item in inner.object().items()}

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise ValueError(f"{self.location} is not a string")
        return self.value

    def number(self) -> int:
        if type(self.value) is not int or self.value < 0:
            raise ValueError(f"{self.location} is not a number that counts")
        return self.value

    def key(self) -> str:
        if not _KEY.fullmatch(self.text()):
            raise ValueError(f"{self.location} is not 64 hex digits")
        return self.text()
