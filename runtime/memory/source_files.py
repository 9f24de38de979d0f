"""Bytes of initializers for the weight pool: views of mapped model and data files, or of bytes in memory.

Nothing is copied and nothing is read before the device asks.  A file that is not the one that the plan was compiled for
is refused: its identity (size, modification time, inode) is checked when it is mapped.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..plan.errors import InternalError, ModelError
from ..plan.plan import SourceRef
from ..plan.record import record
from .data_loader import DataLoader


@record
class FileState:
    """Metadata that distinguishes versions of a file without reading it."""

    size: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


class SourceFiles:
    """Gives the bytes of a :class:`SourceRef`.

    ``path`` is the model file and ``files`` the expected state of it (``""``) and of its data files by their path
    relative to the model's folder; ``data`` holds a model without a file.  With a ``loader`` data files come from it.
    """

    def __init__(
        self, path: Path | None, data: bytes | None, files: Mapping[str, FileState], loader: DataLoader | None = None
    ) -> None:
        self._loader = loader
        self._path = path
        self._data = data
        self._files = files
        self._mapped: dict[str, mmap.mmap | bytes] = {}
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """The files and their states as text; "" without a file, or with a loader of the caller's."""
        if self._path is None or self._loader is not None:
            return ""
        states = [(name, state.size, state.modified_ns, state.inode) for name, state in sorted(self._files.items())]
        return repr((str(self._path), states))

    def __call__(self, source: SourceRef) -> Any:
        """Return a read-only view of the source's bytes, or the result of the loader for them.

        Raises :class:`ModelError` if the file has changed or is gone.
        """
        if source.data is not None:
            return memoryview(source.data)
        if source.path is None:
            raise InternalError(f"source '{source.key}' has neither a file nor data")
        if self._loader is not None and source.path:
            return self._loader(source.path, source.offset, source.length)
        view = memoryview(self._open(source.path))
        if source.offset < 0 or source.offset + source.length > len(view):
            raise ModelError("the bytes of an initializer lie outside its file", tensor=source.key)
        return view[source.offset : source.offset + source.length]

    def _open(self, relative: str) -> mmap.mmap | bytes:
        if not relative and self._data is not None:
            return self._data
        with self._lock:
            if relative not in self._mapped:
                self._mapped[relative] = self._map(relative)
            return self._mapped[relative]

    def _map(self, relative: str) -> mmap.mmap | bytes:
        expected = self._files.get(relative)
        if self._path is None or expected is None:
            raise InternalError(f"the plan reads '{relative}', which is not a file of the model")
        path = self._path.parent / relative if relative else self._path
        try:
            with path.open("rb") as file:
                if FileState.of(os.fstat(file.fileno())) != expected:
                    raise ModelError(f"'{path}' has changed since the model was loaded", hint="make a new session")
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if expected.size else b""
        except OSError as error:
            raise ModelError(f"cannot read '{path}': {error.strerror or error}") from error

    def close(self) -> None:
        """Drop the mappings; they end with the last view of them."""
        with self._lock:
            self._mapped.clear()
