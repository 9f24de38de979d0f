"""A model over files: rows go to a pool, results to parts of a folder, in order."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..bundles.plans import model_header
from ..model.compiled import Progress
from ..model.header import ModelHeader
from ..model.model import Model
from ..runtime.bundle.files import is_bundle
from ..runtime.bundle.format import MANIFEST
from ..runtime.bundle.reader import Bundle
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.errors import InputError
from ..runtime.plan.record import record
from .columns import row_inputs
from .opening import open_source
from .parts import ResultFolder, ResultPart, divide
from .pictures import PictureForm
from .results import Result, write_npz, write_parquet
from .sources import Feeds, Row, RowSource

#: Seconds between two reports of progress
_REPORT_SECONDS = 0.1


@record(slots=False)
class MapJob:
    """What is computed.

    ``columns`` names the column of an input, ``carried`` columns that the result has besides.  ``format`` is "parquet"
    or "npz", ``part_rows`` the most rows of a part.  With ``record_errors`` a row that fails is an entry of the column
    ``error``; otherwise it ends the job.
    """

    model: Path
    inputs: tuple[Path, ...]
    output: Path
    columns: dict[str, str]
    carried: tuple[str, ...] = ()
    form: PictureForm | None = None
    format: str = "parquet"
    part_rows: int = 1024
    record_errors: bool = False

    def with_rows(self, part_rows: int, *, record_errors: bool) -> MapJob:
        """Return the job with other parts, and what becomes of errors."""
        return replace(self, part_rows=part_rows, record_errors=record_errors)

    def identity(self, sources: Sequence[RowSource]) -> dict[str, Any]:
        """Return what parts of an earlier run must have been computed from, as JSON values."""
        state = (self.model / MANIFEST if self.model.is_dir() else self.model).stat()
        form = self.form
        return {
            "model": [str(self.model), state.st_size, state.st_mtime_ns],
            "inputs": [source.identity for source in sources],
            "columns": self.columns,
            "carried": list(self.carried),
            "image": None if form is None else [form.width, form.height, list(form.mean), list(form.deviation)],
            "format": self.format,
            "part_rows": self.part_rows,
            "record_errors": self.record_errors,
        }


class ItemMapper(Protocol):
    """A pool: of this machine's devices, or of a cluster's."""

    def map(self, items: Iterable[Feeds], *, on_error: str) -> Iterator[Any]:
        """Yield outputs, or errors, in order."""
        ...


@record
class MapSummary:
    """Rows of the result, those that this run has computed, those with errors among these, and seconds of the run."""

    rows: int
    computed: int
    errors: int
    seconds: float


def run_map(
    job: MapJob,
    open_pool: Callable[[], AbstractContextManager[ItemMapper]],
    options: dict[str, Any],
    progress: Progress,
) -> MapSummary:
    """Compute the parts that the folder of the result lacks; return what was done.

    ``options`` are those of the pool that change results, for the manifest.  Raises :class:`InputError` for inputs that
    do not fit the model, for a folder with another result, and for the first row that fails.
    """
    if job.record_errors and job.format != "parquet":
        raise InputError("errors are recorded in Parquet", hint="--format parquet")
    header = _header(job.model)
    inputs, names = row_inputs(header), [port.name for port in header.outputs]
    own = {"file", "row", "error"}
    for column in own.intersection(job.carried):
        raise InputError(f"the result has a column '{column}' of its own", hint="rename that of the table")
    taken = {*own, *job.carried}.intersection(names)
    if taken:
        raise InputError(f"the model has an output '{min(taken)}', and so has the result", hint="rename that output")
    sources = [open_source(path, inputs, job.columns, job.carried, job.form) for path in job.inputs]
    parts = divide([len(source) for source in sources], job.part_rows)
    folder = ResultFolder(job.output, f".{job.format}")
    start = time.monotonic()
    with folder.opened({**job.identity(sources), "options": options}):
        pending = [part for part in parts if not folder.file(part).exists()]
        errors = 0
        if pending:
            with open_pool() as pool:
                errors = _compute(job, pool, sources, pending, folder, header.outputs, progress)
    computed = sum(part.rows for part in pending)
    return MapSummary(sum(part.rows for part in parts), computed, errors, time.monotonic() - start)


def _header(path: Path) -> ModelHeader:
    """Return what a model, or a bundle, declares."""
    if is_bundle(path):
        with Bundle(path) as bundle:
            return model_header(bundle.manifest)
    with closing(Model(path, keep_refused=True)) as model:  # the pool's providers tell what they do not run
        return model.header


def _compute(
    job: MapJob,
    pool: ItemMapper,
    sources: Sequence[RowSource],
    pending: Sequence[ResultPart],
    folder: ResultFolder,
    ports: Sequence[DeclaredPort],
    progress: Progress,
) -> int:
    """Write the pending parts; return the number of rows with errors."""
    total, errors = sum(part.rows for part in pending), 0
    report = _Report(progress, total)
    results = _results(pool, _rows_of(sources, pending))
    with closing(results):
        for part in pending:
            rows: list[Result] = []
            for carried, outcome in itertools.islice(results, part.rows):
                if isinstance(outcome, Exception):
                    if not job.record_errors:
                        raise outcome
                    errors += 1
                rows.append((carried, outcome))
                report.count()
            write = partial(write_parquet, has_errors=job.record_errors) if job.format == "parquet" else write_npz
            folder.write(part, partial(write, ports=ports, results=rows))
    return errors


def _rows_of(sources: Sequence[RowSource], parts: Sequence[ResultPart]) -> Iterator[Row]:
    """Yield the rows of parts; parts that follow each other in a source are read at once."""
    begin = 0
    for end, part in enumerate(parts, 1):
        following = parts[end] if end < len(parts) else None
        if following is None or (following.source, following.start) != (part.source, part.stop):
            yield from sources[part.source].rows(parts[begin].start, part.stop)
            begin = end


def _results(pool: ItemMapper, rows: Iterator[Row]) -> Generator[Result, None, None]:
    """Yield what each row carries with its outputs or error; rows that cannot be read are not computed."""
    waiting: deque[tuple[dict[str, Any], InputError | None]] = deque()

    def readable() -> Iterator[Feeds]:
        for carried, feeds in rows:
            if isinstance(feeds, InputError):
                waiting.append((carried, feeds))
            else:
                waiting.append((carried, None))
                yield feeds

    for outcome in pool.map(readable(), on_error="return"):
        yield from _unreadable(waiting)
        yield waiting.popleft()[0], outcome
    yield from _unreadable(waiting)


def _unreadable(waiting: deque[tuple[dict[str, Any], InputError | None]]) -> Iterator[Result]:
    """Remove and yield the rows at the front that could not be read."""
    while waiting and (error := waiting[0][1]) is not None:
        yield waiting.popleft()[0], error


class _Report:
    """Tells how many rows are done, how many that is in a second, and how long the others will take."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._done = 0
        self._start: float | None = None  #: of the second row: the first one compiles the model
        self._next = 0.0  #: when there is something to tell again

    def count(self) -> None:
        now = time.monotonic()
        self._done += 1
        if self._start is None:
            self._start = now
        if now < self._next and self._done < self._total:
            return
        self._next = now + _REPORT_SECONDS
        seconds = now - self._start
        rate = (self._done - 1) / seconds if seconds > 0 else 0.0
        left = f", {_duration((self._total - self._done) / rate)} left" if rate else ""
        self._progress(f"{self._done:,} of {self._total:,} rows, {rate:,.0f}/s{left}", self._done, self._total)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
