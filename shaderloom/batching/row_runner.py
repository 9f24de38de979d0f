"""Requests become runs: joined along their rows, run in measured sizes, divided again."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.feeds import check_feeds
from ..model.header import ModelHeader
from ..runtime.plan.errors import ClosedError, DeviceError, InputError
from .batch_sizes import AnySize, BatchSizes, sizes_up_to
from .model_rows import ModelRows
from .requests import Arrays, Request
from .session_rows import SessionRows

if TYPE_CHECKING:
    from ..api.values import InputValue


class BatchStats:
    """Counts of a batched session: requests and rows that were answered, runs, and rows that padded them."""

    def __init__(self) -> None:
        self.requests = self.rows = self.runs = self.padding = 0

    def __repr__(self) -> str:
        return f"<{self.requests:,} requests of {self.rows:,} rows in {self.runs:,} runs, {self.padding:,} rows padded>"


class RowRunner:
    """Runs requests of a session in batches of up to ``most`` rows.  Thread-safe.

    Raises :class:`UnsupportedError` if the rows of the model's inputs are not proven independent.
    """

    def __init__(self, session: SessionRows, most: int) -> None:
        self._session, self._most = session, most
        self._header = session.header
        self._names = [port.name for port in self._header.outputs]
        self._rows = rows = ModelRows(self._header, most, session.import_model)
        shapes = _declared_rows(self._header, rows.inputs)
        if shapes is not None:
            rows.prove(shapes)
        self._any_size = _serves_any_size(session, rows, most)
        self._sizes: dict[Any, BatchSizes] = {}
        self.stats = BatchStats()
        self._lock = threading.Lock()

    def request(self, input_feed: Mapping[str, InputValue], output_names: Sequence[str] | None = None) -> Request:
        """Return a request whose inputs fit the model.

        Raises :class:`InputError`, and the refusals of the proof.
        """
        names = tuple(output_names or self._names)
        for name in names:
            if name not in self._names:
                raise InputError(f"the model has no output '{name}'", hint=f"its outputs are {', '.join(self._names)}")
        feeds: Arrays = {}
        for name, value in check_feeds(self._header, input_feed, host=True).items():
            if not isinstance(value, np.ndarray):
                raise InputError("requests that are joined have arrays on the host", tensor=name, hint="pass an array")
            feeds[name] = value
        axes = self._rows.inputs
        counts = {name: _size(name, array, axes[name]) for name, array in feeds.items() if name in axes}
        rows = next(iter(counts.values()), 0)
        for name, count in counts.items():
            if count != rows:
                raise InputError(f"has {count} rows, '{next(iter(counts))}' has {rows}", tensor=name)
        if rows < 1:
            raise InputError("a request has no rows", hint="pass at least one row")
        self._rows.prove({name: array.shape for name, array in feeds.items()})
        key = (names, *(_kind(name, array, axes.get(name)) for name, array in sorted(feeds.items())))
        return Request(key, feeds, rows)

    def answer(self, batch: Sequence[Request]) -> None:
        """Run requests of equal keys together, and set their futures."""
        batch = [each for each in batch if each.future.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            results = self._run(batch)
        except (ClosedError, DeviceError) as error:
            for request in batch:
                request.future.set_exception(error)
        except Exception as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            for request in batch:
                self._answer_alone(request)
        else:
            for request, outputs in zip(batch, results, strict=True):
                request.future.set_result(outputs)

    def outputs_of(self, feeds: Mapping[str, InputValue]) -> list[np.ndarray]:
        """Return the outputs of any number of rows, run in batches; raise what fails."""
        request = self.request(feeds)
        self.answer([request])
        return request.future.result()

    def measure(self, request: Request) -> dict[int, float]:
        """Run each size until it is measured; return the seconds of each."""
        names, inputs, outputs = self._ports(request)
        sizes = self._sizes_of(request.key)
        for size in sizes_up_to(self._most):
            feeds = {
                name: np.repeat(array, size, inputs[name]) if name in inputs else array
                for name, array in request.feeds.items()
            }
            while size not in sizes.seconds() and not isinstance(sizes, AnySize):
                self._run_rows(sizes, [size], names, feeds, size, inputs, outputs)
        return sizes.seconds()

    def _answer_alone(self, request: Request) -> None:
        try:
            (outputs,) = self._run([request])
        except Exception as error:
            request.future.set_exception(error)
        else:
            request.future.set_result(outputs)

    def _run(self, batch: Sequence[Request]) -> list[list[np.ndarray]]:
        names, inputs, axes = self._ports(batch[0])
        rows = sum(each.rows for each in batch)
        feeds = batch[0].feeds
        if len(batch) > 1:
            feeds = {
                name: np.concatenate([each.feeds[name] for each in batch], inputs[name]) if name in inputs else array
                for name, array in feeds.items()
            }
        sizes = self._sizes_of(batch[0].key)
        chosen = [size for start in range(0, rows, self._most) for size in sizes.cover(min(rows - start, self._most))]
        outputs = self._run_rows(sizes, chosen, names, feeds, rows, inputs, axes)
        with self._lock:
            self.stats.requests += len(batch)
            self.stats.rows += rows
            self.stats.runs += len(chosen)
            self.stats.padding += sum(chosen) - rows
        if len(batch) == 1:
            return [outputs]
        ends = np.cumsum([each.rows for each in batch])[:-1]
        parts = [np.split(array, ends, axes[name]) for name, array in zip(names, outputs)]
        return [[part.copy() for part in request] for request in zip(*parts, strict=True)]

    def _run_rows(
        self,
        sizes: BatchSizes,
        chosen: Sequence[int],
        names: Sequence[str],
        feeds: Arrays,
        rows: int,
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
    ) -> list[np.ndarray]:
        """Run ``rows`` rows in runs of ``chosen`` sizes, the last one padded with copies of the last row."""
        parts, start = [], 0
        for size in chosen:
            begun = time.perf_counter()
            part = feeds if (start, size) == (0, rows) else _rows_of(feeds, inputs, start, size)
            results = self._session.run(names, part, own_plan=not self._any_size)
            count = min(size, rows - start)
            parts.append([_first(array, outputs[name], count) for name, array in zip(names, results)])
            sizes.note(size, time.perf_counter() - begun)
            start += count
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(arrays, outputs[name]) for name, arrays in zip(names, zip(*parts, strict=True))]

    def _ports(self, request: Request) -> tuple[Sequence[str], Mapping[str, int], Mapping[str, int]]:
        """Return the names of a request's outputs, and the axes of rows of inputs and outputs."""
        ports = self._rows.prove({name: array.shape for name, array in request.feeds.items()})
        assert isinstance(request.key, tuple)
        return request.key[0], ports.inputs, ports.outputs

    def _sizes_of(self, key: Any) -> BatchSizes:
        """Return the sizes of requests like this one; those of the shapes that were used least recently are dropped."""
        with self._lock:
            sizes = self._sizes.pop(key, None)
            if sizes is None:
                sizes = AnySize() if self._any_size else BatchSizes(sizes_up_to(self._most))
                if len(self._sizes) >= 256:
                    del self._sizes[next(iter(self._sizes))]
            self._sizes[key] = sizes
            return sizes


def _serves_any_size(session: SessionRows, rows: ModelRows, most: int) -> bool:
    """Return whether a declared dimension, or the cpu, has one plan for every number of rows."""
    named = {port.name: port.dims for port in session.header.inputs}
    dims = {(named[name] or ())[axis] for name, axis in rows.inputs.items()}
    declared = session.declared_sizes
    if declared is None:
        return True
    ranges = [declared.get(dim) if isinstance(dim, str) else None for dim in dims]
    return all(sizes is not None and sizes.low == sizes.step == 1 and sizes.high >= most for sizes in ranges)


def _declared_rows(header: ModelHeader, axes: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of inputs with one row; None if the model does not declare all other sizes."""
    shapes = {}
    for port in header.inputs:
        dims = [1 if axis == axes.get(port.name) else dim for axis, dim in enumerate(port.dims or (None,))]
        sizes = [dim for dim in dims if isinstance(dim, int)]
        if len(sizes) < len(dims):
            return None
        shapes[port.name] = tuple(sizes)
    return shapes


def _size(name: str, array: np.ndarray, axis: int) -> int:
    if axis >= array.ndim:
        raise InputError(f"has no axis {axis} of rows: its shape is {list(array.shape)}", tensor=name)
    return int(array.shape[axis])


def _kind(name: str, array: np.ndarray, axis: int | None) -> tuple[Any, ...]:
    """Return what of an input must be equal in requests that are joined: shapes of rows, or elements."""
    if axis is None:
        texts = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        return name, array.dtype.str, array.shape, hashlib.blake2b(texts, digest_size=16).digest()
    return name, array.dtype.str, (*array.shape[:axis], *array.shape[axis + 1 :])


def _rows_of(feeds: Arrays, axes: Mapping[str, int], start: int, size: int) -> Arrays:
    """Return ``size`` rows from ``start`` on; those behind the end are copies of the last row."""
    result = dict(feeds)
    for name, axis in axes.items():
        if name in feeds:
            array = feeds[name]
            indices = np.minimum(np.arange(start, start + size), array.shape[axis] - 1)
            inside = start + size <= array.shape[axis]
            result[name] = _slice(array, axis, start, start + size) if inside else array.take(indices, axis)
    return result


def _first(array: np.ndarray, axis: int, count: int) -> np.ndarray:
    return array if array.shape[axis] == count else _slice(array, axis, 0, count)


def _slice(array: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(start, stop),)]
