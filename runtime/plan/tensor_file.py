"""Byte ranges of tensors in model files, found without reading the tensors.

An ONNX file is a protobuf message that may hold gigabytes of weights.  :func:`strip_payloads` walks its wire format
and gives a copy of the message *without* the large tensor payloads, small enough to be parsed by protobuf, together
with the byte range of each payload in the file.  It looks everywhere a tensor can be: initializers of the graph and of
nested graphs, attributes of nodes (Constant among them) and of functions.

In the copy, a stripped ``TensorProto`` says where its payload is in its ``segment`` field (``begin`` and ``end`` are
byte positions in the file), which real files never use.

What counts as a payload: ``raw_data``, and ``float_data`` and ``double_data`` in one packed run, whose wire format is
the array itself.  Integers in typed fields are varints; they stay in the copy.

The scan is linear in the number of fields, copies nothing larger than :data:`MINIMUM_PAYLOAD` bytes of a payload, and
raises :class:`ModelError` for input that is truncated or is no protobuf message.

Source of the format: protobuf's encoding guide, and ``onnx.proto`` for the field numbers.
"""

from __future__ import annotations

import mmap

from .errors import ModelError
from .record import record

#: smaller payloads stay in the copy; a message shorter than this cannot hold one and is copied without a look inside
MINIMUM_PAYLOAD = 512
#: nested messages; protobuf's own parsers refuse more than 100
MAX_DEPTH = 100

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: message type -> number of a field -> message type of that field: the ways that lead to tensors
_FIELDS: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph"},
}
_SEGMENT, _RAW_DATA = 3, 9
_DATA_TYPE = 2
#: packed runs that are the array: field number -> TensorProto.DataType for which this is so
_FIXED_WIDTH_RUNS = {4: 1, 10: 11}


@record
class StrippedModel:
    """``message`` is a ModelProto without large payloads; ``ranges`` their (begin, end) in the file."""

    message: bytes
    ranges: frozenset[tuple[int, int]]


def strip_payloads(data: bytes | mmap.mmap | memoryview) -> StrippedModel:
    """Split an ONNX file into the message without its large payloads and their ranges."""
    with memoryview(data) as view:
        scan = _Scan(view)
        scan.message("Model", 0, len(view), 0)
        return StrippedModel(b"".join(scan.pieces), frozenset(scan.ranges))


class _Scan:
    """Rewrites a message into ``pieces``.  A piece is replaced once its length is known: enclosing messages shrink."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.pieces: list[bytes | memoryview] = []
        self.ranges: list[tuple[int, int]] = []

    def message(self, kind: str, start: int, end: int, depth: int) -> int:
        """Copy the fields of the message in [start, end); return the number of bytes written."""
        if depth > MAX_DEPTH:
            raise ModelError(f"messages are nested more than {MAX_DEPTH} deep")
        if kind == "Tensor":
            return self._tensor(start, end)
        nested = _FIELDS[kind]
        written = 0
        copied = position = start  # [copied, position) is still to be copied as it is
        while position < end:
            number, wire_type, value_start, value_end = self._field(position, end)
            inner = nested.get(number) if wire_type == _BYTES else None
            if inner is not None and value_end - value_start >= MINIMUM_PAYLOAD:
                written += self._copy(copied, position)
                head = len(self.pieces)
                self.pieces.append(b"")
                size = self.message(inner, value_start, value_end, depth + 1)
                self.pieces[head] = _varint(number << 3 | _BYTES) + _varint(size)
                written += len(self.pieces[head]) + size
                copied = value_end
            position = value_end
        return written + self._copy(copied, end)

    def _tensor(self, start: int, end: int) -> int:
        payloads: list[tuple[int, int, int, int]] = []  # field start, value start, value end, field number
        data_type = None
        position = start
        while position < end:
            number, wire_type, value_start, value_end = self._field(position, end)
            if number == _SEGMENT:
                raise ModelError("a tensor in segments is not supported")
            if number == _DATA_TYPE and wire_type == _VARINT:
                data_type = self._read_varint(value_start, value_end)[0]
            elif wire_type == _BYTES and (number == _RAW_DATA or number in _FIXED_WIDTH_RUNS):
                payloads.append((position, value_start, value_end, number))
            position = value_end
        # Several runs, or a run of another type, are left to protobuf; more than one payload is malformed or exotic.
        if len(payloads) != 1:
            return self._copy(start, end)
        field_start, value_start, value_end, number = payloads[0]
        wanted = _FIXED_WIDTH_RUNS.get(number)
        if value_end - value_start < MINIMUM_PAYLOAD or (wanted is not None and wanted != data_type):
            return self._copy(start, end)
        self.ranges.append((value_start, value_end))
        segment = b"\x08" + _varint(value_start) + b"\x10" + _varint(value_end)
        field = _varint(_SEGMENT << 3 | _BYTES) + _varint(len(segment)) + segment
        self.pieces.append(field)
        return len(field) + self._copy(start, field_start) + self._copy(value_end, end)

    def _copy(self, start: int, end: int) -> int:
        if end > start:
            # bytes, not a view: the pieces must not keep a mapping open
            self.pieces.append(bytes(self.view[start:end]))
        return end - start

    def _field(self, position: int, end: int) -> tuple[int, int, int, int]:
        """Return number, wire type, start and end of the value of the field at ``position``."""
        tag, position = self._read_varint(position, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ModelError("not an ONNX file: a protobuf field has number 0")
        if wire_type == _VARINT:
            _, value_end = self._read_varint(position, end)
        elif wire_type == _BYTES:
            length, position = self._read_varint(position, end)
            value_end = position + length
        elif wire_type in (_FIXED64, _FIXED32):
            value_end = position + (8 if wire_type == _FIXED64 else 4)
        else:
            raise ModelError(f"not an ONNX file: a protobuf field has wire type {wire_type}")
        if value_end > end:
            raise ModelError(f"the file is truncated: a field ends {value_end - end} bytes behind its message")
        return number, wire_type, position, value_end

    def _read_varint(self, position: int, end: int) -> tuple[int, int]:
        """Return a variable-length integer and the position behind it."""
        value = shift = 0
        view = self.view
        while True:
            if position >= end:
                raise ModelError("the file is truncated in a number")
            byte = view[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift >= 70:
                raise ModelError("not an ONNX file: a number has more than ten bytes")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
