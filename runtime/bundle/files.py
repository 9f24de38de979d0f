"""The files of a bundle, from a folder or a zip: their names, sizes and bytes, nothing followed and nothing guessed.

Every failure is a :class:`BundleError` that names the file.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ..plan.errors import BundleError, MissingBundleError
from .format import DIGEST, MANIFEST, is_file_name
from .zip import ZipEntry, is_zip, read_directory


class BundleFiles(Protocol):
    """``sizes`` has every file that there is, by name."""

    @property
    def sizes(self) -> Mapping[str, int]: ...

    def view(self, name: str) -> memoryview:
        """Return the bytes of file ``name``, one of ``sizes``, memory-mapped: they are read on access."""
        ...

    def check_whole(self, name: str, data: memoryview) -> None:
        """Check what the container says about a file of which all bytes are at hand."""
        ...

    def close(self) -> None:
        """Drop the mappings; they end with the last view of them."""
        ...


def open_files(path: Path) -> BundleFiles:
    """Open the files of the bundle at ``path``.

    Raises :class:`BundleError` if it is not a bundle.
    """
    try:
        if path.is_dir():
            return FolderFiles(path)
        if path.is_file():
            return ZipFiles(path)
    except OSError as error:
        raise BundleError(f"cannot read '{path}': {error.strerror or error}") from None
    raise MissingBundleError(path)


def is_bundle(path: Path) -> bool:
    """Return whether ``path`` looks like a bundle rather than a model: a folder, or a zip."""
    try:
        return path.is_dir() or (path.is_file() and is_zip(path))
    except OSError:  # a name that the system does not allow
        return False


class FolderFiles:
    """A bundle that is a folder.  Only regular files count; links are refused, at any depth below the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sizes: dict[str, int] = {}
        self._mapped: dict[str, mmap.mmap | bytes] = {}
        if not any(os.path.lexists(folder / name) for name in (MANIFEST, DIGEST)):  # rather than a damaged bundle
            raise BundleError(f"the folder '{folder}' is no bundle: '{MANIFEST}' is missing", hint="check the path")
        self._scan(folder, "")

    def _scan(self, folder: Path, prefix: str) -> None:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        if prefix and not entries:
            raise BundleError(f"'{prefix[:-1]}' is an empty folder, which no bundle has")
        for entry in entries:
            name = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and not prefix and is_file_name(name):
                self._scan(folder / entry.name, name + "/")
            elif not stat.S_ISREG(status.st_mode):
                raise BundleError(f"'{name}' is not a regular file")
            elif not is_file_name(name):
                raise BundleError(f"'{name}' is not the name of a file of a bundle")
            else:
                self.sizes[name] = os.stat(entry.path, follow_symlinks=False).st_size  # scandir's may be stale

    def view(self, name: str) -> memoryview:
        if name not in self._mapped:
            self._mapped[name] = self._map(name)
        return memoryview(self._mapped[name])

    def _map(self, name: str) -> mmap.mmap | bytes:
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            handle = os.open(self._folder / name, flags)
            try:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode) or status.st_size != self.sizes[name]:
                    raise BundleError(f"'{name}' has changed since the bundle was opened")
                return mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if status.st_size else b""
            finally:
                os.close(handle)
        except OSError as error:
            raise BundleError(f"cannot read '{name}': {error.strerror or error}") from None

    def check_whole(self, name: str, data: memoryview) -> None:
        """Accept any data: a folder has no checksum of its own."""

    def close(self) -> None:
        self._mapped.clear()


class ZipFiles:
    """A bundle that is a zip.  Every byte outside the entries' data is checked when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._data: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        try:
            self._entries: dict[str, ZipEntry] = read_directory(memoryview(self._data))
        except ValueError as error:
            if not is_zip(path):  # a model, perhaps, rather than a damaged bundle
                raise BundleError(
                    f"the file '{path}' is no bundle, which is a folder or a zip",
                    hint="shaderloom compile makes one of a model",
                ) from None
            raise BundleError(f"'{path.name}' is not a zip of stored, canonical entries: {error}") from None
        self.sizes = {name: entry.size for name, entry in self._entries.items()}

    def view(self, name: str) -> memoryview:
        entry = self._entries[name]
        return memoryview(self._data)[entry.offset : entry.offset + entry.size]

    def check_whole(self, name: str, data: memoryview) -> None:
        """Raise :class:`BundleError` unless ``data`` has the CRC-32 of the entry."""
        if not self._entries[name].matches(data):
            raise BundleError(f"'{name}' does not have the CRC-32 that '{self._path.name}' says")

    def close(self) -> None:
        self._data = b""
