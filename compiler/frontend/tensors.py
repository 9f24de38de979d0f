"""TensorProto -> source: inline, embedded in the model file, or in an external data file."""

from __future__ import annotations

import math
import stat
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from ...runtime.plan import dtypes
from ...runtime.plan.dtypes import UINT8, DType, packed_bytes
from ...runtime.plan.errors import LimitError, MissingFileError, ModelError, UnsupportedError
from ..ir.constants import (
    BytesSource,
    FileIdentity,
    FileSource,
    InlineSource,
    LoadedSource,
    MappedFile,
    PackedSource,
    TensorSource,
)
from ..ir.shapes import shape_fault
from .messages import TensorProto

#: (path, offset, length, name of the tensor) -> bytes
LoadData = Callable[[str, int, int, str], bytes]

_SMALLER = "reshape it while the model is exported"
_EXTERNAL_KEYS = frozenset({"location", "offset", "length", "checksum"})


class TensorReader:
    """Makes sources from the tensors of one model.

    ``ranges`` are the byte ranges that the scan took out of the message (:mod:`.tensor_file`); only those are
    believed.  ``file`` maps the model file; a model given as bytes has ``data`` instead and no external data, unless
    ``load`` reads it: a function of path, offset, length and the tensor's name.
    """

    def __init__(
        self,
        ranges: frozenset[tuple[int, int]],
        file: MappedFile | None = None,
        data: bytes | None = None,
        load: LoadData | None = None,
    ) -> None:
        self._load = load
        self._ranges = ranges
        self._file = file
        self._data = data
        self._external: dict[str, MappedFile] = {}

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """Every file that was opened."""
        first = (self._file,) if self._file is not None else ()
        return (*first, *self._external.values())

    def source(self, tensor: TensorProto, name: str) -> TensorSource:
        """Return the source of a tensor, which messages call ``name``."""
        try:
            dtype = dtypes.from_onnx(tensor.data_type)
        except UnsupportedError as error:
            error.tensor = name
            raise
        shape = tuple(int(size) for size in tensor.dims)
        if any(size < 0 for size in shape):
            raise ModelError(f"the shape {shape} has a negative size", tensor=name)
        fault = shape_fault(shape)
        if fault is not None:
            raise LimitError(fault, tensor=name, hint=_SMALLER)
        if dtype.name == "string":
            raise UnsupportedError("constants of strings are not supported", tensor=name)
        if dtype.narrow and (tensor.data_location == TensorProto.EXTERNAL or tensor.HasField("segment")):
            size = packed_bytes(math.prod(shape), dtype)
            return PackedSource(self._stored(tensor, name, UINT8, (size,)), dtype, shape)
        return self._stored(tensor, name, dtype, shape)

    def _stored(self, tensor: TensorProto, name: str, dtype: DType, shape: tuple[int, ...]) -> TensorSource:
        expected = packed_bytes(math.prod(shape), dtype)
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external_source(tensor, name, dtype, shape, expected)
        if tensor.HasField("segment"):
            begin, end = tensor.segment.begin, tensor.segment.end
            if (begin, end) not in self._ranges:
                raise ModelError("a tensor in segments is not supported", tensor=name)
            _check_length(name, dtype, shape, end - begin, expected)
            if self._file is not None:
                return FileSource(self._file, begin, expected, dtype, shape)
            assert self._data is not None
            return BytesSource(memoryview(self._data)[begin:end], dtype, shape, begin)
        if tensor.HasField("raw_data"):
            _check_length(name, dtype, shape, len(tensor.raw_data), expected)
            if dtype.narrow:
                return PackedSource(InlineSource(np.frombuffer(tensor.raw_data, np.uint8)), dtype, shape)
            return InlineSource(np.frombuffer(tensor.raw_data, dtypes.compute_dtype(dtype)).reshape(shape), dtype)
        from onnx import numpy_helper  # few models have tensors in this form

        try:
            array = numpy_helper.to_array(tensor)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"the elements do not fit {dtype}{list(shape)}: {error}", tensor=name) from None
        return InlineSource(array, dtype)

    def restore(self, tensor: TensorProto) -> TensorProto:
        """Return the tensor with its payload embedded, taken from the scanned bytes or from an external data file."""
        if tensor.data_location != TensorProto.EXTERNAL and not tensor.HasField("segment"):
            return tensor
        whole = TensorProto()
        whole.CopyFrom(tensor)
        del whole.external_data[:]
        whole.ClearField("data_location")
        whole.ClearField("segment")
        if tensor.HasField("segment"):
            begin, end = tensor.segment.begin, tensor.segment.end
            view = self._data if self._file is None else self._file.view
            assert view is not None, "a model has a file or bytes"
            whole.raw_data = bytes(memoryview(view)[begin:end])
            return whole
        entries = _external_entries(tensor, tensor.name)
        location = entries["location"]
        offset = _number(entries.get("offset", "0"), "offset", tensor.name)
        length = _number(entries.get("length", "0"), "length", tensor.name)
        if self._load is not None:
            _check_location(location, tensor.name)
            whole.raw_data = bytes(self._load(location, offset, length, tensor.name))
        else:
            view = self._open(location, tensor.name).view
            whole.raw_data = bytes(memoryview(view)[offset : offset + length if "length" in entries else None])
        return whole

    # -- external data ---------------------------------------------------------------------------------------------

    def _external_source(
        self, tensor: TensorProto, name: str, dtype: DType, shape: tuple[int, ...], expected: int
    ) -> TensorSource:
        entries = _external_entries(tensor, name)
        location = entries["location"]
        offset = _number(entries.get("offset", "0"), "offset", name)
        length = _number(entries.get("length", str(expected)), "length", name)
        if self._load is not None:
            load = self._load
            _check_location(location, name)
            _check_length(name, dtype, shape, length, expected)
            return LoadedSource(lambda: load(location, offset, length, name), location, offset, length, dtype, shape)
        file = self._open(location, name)
        _check_length(name, dtype, shape, length, expected)
        if offset + length > file.identity.size:
            raise ModelError(
                f"bytes {offset} to {offset + length} of '{location}' were asked for, "
                f"but the file has {file.identity.size}",
                tensor=name,
            )
        return FileSource(file, offset, length, dtype, shape)

    def _open(self, location: str, name: str) -> MappedFile:
        """Map a data file that the model names.  The name is untrusted: it must stay inside the model's folder."""
        if location in self._external:
            return self._external[location]
        if self._file is None:
            raise ModelError(
                f"the data of the tensor is in the file '{location}', but the model was given as bytes",
                tensor=name,
                hint="pass the path of the model, or external_data_loader",
            )
        relative = _check_location(location, name)
        folder = self._file.path.resolve().parent
        try:
            path = (folder / relative).resolve(strict=True)
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            hint = "the data of the tensor is in it: put it beside the model"
            raise MissingFileError(folder / relative, tensor=name, hint=hint) from None
        except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
            reason = getattr(error, "strerror", "") or error
            raise ModelError(f"cannot read the data file '{location}': {reason}", tensor=name) from None
        if not path.is_relative_to(folder):
            raise ModelError(f"the data file '{location}' is a link out of the folder of the model", tensor=name)
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"the data file '{location}' is not a regular file", tensor=name)
        if status.st_nlink > 1:
            raise ModelError(
                f"the data file '{location}' has other names, which may lie outside the folder of the model",
                tensor=name,
                hint="a hard link is not followed: copy the file",
            )
        opened = MappedFile.open(path, str(relative))
        if opened.identity != FileIdentity.of(path, status):
            raise ModelError(f"the data file '{location}' was replaced while it was opened", tensor=name)
        self._external[location] = opened
        return opened


def _check_location(location: str, name: str) -> PurePosixPath:
    """Return the path of a data file; raise :class:`ModelError` unless it is relative, portable and without ``..``."""
    relative = PurePosixPath(location)
    if not location or "\0" in location or "\\" in location or ":" in location:
        raise ModelError(f"'{location}' is not a portable relative path", tensor=name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ModelError(f"the data file '{location}' is outside the folder of the model", tensor=name)
    return relative


def _external_entries(tensor: TensorProto, name: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _EXTERNAL_KEYS:
            raise ModelError(f"unknown key '{entry.key}' of external data", tensor=name)
        if entry.key in entries:
            raise ModelError(f"the key '{entry.key}' of external data is given twice", tensor=name)
        entries[entry.key] = entry.value
    if "location" not in entries:
        raise ModelError("external data without a location", tensor=name)
    return entries


def _number(text: str, key: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"the {key} of external data is '{text}', not a number of bytes", tensor=name)
    return int(text)


def _check_length(name: str, dtype: DType, shape: tuple[int, ...], length: int, expected: int) -> None:
    if length != expected:
        raise ModelError(f"{dtype}{list(shape)} needs {expected} bytes, but there are {length}", tensor=name)


_CONSTANT_ATTRIBUTES: dict[str, tuple[type, type]] = {
    "value_float": (float, np.float32),
    "value_floats": (tuple, np.float32),
    "value_int": (int, np.int64),
    "value_ints": (tuple, np.int64),
}


def constant_of_attributes(attributes: dict[str, Any], name: str) -> TensorSource:
    """Return the value of a Constant node."""
    if len(attributes) != 1:
        raise ModelError(f"a Constant needs one value, not {len(attributes)}", tensor=name)
    ((key, value),) = attributes.items()
    if key == "value" and isinstance(value, (InlineSource, BytesSource, FileSource, LoadedSource, PackedSource)):
        return value
    if key in _CONSTANT_ATTRIBUTES and isinstance(value, _CONSTANT_ATTRIBUTES[key][0]):
        return InlineSource(np.asarray(value, _CONSTANT_ATTRIBUTES[key][1]))
    raise UnsupportedError(f"a Constant with '{key}' is not supported", tensor=name)
