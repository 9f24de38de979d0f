"""Verified reads of a bundle's files: bytes are returned only after the hash of their chunk was checked.

Every failure is a :class:`BundleError` that names the file.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..plan.errors import BundleError
from .files import BundleFiles
from .format import CHUNK, DIGEST, MANIFEST, MAX_MANIFEST, SIGNATURE
from .manifest import FileRecord, Manifest
from .signing import verify

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def chunk_hashes(data: memoryview) -> tuple[str, ...]:
    """Return the SHA-256 of each chunk of a file, in hex."""
    return tuple(hashlib.sha256(data[start : start + CHUNK]).hexdigest() for start in range(0, len(data), CHUNK))


def digest_line(manifest: bytes) -> bytes:
    """Return the content of ``manifest.sha256``."""
    return hashlib.sha256(manifest).hexdigest().encode() + b"\n"


def read_manifest(files: BundleFiles, key: Ed25519PublicKey | None = None) -> Manifest:
    """Read the manifest, verify its digest, and check that the bundle has exactly the files that it lists.

    With a ``key`` the digest must be signed by its other half.
    """
    for name in (MANIFEST, DIGEST):
        if name not in files.sizes:
            raise BundleError(f"'{name}' is missing")
    if key is not None and SIGNATURE not in files.sizes:
        raise BundleError(f"'{SIGNATURE}' is missing", hint="ask for a signed bundle: shaderloom compile --sign")
    if files.sizes[MANIFEST] > MAX_MANIFEST:
        raise BundleError(f"'{MANIFEST}' has {files.sizes[MANIFEST]:,} bytes, more than any bundle needs")
    data, line = bytes(files.view(MANIFEST)), bytes(files.view(DIGEST)[:100])
    if line != digest_line(data):
        raise BundleError(f"'{MANIFEST}' does not have the digest that '{DIGEST}' says")
    for name, content in ((MANIFEST, data), (DIGEST, line)):
        files.check_whole(name, memoryview(content))
    if key is not None:
        verify(bytes(files.view(SIGNATURE)[:200]), line, key)
    try:
        manifest = Manifest.from_bytes(data)
    except ValueError as error:
        raise BundleError(f"'{MANIFEST}': {error}") from None
    _compare_listing(files.sizes, manifest.files)
    return manifest


def _compare_listing(sizes: Mapping[str, int], records: Mapping[str, FileRecord]) -> None:
    for name, record in records.items():
        if name not in sizes:
            raise BundleError(f"'{name}' is missing")
        if sizes[name] != record.size:
            raise BundleError(f"'{name}' has {sizes[name]:,} bytes instead of {record.size:,}")
    for name in sizes:
        if name not in records and name not in (MANIFEST, DIGEST, SIGNATURE):
            raise BundleError(f"'{name}' is not a file that '{MANIFEST}' lists")


class CheckedFiles:
    """The listed files of a bundle.  Thread-safe; each chunk of a mapped file is hashed once."""

    def __init__(self, files: BundleFiles, records: Mapping[str, FileRecord]) -> None:
        self._files = files
        self._records = records
        self._checked: set[tuple[str, int]] = set()
        self._lock = threading.Lock()

    def read(self, name: str) -> bytes:
        """Return a whole file, copied before it is checked."""
        record = self._record(name)
        data = bytes(self._files.view(name))
        if len(data) != record.size or chunk_hashes(memoryview(data)) != record.chunks:
            raise self._damaged(name)
        self._files.check_whole(name, memoryview(data))
        return data

    def view(self, name: str, offset: int, length: int) -> memoryview:
        """Return a range of a file as a view of the mapping, its chunks checked."""
        record = self._record(name)
        whole = self._files.view(name)
        if offset < 0 or length < 0 or offset + length > record.size or len(whole) != record.size:
            raise BundleError(f"bytes {offset} to {offset + length} lie outside '{name}'")
        if length:
            for index in range(offset // CHUNK, (offset + length - 1) // CHUNK + 1):
                self._check(name, record, whole, index)
        return whole[offset : offset + length]

    def check_all(self, progress: Callable[[str, int, int], None]) -> None:
        """Check every listed file.  ``progress`` gets the file, bytes done and bytes in all."""
        total = sum(record.size for record in self._records.values())
        done = 0
        for name, record in self._records.items():
            whole = self.view(name, 0, 0)
            for index in range(len(record.chunks)):
                self._check(name, record, self._files.view(name), index)
                done += min(CHUNK, record.size - index * CHUNK)
                progress(f"checking {name}", done, total)
            self._files.check_whole(name, self._files.view(name))
            del whole

    def _record(self, name: str) -> FileRecord:
        try:
            return self._records[name]
        except KeyError:
            raise BundleError(f"'{name}' is not a file that '{MANIFEST}' lists") from None

    def _check(self, name: str, record: FileRecord, whole: memoryview, index: int) -> None:
        with self._lock:
            if (name, index) in self._checked:
                return
        if hashlib.sha256(whole[index * CHUNK : (index + 1) * CHUNK]).hexdigest() != record.chunks[index]:
            raise self._damaged(name)
        with self._lock:
            self._checked.add((name, index))

    @staticmethod
    def _damaged(name: str) -> BundleError:
        return BundleError(f"'{name}' is damaged: its bytes do not have the hash that '{MANIFEST}' says")
