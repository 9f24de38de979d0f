"""The safetensors format: a JSON header with names, types, shapes and byte ranges, then the data.

Source: the format's description in the safetensors repository.  The length of the header is 64 bits, little-endian;
ranges count from the end of the header, follow each other, and leave no holes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..plan.record import record

#: element types of ours by the format's names
DTYPE_NAMES = {
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F64": "float64",
    "I8": "int8",
    "U8": "uint8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "BOOL": "bool",
}
_BY_DTYPE = {dtype: name for name, dtype in DTYPE_NAMES.items()}
_ITEM_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
#: what other readers of the format accept
MAX_HEADER_BYTES = 100_000_000
#: data begins at a multiple of this many bytes
ALIGNMENT = 16


@record
class SafetensorsEntry:
    """A tensor in a file: bytes ``begin`` to ``end`` of the file."""

    dtype: str  #: as in :mod:`.dtypes`
    shape: tuple[int, ...]
    begin: int
    end: int


def header(tensors: Iterable[tuple[str, str, tuple[int, ...], int]]) -> bytes:
    """Return the bytes in front of the data of ``tensors``: (name, dtype, shape, bytes), in the order of the data."""
    table: dict[str, Any] = {}
    position = 0
    for name, dtype, shape, size in tensors:
        table[name] = {"dtype": _BY_DTYPE[dtype], "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def parse(data: memoryview) -> dict[str, SafetensorsEntry]:
    """Return the tensors of a file.

    Raises :class:`ValueError` unless their ranges tile the data in order.
    """
    if len(data) < 8:
        raise ValueError("it is shorter than a header")
    length = int.from_bytes(data[:8], "little")
    if length > min(len(data) - 8, MAX_HEADER_BYTES):
        raise ValueError("its header is longer than the file")
    try:
        table = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise ValueError("its header is not an object")
    table.pop("__metadata__", None)
    start = 8 + length
    entries: dict[str, SafetensorsEntry] = {}
    position = 0
    for name, item in table.items():
        entries[name] = entry = _entry(name, item, start)
        if entry.begin != start + position:
            raise ValueError(f"'{name}' does not follow the tensor before it")
        position = entry.end - start
    if start + position != len(data):
        raise ValueError("the tensors do not fill the file")
    return entries


def _entry(name: str, item: Any, start: int) -> SafetensorsEntry:
    if not isinstance(item, Mapping) or item.get("dtype") not in DTYPE_NAMES:
        raise ValueError(f"'{name}' has no known type")
    shape, offsets = item.get("shape"), item.get("data_offsets")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(f"'{name}' has no shape or no range")
    assert isinstance(shape, list) and isinstance(offsets, list)
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * _ITEM_BYTES.get(item["dtype"], 1):
        raise ValueError(f"the range of '{name}' does not fit its shape")
    return SafetensorsEntry(DTYPE_NAMES[item["dtype"]], tuple(shape), start + offsets[0], start + offsets[1])
