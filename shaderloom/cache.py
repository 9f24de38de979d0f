"""The disk cache: content-addressed entries that a later process may use instead of compiling.

A key is the sha256 of the canonical JSON of *named* entries: everything that determines the value.  An entry::

    shaderloom-cache 2 <kind> <sha256 of the body> <length of the body>\\n
    <body: zlib-compressed JSON {"key": {...the named entries...}, "value": ...}>

A file is used only if the header, the length, the digest and the named entries are all as expected; everything else is
a miss, so a corrupt, truncated, stale or half-written entry never becomes code.  Nor does a file cost much that only
looks like an entry: links and what is no regular file are not opened, and size and nesting are bounded.

Entries are written to a temporary file and renamed, so that processes that write at the same time do not see each
other's parts.  The entries that were not used for longest are removed when the folder exceeds its limit.

This module imports no other part of the compiler: a hit must not load it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.resources
import json
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .log import CACHE

#: Environment variable with the folder of the cache, or ``off``
FOLDER_VARIABLE = "SHADERLOOM_CACHE"

DEFAULT_LIMIT = 512 << 20  #: bytes of all entries together

#: Bytes of the JSON text of an entry, and so of its file: a plan of a thousand kernels has a few million
MAX_ENTRY = 32 << 20
#: Levels of the lists and objects of an entry; plans have about ten
MAX_NESTING = 64

_MAGIC = "shaderloom-cache 2"
_SUFFIX = ".entry"

#: Packages whose sources determine what the compiler writes
_SOURCES = ("shaderloom.compiler", "shaderloom.templates", "shaderloom.runtime")

#: Installed distributions whose version determines it, too
_DISTRIBUTIONS = ("onnx", "jinja2", "numpy")


@functools.cache
def compiler_version() -> str:
    """Return the sha256 of all sources and templates of the compiler and the versions of its dependencies."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        for name, text in _texts(importlib.resources.files(package), package):
            digest.update(f"{name}\0{len(text)}\0".encode() + text)
    for distribution in _DISTRIBUTIONS:
        digest.update(f"{distribution} {importlib.metadata.version(distribution)}\0".encode())
    return digest.hexdigest()


def _texts(folder: Any, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _texts(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".j2")):
            yield f"{name}/{entry.name}", entry.read_bytes()


def canonical(value: Any) -> str:
    """Return JSON text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def key_of(kind: str, entries: Mapping[str, Any]) -> str:
    """Return the cache key: the sha256 of the kind and the named ``entries`` (JSON values) that determine the value."""
    return hashlib.sha256(canonical({"kind": kind, "entries": entries}).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """State of a cache folder; sizes in bytes."""

    folder: Path
    entries: int
    size: int
    limit: int


class DiskCache:
    """Entries in one folder.  No method raises for the state of the disk: every failure is a miss."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def get(self, kind: str, entries: Mapping[str, Any]) -> Any | None:
        """Return the value stored for these entries, or None; an unusable entry is deleted."""
        path = self._path(kind, entries)
        try:
            value = _decode(_read_file(path), kind, entries)
        except FileNotFoundError:
            CACHE.debug("no %s in %s", kind, self.folder)
            return None
        except (OSError, ValueError) as error:
            CACHE.warning("dropped an unusable entry, %s: %s", path, error)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        CACHE.debug("used the %s", path)
        with contextlib.suppress(OSError):
            os.utime(path)  # it counts as used now
        return value

    def put(self, kind: str, entries: Mapping[str, Any], value: Any) -> bool:
        """Store a JSON value; return False if that fails (no space, no permission, larger than a limit)."""
        text = canonical({"key": entries, "value": value}).encode()
        body = zlib.compress(text, 3)
        head = f"{_MAGIC} {kind} {hashlib.sha256(body).hexdigest()} {len(body)}\n".encode()
        if len(text) > MAX_ENTRY or len(head) + len(body) > min(self.limit, MAX_ENTRY):
            CACHE.info("did not store a %s of %d bytes", kind, len(text))
            return False
        path = self._path(kind, entries)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(head + body)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError:
            return False
        self._evict(keep=path)
        return True

    def clear(self) -> int:
        """Remove every entry and the partial files of interrupted writers; return the number of entries removed."""
        removed = 0
        for path in self._files(""):
            with contextlib.suppress(OSError):
                path.unlink()
                removed += path.suffix == _SUFFIX
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()
        return removed

    def info(self) -> CacheInfo:
        sizes = [size for _, _, size in self._states()]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.limit)

    def _path(self, kind: str, entries: Mapping[str, Any]) -> Path:
        key = key_of(kind, entries)
        return self.folder / key[:2] / f"{key}{_SUFFIX}"

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self.folder.iterdir() if len(path.name) == 2 and path.is_dir()]
        except OSError:
            return []

    def _files(self, suffix: str) -> Iterator[Path]:
        """Iterate over the files that this class wrote; no other file in the folder is ever touched."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for path in folder.iterdir():
                    if path.suffix in (_SUFFIX, ".part") and path.name.endswith(suffix):
                        yield path

    def _states(self) -> list[tuple[float, Path, int]]:
        """Return (time of last use, path, size in bytes) of every entry."""
        states = []
        for path in self._files(_SUFFIX):
            with contextlib.suppress(OSError):
                status = path.lstat()
                states.append((status.st_mtime, path, status.st_size))
        return states

    def _evict(self, keep: Path) -> None:
        states = sorted(self._states())
        total = sum(size for _, _, size in states)
        for _, path, size in states:
            if total <= self.limit:
                return
            if path != keep:
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size


def _read_file(path: Path) -> bytes:
    """Return the bytes of a regular file that is no link; raise :class:`ValueError` for any other and for a large one.

    ``O_NONBLOCK``: opening a FIFO does not wait for its writer.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        raw = file.read(MAX_ENTRY + 1)
    if len(raw) > MAX_ENTRY:
        raise ValueError(f"it has more than {MAX_ENTRY:,} bytes")
    return raw


def _decode(raw: bytes, kind: str, entries: Mapping[str, Any]) -> Any:
    """Return the value of an entry; raise :class:`ValueError` if it is no whole one for exactly these ``entries``."""
    head, separator, body = raw.partition(b"\n")
    expected = f"{_MAGIC} {kind} {hashlib.sha256(body).hexdigest()} {len(body)}"
    if not separator or head != expected.encode():
        raise ValueError("it is damaged, or of another version")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(body, MAX_ENTRY)
        if not unpacker.eof:
            raise ValueError(f"it is cut, or has more than {MAX_ENTRY:,} bytes of text")
        content = json.loads(text)
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(content, dict) or "value" not in content:
        raise ValueError("it has no value")
    _check_nesting(content)
    if canonical(content.get("key")) != canonical(entries):
        raise ValueError("it is for another key")
    return content["value"]


def _check_nesting(content: Any) -> None:
    """Raise :class:`ValueError` if lists and objects are nested too deeply for what reads them."""
    level = [content]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_NESTING} deep")


def default_folder() -> Path | None:
    """Return the folder of the user's cache, or None if ``SHADERLOOM_CACHE=off`` disables it."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("shaderloom", appauthor=False)) / "plans"


def open_cache(choice: bool | str | os.PathLike[str] | DiskCache = True) -> DiskCache | None:
    """Open the cache that a session selects: True for the user's cache, a folder, or False for none."""
    if isinstance(choice, DiskCache):
        return choice
    if choice is False:
        return None
    folder = default_folder() if choice is True else Path(choice)
    return DiskCache(folder) if folder is not None else None
