"""Requests become runs: joined along their rows, run in measured sizes, divided again."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..api.arguments import entries
from ..model.feeds import check_feeds, shape_key
from ..model.header import ModelHeader
from ..runtime.plan.errors import BundleError, ClosedError, DeviceError, InputError
from .batch_sizes import AnySize, BatchSizes, DeviceTimes, sizes_up_to
from .claimed_rows import ClaimedRows
from .handover import handover_seconds
from .joined import JoinedOutputs, rows_between
from .model_rows import ModelRows, Shapes
from .request_kind import RequestKind
from .requests import Arrays, Request
from .session_rows import SessionRows

if TYPE_CHECKING:
    from ..api.values import InputValue

Value = TypeVar("Value")

#: Kinds of requests whose times are remembered
_KINDS = 256
#: Combinations of dtypes and shapes whose check is remembered; requests of several rows have one for each number
_FORMS = 4096


class BatchStats:
    """Counts of a batched session: requests and rows that were answered, runs, and rows that padded them."""

    def __init__(self) -> None:
        self.requests = self.rows = self.runs = self.padding = 0
        self._lock = threading.Lock()

    def count(self, requests: int, rows: int, runs: Sequence[int]) -> None:
        """Count runs of so many rows each, which answered ``requests`` of ``rows`` rows together."""
        with self._lock:
            self.requests += requests
            self.rows += rows
            self.runs += len(runs)
            self.padding += sum(runs) - rows

    def __repr__(self) -> str:
        return f"<{self.requests:,} requests of {self.rows:,} rows in {self.runs:,} runs, {self.padding:,} rows padded>"


class RowRunner:
    """Runs requests of a session in batches of up to ``most`` rows.  Thread-safe.

    Raises :class:`UnsupportedError` if the rows of the model's inputs are not proven independent.
    """

    def __init__(self, session: SessionRows, most: int) -> None:
        self._session, self._most = session, most
        self._header = session.header
        self._names = tuple(port.name for port in self._header.outputs)
        self._rows = rows = session.rows(most)
        shapes = _declared_rows(self._header, rows.inputs)
        if shapes is not None:
            rows.prove(shapes)
        self._any_size = _serves_any_size(session, rows, most)
        self._kinds: dict[Hashable, RequestKind] = {}
        self._forms: dict[Hashable, _Form] = {}
        self.stats = BatchStats()
        self._times = DeviceTimes()
        self._lock = threading.Lock()

    def request(self, input_feed: Mapping[str, InputValue], output_names: Sequence[str] | None = None) -> Request:
        """Return a request whose inputs fit the model.

        Raises :class:`InputError`, and the refusals of the proof.
        """
        names = tuple(entries(output_names, "output_names is a list of names")) if output_names else self._names
        signature = _signature(input_feed, names)
        form = self._forms.get(signature) if signature else None
        feeds: Any = input_feed
        if form is None:
            feeds, form = self._check(input_feed, names)
            if signature and all(feeds[name] is array for name, array in input_feed.items()):
                with self._lock:
                    _store(self._forms, signature, form, _FORMS)
        key = (form.kind, *(_digest(feeds[name]) for name in form.shared)) if form.shared else form.kind
        return Request(form.kind, key, dict(feeds), form.rows)

    def requests(self, stacks: Arrays, items: int) -> list[Request]:
        """Return the requests of several items, whose inputs are ``[items, *shape]``: one where no rows have to move.

        Raises what :meth:`request` does for one of the items.
        """
        feeds = {name: stack[0, ...] for name, stack in stacks.items()}
        first = self.request(feeds)
        if any(first.kind.inputs.get(name) != 0 or array is not feeds.get(name) for name, array in first.feeds.items()):
            others = ({name: stack[index, ...] for name, stack in stacks.items()} for index in range(1, items))
            return [first, *map(self.request, others)]
        rows = items * first.rows
        joined = {name: stack.reshape(rows, *stack.shape[2:]) for name, stack in stacks.items()}
        return [Request(first.kind, first.key, joined, rows, items)]

    def outcomes(self, batch: Sequence[Request]) -> JoinedOutputs | list[list[np.ndarray] | Exception]:
        """Run requests of equal keys together; return the outputs, or the error, of each of their items."""
        try:
            return self._run(batch) if batch else []
        except (ClosedError, DeviceError) as error:
            return [error] * sum(request.items for request in batch)
        except Exception as error:
            items = [item for request in batch for item in request.apart()]
            return [error] if len(items) == 1 else [self._outcome(item) for item in items]

    def outputs_of(self, request: Request, note: bool = True) -> list[np.ndarray]:
        """Return the outputs of a request that runs alone; ``note``: its time counts."""
        return self._run_rows(request.kind, 1, request.feeds, request.rows, note)

    def measure(self, request: Request) -> dict[int, float]:
        """Run each size until it is measured; return the seconds of each."""
        kind = request.kind
        sizes = sizes_up_to(self._most) if self._any_size else kind.sizes.sizes
        for size in sizes:
            feeds = {
                name: np.repeat(array, size, kind.inputs[name]) if name in kind.inputs else array
                for name, array in request.feeds.items()
            }
            while size not in kind.sizes.seconds():
                self._run_size(kind, feeds, size, True)
        seconds = kind.sizes.seconds()
        return {size: seconds[size] for size in sizes}

    def _check(self, input_feed: Mapping[str, InputValue], names: tuple[str, ...]) -> tuple[Arrays, _Form]:
        """Return inputs that fit the model, and the form of their request."""
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
        shapes = {name: array.shape for name, array in feeds.items()}
        shape_key(self._header, shapes, {})  # whose errors say more than those of a proof
        ports = self._rows.prove(shapes)
        inputs = ((name, array.dtype.str, _row(array.shape, axes.get(name))) for name, array in sorted(feeds.items()))
        key = (names, *inputs)
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                kind = RequestKind(names, ports.inputs, ports.outputs, self._new_sizes(shapes), handover_seconds)
                _store(self._kinds, key, kind, _KINDS)
        return feeds, _Form(kind, rows, tuple(sorted(name for name in feeds if name not in axes)))

    def _new_sizes(self, shapes: Shapes) -> BatchSizes:
        if self._any_size:
            return AnySize(self._most, on_host=self._session.declared_sizes is None)
        return BatchSizes(self._rows.sizes(shapes))

    def _outcome(self, request: Request) -> list[np.ndarray] | Exception:
        try:
            return self.outputs_of(request)
        except Exception as error:
            return error

    def _run(self, batch: Sequence[Request]) -> JoinedOutputs | list[list[np.ndarray] | Exception]:
        first = batch[0]
        if len(batch) == first.items == 1:
            return [self.outputs_of(first)]
        kind, feeds = first.kind, first.feeds
        rows_of_items = [each.rows // each.items for each in batch for _ in range(each.items)]
        items, rows = len(rows_of_items), sum(rows_of_items)
        if len(batch) > 1:
            feeds = {
                name: np.concatenate([each.feeds[name] for each in batch], kind.inputs[name])
                if name in kind.inputs
                else array
                for name, array in feeds.items()
            }
        outputs = self._run_rows(kind, items, feeds, rows, True)
        kind.judge(items, rows)
        return JoinedOutputs(outputs, kind.axes, rows_of_items)

    def _run_rows(self, kind: RequestKind, requests: int, feeds: Arrays, rows: int, note: bool) -> list[np.ndarray]:
        """Run ``rows`` rows in the sizes that take least, the last one padded with copies of the last row."""
        most = kind.sizes.most
        if rows <= most:
            sizes = kind.sizes.cover(rows)
        else:
            parts = (min(most, rows - start) for start in range(0, rows, most))
            sizes = [size for part in parts for size in kind.sizes.cover(part)]
        if sizes == [rows]:
            outputs = self._run_size(kind, feeds, rows, note)
        else:
            outputs = self._run_sizes(kind, sizes, feeds, rows, note)
        self.stats.count(requests, rows, sizes)
        return outputs

    def _run_sizes(
        self, kind: RequestKind, sizes: Sequence[int], feeds: Arrays, rows: int, note: bool
    ) -> list[np.ndarray]:
        parts, start = [], 0
        for size in sizes:
            results = self._run_size(kind, _rows_of(feeds, kind.inputs, start, size), size, note)
            count = min(size, rows - start)
            parts.append([_first(array, axis, count) for array, axis in zip(results, kind.axes)])
            start += count
        return [np.concatenate(arrays, axis) for arrays, axis in zip(zip(*parts, strict=True), kind.axes)]

    def _run_size(self, kind: RequestKind, feeds: Arrays, size: int, note: bool) -> list[np.ndarray]:
        begun = time.perf_counter()
        results = self._session.run(kind.names, feeds, own_plan=not self._any_size)
        seconds = self._times.of(begun, time.perf_counter())
        if isinstance(self._rows, ClaimedRows):
            _check_rows(kind, results, size)
        if note:
            kind.sizes.note(size, seconds)
        return results


class _Form(NamedTuple):
    """What follows from dtypes and shapes of inputs: the kind of request, its rows, and the inputs that have none."""

    kind: RequestKind
    rows: int
    shared: tuple[str, ...]


def _serves_any_size(session: SessionRows, rows: ModelRows | ClaimedRows, most: int) -> bool:
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


def _check_rows(kind: RequestKind, results: Sequence[np.ndarray], rows: int) -> None:
    """Raise :class:`BundleError` for results that do not have the rows of which a bundle speaks."""
    for name, array, axis in zip(kind.names, results, kind.axes):
        if array.ndim <= axis or array.shape[axis] != rows:
            reason = f"the bundle says that axis {axis} of an output has {rows} rows; its shape is {list(array.shape)}"
            raise BundleError(reason, tensor=name)


def _signature(feeds: Mapping[str, InputValue], names: tuple[str, ...]) -> Hashable:
    """Return what the form of a request follows from; None for other values than arrays of numpy."""
    if not isinstance(feeds, dict):
        return None
    parts: list[Any] = [names]
    for name, value in feeds.items():
        if type(value) is not np.ndarray:
            return None
        parts += (name, value.shape, value.dtype)
    return tuple(parts)


def _row(shape: tuple[int, ...], axis: int | None) -> tuple[int | None, ...]:
    return shape if axis is None else (*shape[:axis], None, *shape[axis + 1 :])


def _digest(array: np.ndarray) -> bytes:
    """Return a digest of the elements of an input that rows share, which are equal in requests that are joined."""
    data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return hashlib.blake2b(data, digest_size=16).digest()


def _store(entries: dict[Hashable, Value], key: Hashable, value: Value, most: int) -> None:
    """Add an entry in place of the oldest one if there are ``most``."""
    if len(entries) >= most:
        del entries[next(iter(entries))]
    entries[key] = value


def _rows_of(feeds: Arrays, axes: Mapping[str, int], start: int, size: int) -> Arrays:
    """Return ``size`` rows from ``start`` on; those behind the end are copies of the last row."""
    result = dict(feeds)
    for name, axis in axes.items():
        if name in feeds:
            array = feeds[name]
            indices = np.minimum(np.arange(start, start + size), array.shape[axis] - 1)
            inside = start + size <= array.shape[axis]
            result[name] = rows_between(array, axis, start, start + size) if inside else array.take(indices, axis)
    return result


def _first(array: np.ndarray, axis: int, count: int) -> np.ndarray:
    return array if array.shape[axis] == count else rows_between(array, axis, 0, count)
