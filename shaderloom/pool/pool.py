"""A pool of devices: items go to whichever worker is free, results come back as futures or in order."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..api.arguments import count, instance, iterable
from ..runtime.plan.errors import InputError
from .devices import Devices, choose_devices
from .mapped import MappedItem
from .work import Work
from .worker import WorkerJob
from .workers import IN_FLIGHT, Workers

if TYPE_CHECKING:
    from ..api.values import InputValue, OutputValue

#: Rows of a batch where the caller leaves it to the pool
AUTO_BATCH = 32
#: The most items of a chunk, or a batch if that is more
_MOST_ITEMS = 256


class Pool:
    """Runs one model on several devices, each in a process of its own.  Thread-safe; close it, or use it in ``with``.

    ``model``
        the path of a model or of a bundle, bytes or a ``ModelProto``.
    ``devices``
        ``"all"``: every GPU, or else every software adapter; ``"cpu"``: onnxruntime on the host; or a list of adapters
        by index or part of a name.
    ``batch``
        rows of a batch: items of equal shapes are joined (docs/guide/batching.md).  ``"auto"`` joins up to 32 where the
        compiler proves that rows are independent, and runs other items one by one, those of more rows too; with a
        number the proof's error is raised, or that of an item, and no run has more rows; 1 joins none.
    ``open_batch``
        True for a model that was exported for one row: ``InferenceSession(..., batch="open")``.
    ``queue``
        items that :meth:`map` has taken and not returned yet; None: nine chunks for each device, eleven on 16 cores,
        each a batch, or as many items of up to 256 as it computes in two milliseconds.

    The other options are those of :class:`InferenceSession`, or of :func:`load_bundle`. A worker whose device is lost,
    or whose process ends, is retired, and its items go to others; an item that was lost twice fails.

    Processes are spawned, so that a program has its code below ``if __name__ == "__main__":``.
    """

    def __init__(
        self,
        model: Any,
        devices: Devices = "all",
        *,
        batch: int | str = "auto",
        open_batch: bool = False,
        queue: int | None = None,
        **options: Any,
    ) -> None:
        rows = AUTO_BATCH if batch == "auto" else count("batch", batch, "rows")
        taken = None if queue is None else count("queue", queue, "items")
        if "device" in options:
            raise InputError("a pool has several devices", hint="name them in devices=[...]")
        if instance("open_batch", open_batch, bool):
            options["batch"] = "open"
        if devices == "cpu":
            if "providers" in options:
                raise InputError("devices='cpu' says which provider there is", hint="leave out providers=[...]")
            options["providers"] = ["cpu"]
        content = os.fspath(model) if isinstance(model, (str, os.PathLike)) else _bytes_of(model)
        jobs = [WorkerJob(content, device, options, rows, batch != "auto") for device in choose_devices(devices)]
        self._work = Work()
        self._workers = Workers(jobs, self._work)
        least, self._chunks = rows if self._workers.joins else 1, (IN_FLIGHT + 2) * len(self._workers.names)
        self._work.set_chunk(least, max(least, _MOST_ITEMS if taken is None else taken // self._chunks))
        self._finalizer = weakref.finalize(self, self._workers.end)
        self._taken = taken

    @property
    def devices(self) -> list[str]:
        """The names of the devices of the workers that are left."""
        return self._workers.names

    @property
    def processes(self) -> list[int]:
        """The ids of the processes of the workers that are left, in the order of :attr:`devices`."""
        return self._workers.processes

    def submit(self, feeds: Mapping[str, InputValue]) -> Future[list[OutputValue]]:
        """Queue one item; return the future of its outputs, in the model's order.

        Raises :class:`ClosedError` for a closed pool.
        """
        future: Future[list[OutputValue]] = Future()
        self._work.add(feeds, future)
        return future

    async def run(self, feeds: Mapping[str, InputValue]) -> list[OutputValue]:
        """Return the outputs of one item, without blocking the event loop."""
        import asyncio

        return await asyncio.wrap_future(self.submit(feeds))

    def map(
        self, items: Iterable[Mapping[str, InputValue]], *, ordered: bool = True, on_error: str = "raise"
    ) -> Iterator[Any]:
        """Yield the outputs of each item, in order; while they are computed further items are taken, up to ``queue``.

        With ``ordered=False`` yield pairs of an item's number and its outputs, as they complete.  With
        ``on_error="return"`` the outputs of an item that failed are its error; otherwise that is raised, and items that
        have not begun are dropped.
        """
        if on_error not in ("raise", "return"):
            raise InputError(f"on_error is 'raise' or 'return', not {on_error!r}")
        iterable(items, "items is an iterable of inputs by name", "pass a list of dicts, or a generator of them")
        mapped = self._in_order if instance("ordered", ordered, bool) else self._as_completed
        return mapped(items, on_error)

    def close(self) -> None:
        """Wait for the items that were submitted, then end the processes.  Closing twice has no effect.

        Raises ``RunError`` in a callback of a future, which those behind it wait for.
        """
        self._workers.check_thread()
        self._work.close()
        self._workers.join()
        self._finalizer.detach()

    def terminate(self) -> None:
        """End the processes now; the futures of their items get :class:`ClosedError`."""
        self._work.close()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.terminate()

    def __repr__(self) -> str:
        return f"<Pool of {', '.join(self.devices) or 'no devices'}>"

    @property
    def _window(self) -> int:
        """How many items a map has taken and not returned."""
        return self._taken or self._chunks * self._work.chunk

    def _in_order(self, items: Iterable[Mapping[str, InputValue]], on_error: str) -> Iterator[Any]:
        window: deque[MappedItem] = deque()
        try:
            for number, feeds in enumerate(items):
                mapped = MappedItem(number)
                self._work.add(feeds, mapped)
                window.append(mapped)
                while window and (window[0].is_settled or len(window) >= self._window):
                    yield _outputs(window.popleft(), on_error)
            while window:
                yield _outputs(window.popleft(), on_error)
        finally:
            for mapped in window:
                mapped.cancel()

    def _as_completed(self, items: Iterable[Mapping[str, InputValue]], on_error: str) -> Iterator[Any]:
        settled: SimpleQueue[MappedItem] = SimpleQueue()
        window: dict[int, MappedItem] = {}

        def next_pair() -> tuple[int, Any]:
            number = settled.get().number
            return number, _outputs(window.pop(number), on_error)

        try:
            for number, feeds in enumerate(items):
                window[number] = mapped = MappedItem(number, settled)
                self._work.add(feeds, mapped)
                while len(window) >= self._window:
                    yield next_pair()
            while window:
                yield next_pair()
        finally:
            for mapped in window.values():
                mapped.cancel()


def _outputs(mapped: MappedItem, on_error: str) -> Any:
    if not mapped.is_settled:
        mapped.wait()
    if on_error == "raise" and isinstance(mapped.outcome, BaseException):
        raise mapped.outcome
    return mapped.outcome


def _bytes_of(model: Any) -> bytes:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if not hasattr(model, "SerializeToString"):
        raise InputError(f"a model is a path, bytes or a ModelProto, not {type(model).__name__}")
    return bytes(model.SerializeToString())
