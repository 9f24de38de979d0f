"""Zip files of one form only: stored entries, canonical headers, no gap between them.

Two readers of a zip can see different files when entries overlap, names repeat, or the two headers of an entry
disagree.  Here every header follows from names, sizes and checksums, so a reader makes them again and compares the
bytes.  ``docs/guide/bundles.md`` prescribes them; the layout of the records is that of PKWARE's APPNOTE.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from ..plan.errors import LimitError
from ..plan.record import record
from .format import DIGEST, MANIFEST, is_file_name

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_VERSION, _DATE = 20, 0x0021
#: without the 64-bit extension
_MAX_SIZE, _MAX_ENTRIES = 0xFFFFFFFE, 0xFFFE
_BLOCK = 1 << 20


@record
class ZipEntry:
    """A file in the zip: ``size`` bytes at ``offset``."""

    name: str
    size: int
    crc: int
    offset: int

    def matches(self, data: memoryview) -> bool:
        """Return whether ``data``, all bytes of the entry, has its checksum."""
        return zlib.crc32(data) == self.crc

    @property
    def start(self) -> int:
        """Where the local header begins."""
        return self.offset - _LOCAL.size - len(self.name)

    def local_header(self) -> bytes:
        name = self.name.encode("ascii")
        return _LOCAL.pack(_LOCAL_MAGIC, _VERSION, 0, 0, 0, _DATE, self.crc, self.size, self.size, len(name), 0) + name

    def central_header(self) -> bytes:
        name = self.name.encode("ascii")
        sizes = (self.crc, self.size, self.size)
        rest = (len(name), 0, 0, 0, 0, 0, self.start)
        return _CENTRAL.pack(_CENTRAL_MAGIC, _VERSION, _VERSION, 0, 0, 0, _DATE, *sizes, *rest) + name


def order(names: Sequence[str]) -> list[str]:
    """Return the order of entries: the manifest, its digest, the others by name."""
    return sorted(names, key=lambda name: (name != MANIFEST, name != DIGEST, name))


def is_zip(path: Path) -> bool:
    """Return whether the file begins like a zip."""
    try:
        with path.open("rb") as file:
            return file.read(4) == _LOCAL_MAGIC
    except OSError:
        return False


def write_zip(target: BinaryIO, folder: Path, names: Sequence[str]) -> None:
    """Pack files of a folder.  Raises :class:`LimitError` if the zip would need the 64-bit extension."""
    entries: list[ZipEntry] = []
    position = 0
    for name in order(names):
        path = folder / name
        crc = 0
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                crc = zlib.crc32(block, crc)
            size = file.tell()
            offset = position + _LOCAL.size + len(name)
            if offset + size > _MAX_SIZE or len(entries) >= _MAX_ENTRIES:
                raise LimitError("a zip bundle holds less than 4 GiB and 65,535 files", hint="write a folder instead")
            entries.append(ZipEntry(name, size, crc, offset))
            target.write(entries[-1].local_header())
            file.seek(0)
            while block := file.read(_BLOCK):
                target.write(block)
        position = offset + size
    target.write(_directory(entries, position))


def read_directory(data: memoryview) -> dict[str, ZipEntry]:
    """Return the entries of a canonical zip by name.

    Raises :class:`ValueError` for any other file.
    """
    if len(data) < _END.size or data[-_END.size : -_END.size + 4] != _END_MAGIC:
        raise ValueError("it does not end with the record that ends a zip")
    *_, count, length, start, _ = _END.unpack(data[-_END.size :])
    if start + length + _END.size != len(data):
        raise ValueError("the size of its directory is wrong")
    entries: list[ZipEntry] = []
    seen: set[str] = set()
    position, expected = start, 0
    for _ in range(count):
        entry, position = _read_entry(data, position, len(data) - _END.size)
        if entry.name in seen:
            raise ValueError(f"it holds '{entry.name}' twice")
        if entry.start != expected:
            raise ValueError(f"'{entry.name}' overlaps another entry, or leaves a gap")
        if entry.offset + entry.size > start:
            raise ValueError(f"'{entry.name}' does not end before the directory")
        if data[entry.start : entry.offset] != entry.local_header():
            raise ValueError(f"the header of '{entry.name}' is not canonical")
        seen.add(entry.name)
        entries.append(entry)
        expected = entry.offset + entry.size
    if expected != start or data[start:] != _directory(entries, start):
        raise ValueError("its directory is not canonical")
    if [entry.name for entry in entries] != order([entry.name for entry in entries]):
        raise ValueError("its entries are not in order")
    return {entry.name: entry for entry in entries}


def _read_entry(data: memoryview, position: int, end: int) -> tuple[ZipEntry, int]:
    """Return the entry whose central header is at ``position``, and the position behind that header."""
    behind = position + _CENTRAL.size
    if behind > end:
        raise ValueError("its directory is too short")
    fields = _CENTRAL.unpack(data[position:behind])
    if fields[0] != _CENTRAL_MAGIC:
        raise ValueError("its directory is damaged")
    method, crc, stored, size, name_length, start = (fields[index] for index in (4, 7, 8, 9, 10, 16))
    if behind + name_length > end:
        raise ValueError("its directory is too short")
    name = bytes(data[behind : behind + name_length]).decode("ascii", "replace")
    if not is_file_name(name):
        raise ValueError(f"{name!r} is not the name of a file of a bundle")
    if method or stored != size:
        raise ValueError(f"'{name}' is compressed")
    return ZipEntry(name, size, crc, start + _LOCAL.size + name_length), behind + name_length


def _directory(entries: Sequence[ZipEntry], start: int) -> bytes:
    """Return the central directory at position ``start``, and the end record."""
    directory = b"".join(entry.central_header() for entry in entries)
    count = len(entries)
    return directory + _END.pack(_END_MAGIC, 0, 0, count, count, len(directory), start, 0)
