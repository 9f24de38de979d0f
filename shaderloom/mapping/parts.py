"""A result in parts: a folder with a manifest of what is computed, and a file for each part that is done.

The manifest is written once.  A part is written beside its place, flushed to the disk, and renamed, so a file of its
name has all of its rows: which parts are done is a question about names.  Whatever stops a run, the next one computes
the parts that are not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from ..runtime.plan.errors import InputError, unwritable
from ..runtime.plan.record import record

#: As of the files that are being written, its name begins with what readers of Parquet take for none of theirs
_MANIFEST = "_manifest.json"
_UNFINISHED = ".unfinished"


@record
class ResultPart:
    """Rows ``start`` to ``stop`` of a source."""

    number: int
    source: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


def divide(counts: Sequence[int], rows: int) -> list[ResultPart]:
    """Return the parts of sources with these numbers of rows, of up to ``rows`` rows each."""
    parts: list[ResultPart] = []
    for source, count in enumerate(counts):
        for start in range(0, count, rows):
            parts.append(ResultPart(len(parts), source, start, min(start + rows, count)))
    return parts


class ResultFolder:
    """The folder of a result.  ``suffix`` is that of its parts."""

    def __init__(self, path: Path, suffix: str) -> None:
        self.path, self._suffix = path, suffix

    @contextmanager
    def opened(self, job: dict[str, Any]) -> Iterator[None]:
        """Begin a job, or continue the one that the folder has; no other process has the folder meanwhile.

        Raises :class:`InputError` for a folder with parts of another job, or one that another process has.
        """
        with ExitStack() as stack:
            with self._writing():
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(self.path / ".lock", self.path))
                self._begin(job)
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(self.path, error, "name another folder") from error

    def _begin(self, job: dict[str, Any]) -> None:
        manifest = self.path / _MANIFEST
        content = json.dumps(job, indent=1, sort_keys=True).encode()
        if manifest.exists():
            for file in self.path.glob(f"*{_UNFINISHED}"):
                file.unlink()
            if manifest.read_bytes() == content:
                return
            if any(self.path.glob("part-*")):
                differing = _differing(manifest, job)
                raise InputError(
                    f"'{self.path}' has the result of another model, other inputs or options{differing}",
                    hint="name another folder, or delete this one",
                )
            # of a job that has failed before its first part
        elif any(file.name != ".lock" and not file.name.endswith(_UNFINISHED) for file in self.path.iterdir()):
            raise InputError(f"'{self.path}' is not empty", hint="name another folder")
        write_whole(manifest, lambda file: file.write(content))

    def file(self, part: ResultPart) -> Path:
        """Return where a part is once it is done."""
        return self.path / f"part-{part.number:06}{self._suffix}"

    def write(self, part: ResultPart, write: Callable[[IO[bytes]], Any]) -> None:
        """Write a part, all or nothing."""
        with self._writing():
            write_whole(self.file(part), write)


def _differing(manifest: Path, job: dict[str, Any]) -> str:
    """Return what of a job is not as in the manifest of another one, or nothing where that cannot be read."""
    try:
        other = json.loads(manifest.read_bytes())
    except ValueError:
        return ""
    own = json.loads(json.dumps(job))
    if not isinstance(other, dict):
        return ""
    names = sorted(name.replace("_", " ") for name in own if own[name] != other.get(name))
    return f": not the same are {', '.join(names)}" if names else ""


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file that is there with all of its bytes, on the disk, or not at all."""
    unfinished = path.with_name(f"_{path.name}{_UNFINISHED}")
    with open(unfinished, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _locked(path: Path, folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which ends with the process, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another process writes to '{folder}'", hint="wait for it, or name another folder"
            ) from None
        yield
