"""Storage of constants: the implementations of :class:`~.graph.Source`.

A source is a promise of an array.  Weights are never read while a model is imported: a :class:`FileSource` names a
range of a file, a :class:`BytesSource` a view into bytes that the caller holds.  Only small constants are inline.

All bytes are little-endian, row-major, at the ONNX size of the element (bool takes one byte).
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from ...runtime.plan import dtypes
from ...runtime.plan.dtypes import DType, compute_dtype
from ...runtime.plan.errors import InternalError, ModelError
from ...runtime.plan.plan import SourceRef
from ...runtime.plan.record import record
from .graph import Source


class TensorSource(Source, Protocol):
    """A source that says what it holds, and how a plan refers to it."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def length(self) -> int:
        """Size in bytes."""
        ...

    def part(self, start: int, shape: tuple[int, ...]) -> TensorSource:
        """Return the source of ``shape`` of the elements, from the one at ``start`` on."""
        ...

    def to_ref(self) -> SourceRef: ...


def content_key(dtype: DType, shape: tuple[int, ...], data: bytes | memoryview) -> str:
    """Return the sha256 over element type, shape and bytes: equal constants have equal keys in any storage."""
    digest = hashlib.sha256(f"{dtype.name}{list(shape)}:".encode())
    digest.update(data)
    return digest.hexdigest()


def _bytes_of(dtype: DType, start: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return offset and length, in bytes, of ``shape`` of the elements from the one at ``start`` on."""
    return start * dtype.itemsize, math.prod(shape) * dtype.itemsize


def _as_array(data: bytes | memoryview | mmap.mmap, offset: int, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    element = compute_dtype(dtype)
    if not count:
        array = np.zeros(shape, element)
    else:
        array = np.frombuffer(data, element, count, offset).reshape(shape)
    array.flags.writeable = False
    return array


class InlineSource:
    """A small constant held in memory.  ``dtype`` tells the element type where numpy's does not (default: numpy's).

    Takes arrays of the compiler's dtypes and of the border's.
    """

    def __init__(self, array: np.ndarray, dtype: DType | None = None) -> None:
        self.dtype: DType = dtype or dtypes.from_numpy(array.dtype)
        self._array = np.array(dtypes.from_border(array, self.dtype), compute_dtype(self.dtype), order="C")
        self._array.flags.writeable = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def length(self) -> int:
        return self._array.nbytes

    @cached_property
    def key(self) -> str:
        return content_key(self.dtype, self.shape, self._array.tobytes())

    def read(self) -> np.ndarray:
        return self._array

    def part(self, start: int, shape: tuple[int, ...]) -> InlineSource:
        return InlineSource(self._array.reshape(-1)[start : start + math.prod(shape)].reshape(shape), self.dtype)

    def to_ref(self) -> SourceRef:
        data = self._array.tobytes()
        return SourceRef(self.key, None, 0, len(data), self.dtype.name, self.shape, data)


class PackedSource:
    """A constant of a type narrower than a byte, in the packed form in which ONNX stores it.

    ``data`` holds the bytes.  A graph has them as a constant of uint8, and a node that unpacks
    (:mod:`.unpacking`), so that device memory holds what the model holds.
    """

    def __init__(self, data: TensorSource, dtype: DType, shape: tuple[int, ...]) -> None:
        self.data, self.dtype, self.shape = data, dtype, shape

    @property
    def length(self) -> int:
        return self.data.length

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(f"packed {self.dtype.name}{list(self.shape)}:{self.data.key}".encode()).hexdigest()

    def read(self) -> np.ndarray:
        width, per_byte = self.dtype.width, 8 // self.dtype.width
        shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(width)
        codes = (self.data.read().reshape(-1, 1) >> shifts).reshape(-1)[: math.prod(self.shape)]
        return dtypes.from_border(codes, self.dtype).reshape(self.shape)

    def part(self, start: int, shape: tuple[int, ...]) -> PackedSource:
        raise InternalError("packed elements are unpacked in the graph")

    def to_ref(self) -> SourceRef:
        raise InternalError("packed elements are unpacked in the graph")


def packed(source: TensorSource) -> bytes:
    """Return the bytes of a constant as ONNX stores them."""
    if isinstance(source, PackedSource):
        return source.data.read().tobytes()
    array = source.read()
    if not source.dtype.narrow:
        return array.tobytes()
    width, per_byte = source.dtype.width, 8 // source.dtype.width
    codes = np.zeros(-(-array.size // per_byte) * per_byte, np.uint8)
    codes[: array.size] = array.reshape(-1).view(np.uint8) & np.uint8((1 << width) - 1)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(width)
    return np.bitwise_or.reduce(codes.reshape(-1, per_byte) << shifts, axis=1).astype(np.uint8).tobytes()


class WidenedSource:
    """The elements of a source of 16-bit floats as float32."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(f"float32 of {self.inner.key}".encode()).hexdigest()

    def read(self) -> np.ndarray:
        return self.inner.read().astype(np.float32)

    def part(self, start: int, shape: tuple[int, ...]) -> WidenedSource:
        return WidenedSource(self.inner.part(start, shape))


class BytesSource:
    """A range of bytes in memory, held as a view: the tensors of a model that was given as bytes."""

    def __init__(self, data: bytes | memoryview, dtype: DType, shape: tuple[int, ...], offset: int = 0) -> None:
        self.dtype, self.shape = dtype, shape
        #: position in the model's bytes, which the loader holds; the view starts there
        self.offset = offset
        self._data = memoryview(data)

    @property
    def length(self) -> int:
        return self._data.nbytes

    @cached_property
    def key(self) -> str:
        return content_key(self.dtype, self.shape, self._data)

    def read(self) -> np.ndarray:
        return _as_array(self._data, 0, self.dtype, self.shape)

    def part(self, start: int, shape: tuple[int, ...]) -> BytesSource:
        offset, length = _bytes_of(self.dtype, start, shape)
        return BytesSource(self._data[offset : offset + length], self.dtype, shape, self.offset + offset)

    def to_ref(self) -> SourceRef:
        """Return a reference to a range of the model file itself (path ``""``)."""
        return SourceRef(self.key, "", self.offset, self.length, self.dtype.name, self.shape)


@record
class FileIdentity:
    """Distinguishes versions of a file without reading its content."""

    path: str
    size: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path, status: os.stat_result | None = None) -> FileIdentity:
        status = status or path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns, status.st_ino)


@record(slots=False)
class MappedFile:
    """A read-only mapping of a model or data file, shared by its sources and closed with the last of them.

    ``relative`` is the path that plans use: ``""`` for the model file, else relative to the model's folder.
    """

    path: Path
    relative: str
    identity: FileIdentity
    view: mmap.mmap | bytes = field(repr=False)

    @classmethod
    def open(cls, path: Path, relative: str = "") -> MappedFile:
        """Map ``path``; raises :class:`ModelError` when it cannot be read."""
        try:
            with path.open("rb") as file:
                identity = FileIdentity.of(path, os.fstat(file.fileno()))
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if identity.size else b""
        except OSError as error:
            raise ModelError(f"cannot read '{path}': {error.strerror or error}") from None
        return cls(path, relative, identity, view)


def _digest(text: str) -> str:
    """Return the digest of a text with a path, in which bytes may stand that are no text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class FileSource:
    """A range of a mapped file.  Nothing is read before :meth:`read`, and then only pages that are touched."""

    def __init__(self, file: MappedFile, offset: int, length: int, dtype: DType, shape: tuple[int, ...]) -> None:
        self.file, self.offset, self.length = file, offset, length
        self.dtype, self.shape = dtype, shape

    @cached_property
    def key(self) -> str:
        identity = self.file.identity
        text = (
            f"{identity.path}\0{identity.size}\0{identity.modified_ns}\0{identity.inode}\0"
            f"{self.offset}\0{self.length}\0{self.dtype.name}{list(self.shape)}"
        )
        return _digest(text)

    def read(self) -> np.ndarray:
        return _as_array(self.file.view, self.offset, self.dtype, self.shape)

    def part(self, start: int, shape: tuple[int, ...]) -> FileSource:
        offset, length = _bytes_of(self.dtype, start, shape)
        return FileSource(self.file, self.offset + offset, length, self.dtype, shape)

    def to_ref(self) -> SourceRef:
        return SourceRef(self.key, self.file.relative, self.offset, self.length, self.dtype.name, self.shape)


class LoadedSource:
    """A range of a data file that only a function of the caller can read (:mod:`.data_loader`)."""

    def __init__(
        self, load: Callable[[], bytes], path: str, offset: int, length: int, dtype: DType, shape: tuple[int, ...]
    ) -> None:
        self._load = load
        self.path, self.offset, self.length = path, offset, length
        self.dtype, self.shape = dtype, shape

    @cached_property
    def key(self) -> str:
        text = f"loaded\0{self.path}\0{self.offset}\0{self.length}\0{self.dtype.name}{list(self.shape)}"
        return _digest(text)

    def read(self) -> np.ndarray:
        return _as_array(self._load(), 0, self.dtype, self.shape)

    def part(self, start: int, shape: tuple[int, ...]) -> LoadedSource:
        offset, length = _bytes_of(self.dtype, start, shape)
        load = self._load
        return LoadedSource(
            lambda: load()[offset : offset + length], self.path, self.offset + offset, length, self.dtype, shape
        )

    def to_ref(self) -> SourceRef:
        return SourceRef(self.key, self.path, self.offset, self.length, self.dtype.name, self.shape)
