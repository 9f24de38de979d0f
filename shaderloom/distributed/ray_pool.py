"""A pool whose workers are actors of Ray, on any of its nodes."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray

from ..pool.answers import apart
from ..pool.chunk import Chunk, Item
from ..pool.pool import AUTO_BATCH
from ..pool.worker import WorkerJob, open_answers, portable
from ..runtime.bundle.files import is_bundle
from ..runtime.device.adapters import list_adapters
from ..runtime.plan.errors import DeviceError
from .assigned_device import assigned_adapter
from .predictor import assigned_gpus

#: Chunks that an actor has: the one that it answers, and the next
_IN_FLIGHT = 2


class RayPool:
    """Maps a model over items on a cluster, as :meth:`Pool.map` does on one machine.

    ``address`` is that of the cluster, ``"auto"`` the one of this machine. The model is sent through Ray's object
    store; a bundle is read where it lies, by a path that every node has. An actor whose node dies is started on another
    node, and its chunks are computed again.
    """

    def __init__(
        self,
        model: Path,
        address: str,
        *,
        batch: int | None = None,
        workers: int | None = None,
        gpus: float = 1.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not ray.is_initialized():
            try:
                ray.init(address=address, log_to_driver=False)
            except (ConnectionError, ValueError) as error:
                raise DeviceError(f"no cluster of Ray answers at '{address}': {error}") from None
        count = workers or int(ray.cluster_resources().get("GPU", 0) / gpus if gpus else 0)
        if count < 1:
            raise DeviceError(f"the cluster at '{address}' has no GPU", hint="start its nodes with GPUs (num_gpus)")
        self._chunk = batch or AUTO_BATCH
        content = str(model) if is_bundle(model) else model.read_bytes()
        self._model = ray.put(content)  # for as long as actors may be started again
        actor = ray.remote(num_cpus=0, num_gpus=gpus, max_restarts=-1, max_task_retries=-1)(_Actor)
        settings = dict(options or {}), self._chunk, batch is not None
        self._actors = [actor.remote(self._model, *settings) for _ in range(count)]
        opened, _ = ray.wait([each.failure.remote() for each in self._actors])
        if failure := _result(opened[0]):
            self.close()
            raise failure

    def map(self, items: Iterable[Mapping[str, Any]], *, on_error: str = "raise") -> Iterator[Any]:
        """Yield the outputs of each item in order, or with ``on_error="return"`` its error."""
        window: deque[Any] = deque()
        actors = itertools.cycle(self._actors)
        for chunk in _chunks(items, self._chunk):
            window.append(next(actors).answer.remote(chunk))
            if len(window) > _IN_FLIGHT * len(self._actors):
                yield from _outcomes(_result(window.popleft()), on_error)
        while window:
            yield from _outcomes(_result(window.popleft()), on_error)

    def close(self) -> None:
        """End the actors; the cluster stays."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Actor:
    """A worker: a session on the GPU that Ray assigned, and answers to chunks of items."""

    def __init__(self, model: bytes | str, options: Mapping[str, Any], batch: int, is_asked: bool) -> None:
        self._failure: BaseException | None = None
        try:
            device = assigned_adapter(assigned_gpus(), list_adapters())
            _, self._answer = open_answers(WorkerJob(model, device, options, batch, is_asked))
        except Exception as error:
            self._failure = portable(error)

    def failure(self) -> BaseException | None:
        """Return why the session could not be opened; None if it is open."""
        return self._failure

    def answer(self, chunk: Sequence[Item]) -> list[tuple[int, Any]]:
        """Return the outputs or the error of each item, in order."""
        if self._failure is not None:
            raise self._failure
        return apart(self._answer(Chunk([], chunk)))


def _chunks(items: Iterable[Mapping[str, Any]], size: int) -> Iterator[list[Item]]:
    numbered = enumerate(items)
    while chunk := list(itertools.islice(numbered, size)):
        yield chunk


def _result(reference: Any) -> Any:
    """Return what an actor has answered.  Raises its error, and :class:`DeviceError` for one of Ray's own."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise DeviceError(f"the cluster of Ray gives no answer: {error}") from error


def _outcomes(answers: Sequence[tuple[int, Any]], on_error: str) -> Iterator[Any]:
    for _, outcome in answers:
        if isinstance(outcome, BaseException) and on_error == "raise":
            raise outcome
        yield outcome
