"""A session that answers many: joined where its model allows it, else in turn."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ...batching.batched_session import BatchedSession
from ...bundles.session import open_session
from ...runtime.bundle.files import is_bundle
from ...runtime.plan.errors import DeviceLost, LimitError, UnsupportedError
from ...session.session import InferenceSession
from ..recovery import Recovery

Outputs = list[np.ndarray]


class _InTurn:
    """Runs requests one after another; as many as ``queue`` may wait."""

    def __init__(self, session: InferenceSession, queue: int) -> None:
        self._session, self._queue = session, queue
        self._pool = ThreadPoolExecutor(1, "shaderloom-serve")
        self._lock = threading.Lock()
        self._count = 0

    @property
    def waiting(self) -> int:
        """The number of requests that are not done but for the one that runs."""
        return max(self._count - 1, 0)

    def submit(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> Future[Outputs]:
        """Queue a request.  Raises :class:`LimitError` where too many wait."""
        with self._lock:
            if self._count > self._queue:
                raise LimitError(f"{self._count} requests wait already", hint="ask again later")
            self._count += 1
        future: Future[Outputs] = self._pool.submit(self._run, feeds, names)
        future.add_done_callback(self._end)
        return future

    def _run(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> Outputs:
        outputs: list[Any] = self._session.run(names, feeds)
        return outputs

    def _end(self, _: Future[Outputs]) -> None:
        with self._lock:
            self._count -= 1

    def close(self) -> None:
        """Run what has begun, and drop what waits."""
        self._pool.shutdown(cancel_futures=True)


class ServedSession:
    """A model, or a bundle, on a device.  ``is_joined`` says whether requests may run together."""

    def __init__(self, path: Path, *, device: Any, cache: bool, rows: int, queue: int) -> None:
        """Open it; up to ``rows`` rows of requests run together, and up to ``queue`` requests wait."""
        self.session = open_session(path, device=device, **({} if is_bundle(path) else {"cache": cache}))
        self._recovery = Recovery(self._is_lost, self.session.recover)
        self._in_turn = _InTurn(self.session, queue)
        self._joined: BatchedSession | None = None
        with contextlib.suppress(UnsupportedError):
            self._joined = self.session.batched(rows, max_queue=max(queue, 1))

    @property
    def is_joined(self) -> bool:
        return self._joined is not None

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: not when the device is lost, until there is another one."""
        return self._recovery.check()

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self._in_turn.waiting + (0 if self._joined is None else self._joined.waiting)

    def submit(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> Future[Outputs]:
        """Queue a request.  Raises :class:`LimitError` where too many wait; other errors are those of the future."""
        future = self._submit(feeds, names)
        future.add_done_callback(self._watch)
        return future

    def _is_lost(self) -> bool:
        return "wgpu" in self.session.get_providers() and self.session.device.check_lost()

    def _watch(self, run: Future[Outputs]) -> None:
        if not run.cancelled() and isinstance(run.exception(), DeviceLost):
            self._recovery.check()

    def _submit(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> Future[Outputs]:
        if self._joined is not None:
            future = self._joined.submit(feeds, names)
            if not (future.done() and isinstance(future.exception(), UnsupportedError)):
                return future
            # the rows of these shapes are not independent
        return self._in_turn.submit(feeds, names)

    def close(self) -> None:
        """End what runs, and free the model."""
        if self._joined is not None:
            self._joined.close()
        self._in_turn.close()
        self._recovery.wait()
        self.session.close()
