"""GGUF files: settings by name and tensors in place (github.com/ggml-org/ggml, docs/gguf.md).

A file may be anything, so every size is checked against what is left of it before something is read or allocated.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.plan.errors import MissingFileError, ModelError

_ENTRIES = 1 << 16  #: settings, or tensors, of a file
_ELEMENTS = 1 << 22  #: of an array of settings
_NAME = 1 << 10  #: bytes of a name
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
#: Names of the types of tensors by their numbers; numbers that are not here have no name
TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
#: Elements and bytes of a block of the types that are read
BLOCKS = {"F32": (1, 4), "F16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34)}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor [rows..., columns] of a file: its type by name, its shape, and the place of its bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, of a type of :data:`BLOCKS`."""
        elements, size = BLOCKS[self.kind]
        return math.prod(self.shape) // elements * size


class GgufFile:
    """An open file.  Close it, or use it in ``with``."""

    def __init__(self, path: Path) -> None:
        """Read settings and the places of tensors; raise :class:`ModelError` for what is no GGUF file."""
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise MissingFileError(path) from None
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise ModelError(f"cannot read '{path}': {error}", hint="check the path") from None
        self._name = path.name
        self._at = 0
        try:
            self.settings, self.tensors = self._read()
        except BaseException:
            self._map.close()
            raise

    def data(self, tensor: GgufTensor) -> np.ndarray:
        """Return a copy of the bytes of a tensor: uint8 [rows, bytes of a row]."""
        raw = np.frombuffer(self._map, np.uint8, tensor.nbytes, tensor.start)
        rows = math.prod(tensor.shape[:-1])
        copy = raw.reshape(rows, -1 if rows else 0).copy()
        del raw
        return copy

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self) -> tuple[Mapping[str, Any], Mapping[str, GgufTensor]]:
        if self._bytes(4) != b"GGUF":
            raise self._wrong("it does not begin as GGUF files do")
        version = self._number("<I")
        if version not in (2, 3):
            raise self._wrong(f"version {version} is not 2 or 3")
        tensors, entries = self._count(_ENTRIES, "tensors"), self._count(_ENTRIES, "settings")
        settings: dict[str, Any] = {}
        for _ in range(entries):
            name = self._text(_NAME)
            if name in settings:
                raise self._wrong(f"the setting '{name}' is there twice")
            settings[name] = self._value(self._number("<I"))
        infos = [self._info() for _ in range(tensors)]
        alignment = settings.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 16 or alignment & (alignment - 1):
            raise self._wrong(f"the alignment {alignment!r} is no power of two")
        return settings, self._placed(infos, -(-self._at // alignment) * alignment)

    def _info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, rank = self._text(_NAME), self._number("<I")
        if not 1 <= rank <= 4:
            raise self._wrong(f"the tensor '{name}' has {rank} dimensions")
        shape = tuple(self._number("<Q") for _ in range(rank))[::-1]
        return name, shape, self._number("<I"), self._number("<Q")

    def _placed(self, infos: list[tuple[str, tuple[int, ...], int, int]], start: int) -> dict[str, GgufTensor]:
        tensors: dict[str, GgufTensor] = {}
        for name, shape, number, offset in infos:
            tensor = GgufTensor(name, TYPES.get(number, f"type {number}"), shape, start + offset)
            if name in tensors:
                raise self._wrong(f"the tensor '{name}' is there twice")
            if math.prod(shape) >= 1 << 40:
                raise self._wrong(f"the tensor '{name}' has {math.prod(shape):,} elements")
            if tensor.kind in BLOCKS:
                elements = BLOCKS[tensor.kind][0]
                if shape[-1] % elements:
                    raise self._wrong(f"rows of '{name}' are not whole blocks of {elements}")
                if tensor.start + tensor.nbytes > len(self._map):
                    raise self._wrong(f"the tensor '{name}' ends behind the file")
            tensors[name] = tensor
        return tensors

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind != _ARRAY:
            raise self._wrong(f"there is no type {kind} of a setting")
        inner, count = self._number("<I"), self._count(_ELEMENTS, "elements")
        if inner == _STRING:
            self._need(8 * count)
            return [self._text() for _ in range(count)]
        if inner not in _SCALARS:
            raise self._wrong(f"an array has elements of type {inner}")
        form = _SCALARS[inner]
        raw = self._bytes(struct.calcsize(form) * count)
        return [value for (value,) in struct.iter_unpack(form, raw)]

    def _count(self, most: int, what: str) -> int:
        count = self._number("<Q")
        if count > most:
            raise self._wrong(f"it has {count:,} {what}")
        return count

    def _text(self, most: int | None = None) -> str:
        size = self._number("<Q")
        if most is not None and size > most:
            raise self._wrong(f"a name has {size:,} bytes")
        return self._bytes(size).decode("utf-8", "replace")

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _bytes(self, size: int) -> bytes:
        self._need(size)
        self._at += size
        return self._map[self._at - size : self._at]

    def _need(self, size: int) -> None:
        if size > len(self._map) - self._at:
            raise self._wrong(f"it ends {self._at + size - len(self._map):,} bytes too early")

    def _wrong(self, reason: str) -> ModelError:
        return ModelError(f"'{self._name}' is no valid GGUF file: {reason}", hint="download it again")
