"""The disk cache: content-addressed entries that a later process may use instead of compiling.

A key is the sha256 of the canonical JSON of *named* entries: everything that determines the value.  Everything that is
not as expected is a miss, so a corrupt, truncated, stale or half-written entry never becomes code.  Entries are written
to a temporary file and renamed, so that processes that write at the same time do not see each other's parts.  The
entries that were not used for longest are removed when the folder exceeds its limit.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..log import CACHE
from ..runtime.plan.record import record
from .entry import MAX_ENTRY, canonical, decode, encode
from .files import others_have_access, read_regular
from .secret import load_secret, secret_path
from .writing import finish_writing, write_later

#: Environment variable with the folder of the cache, or ``off``
FOLDER_VARIABLE = "SHADERLOOM_CACHE"

DEFAULT_LIMIT = 512 << 20  #: bytes of all entries together

_SUFFIX = ".entry"
_WRITE_ACCESS = 0o022


def key_of(kind: str, entries: Mapping[str, Any]) -> str:
    """Return the cache key: the sha256 of the kind and the named ``entries`` (JSON values) that determine the value."""
    return hashlib.sha256(canonical({"kind": kind, "entries": entries}).encode()).hexdigest()


@record
class CacheInfo:
    """State of a cache folder; sizes in bytes."""

    folder: Path
    entries: int
    size: int
    limit: int


class DiskCache:
    """Entries in one folder, authenticated with ``secret``; without one they are only checked for damage.

    A folder that is another user's, or that others may write to, is not used.  No method raises for the state of the
    disk: every failure is a miss.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT, *, secret: bytes | None = None) -> None:
        self.folder = folder
        self.limit = limit
        self._secret = secret

    @property
    def is_authentic(self) -> bool:
        """Whether only processes of this user can have made the entries that :meth:`get` returns."""
        return self._secret is not None

    @functools.cached_property
    def _usable(self) -> bool:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
        except OSError as error:
            CACHE.warning("the cache is not used: %s: %s", self.folder, error.strerror or error)
            return False
        if others_have_access(status, _WRITE_ACCESS):
            CACHE.warning(
                "the cache is not used: %s is another user's, or others may write to it (chmod go-w, or name another)",
                self.folder,
            )
            return False
        return stat.S_ISDIR(status.st_mode)

    def get(self, kind: str, entries: Mapping[str, Any]) -> Any | None:
        """Return the value stored for these entries, or None; an unusable entry is deleted."""
        self.finish()
        if not self._usable:
            return None
        path = self.path_of(kind, entries)
        try:
            raw, _ = read_regular(path, MAX_ENTRY)
            value = decode(raw, kind, entries, self._secret)
        except FileNotFoundError:
            CACHE.debug("no %s in %s", kind, self.folder)
            return None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            CACHE.warning("dropped an unusable entry, %s: %s", path, reason)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        CACHE.debug("used the %s in %s", kind, path)
        with contextlib.suppress(OSError):
            os.utime(path)  # it counts as used now
        return value

    def put_later(self, kind: str, entries: Mapping[str, Any], value: Callable[[], Any]) -> None:
        """Store the JSON value that ``value`` returns when there is time; who asks for an entry waits for it."""
        if self._usable:
            write_later(lambda: self.put(kind, entries, value()))

    def finish(self) -> None:
        """Wait until all that was stored is on the disk."""
        finish_writing()

    def put(self, kind: str, entries: Mapping[str, Any], value: Any) -> bool:
        """Store a JSON value; return False if that fails (no space, no permission, larger than a limit)."""
        if not self._usable:
            return False
        raw = encode(kind, entries, value, self._secret)
        if raw is None or len(raw) > self.limit:
            CACHE.info("did not store a %s: it is too large", kind)
            return False
        path = self.path_of(kind, entries)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(raw)
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
        self.finish()
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
        self.finish()
        sizes = [size for _, _, size in self._states()]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.limit)

    def path_of(self, kind: str, entries: Mapping[str, Any]) -> Path:
        key = key_of(kind, entries)
        return self.folder / key[:2] / f"{key}{_SUFFIX}"

    def _folders(self) -> list[Path]:
        try:
            paths = [path for path in self.folder.iterdir() if len(path.name) == 2]
            return [path for path in paths if path.is_dir() and not path.is_symlink()]
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
    return None if folder is None else DiskCache(folder, secret=load_secret(secret_path()))
