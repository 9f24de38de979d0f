"""JSON files of a model's folder, which may be anything: bounded in size, and checked where they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..runtime.plan.errors import MissingFileError, ModelError

#: Bytes of a file of settings
SETTINGS_BYTES = 4 << 20


def read_bytes(path: Path, limit: int = SETTINGS_BYTES) -> bytes:
    """Return a file's content; raise :class:`ModelError` if it cannot be read or has more than ``limit`` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise MissingFileError(path) from None
    except OSError as error:
        raise ModelError(f"cannot read '{path}': {error.strerror or error}", hint="check the path") from None
    if len(data) > limit:
        raise ModelError(f"'{path.name}' has more than {limit:,} bytes", hint="check what it is")
    return data


def as_text(name: str, content: bytes) -> str:
    """Return the text that a file has; raise :class:`ModelError` for what is none."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ModelError(f"'{name}' is not text in UTF-8", hint="download it again") from None


class Settings:
    """An object of a JSON file, whose values are checked when they are read."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self._name = name
        self._values = values

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read a file; raise :class:`ModelError` if it holds no JSON object."""
        return cls.of(path.name, read_bytes(path))

    @classmethod
    def of(cls, name: str, content: bytes) -> Settings:
        """Read the content of a file; raise :class:`ModelError` if that is no JSON object."""
        try:
            values = json.loads(as_text(name, content))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"'{name}' is not JSON: {error}", hint="download it again") from None
        if not isinstance(values, dict):
            raise ModelError(f"'{name}' is not a JSON object", hint="download it again")
        return cls(name, values)

    @classmethod
    def read_optional(cls, path: Path) -> Settings:
        """Read a file that may be missing, which has no values then."""
        return cls.read(path) if path.is_file() else cls(path.name, {})

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def section(self, key: str) -> Settings:
        """Return an object, which is empty where it is missing."""
        return Settings(f"{self._name}, {key}", self._typed(key, dict, "an object") or {})

    def text(self, key: str) -> str | None:
        return self._typed(key, str, "a text")

    def integer(self, key: str) -> int | None:
        """Return an integer from 0 to 2^31 - 1."""
        value = self._typed(key, int, "an integer")
        if value is not None and (isinstance(value, bool) or not 0 <= value < 1 << 31):
            raise self._wrong(key, "an integer from 0 on")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """Return an integer, or a list of them, as a tuple."""
        value = self._values.get(key)
        several = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 1 << 31 for each in several):
            raise self._wrong(key, "an integer or a list of integers")
        return tuple(several)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts as a tuple."""
        values = self._typed(key, list, "a list") or ()
        if not all(isinstance(each, str) for each in values):
            raise self._wrong(key, "a list of texts")
        return tuple(values)

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def _typed(self, key: str, kind: type, words: str) -> Any:
        value = self._values.get(key)
        if value is not None and not isinstance(value, kind):
            raise self._wrong(key, words)
        return value

    def _wrong(self, key: str, words: str) -> ModelError:
        return ModelError(f"{self._name}: '{key}' is not {words}", hint="export the model again")
