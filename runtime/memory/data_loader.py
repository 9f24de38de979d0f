"""Data that comes from a function of the caller instead of a file.

A :data:`DataLoader` gives bytes of a data file of a model: a buffer, an iterable of buffers, or either of these later
(an awaitable, or an asynchronous iterator).  Chunks may have any size; together they have the length that was asked
for.
"""

from __future__ import annotations

import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from ..plan.errors import ModelError, ShaderloomError

#: (path as the model writes it, offset, length) -> bytes
DataLoader = Callable[[str, int, int], Any]

#: chunks that an asynchronous loader may be ahead of the upload
_AHEAD = 2


def chunks_of(data: Any) -> Iterator[memoryview]:
    """Yield the chunks of a loader's result as they arrive."""
    if inspect.isawaitable(data) or isinstance(data, AsyncIterator) or hasattr(data, "__aiter__"):
        yield from _from_thread(data)
        return
    try:
        view = memoryview(data)
    except TypeError:
        if not isinstance(data, Iterable) or isinstance(data, str):
            raise ModelError(
                f"the loader of external data gave {type(data).__name__}, not a buffer or chunks"
            ) from None
        for chunk in data:
            yield memoryview(chunk).cast("B")
        return
    yield view.cast("B")


def load_whole(loader: DataLoader, path: str, offset: int, length: int, tensor: str) -> bytes:
    """Return all bytes of a small range.

    Raises :class:`ModelError` if there are more or fewer, or if the loader fails.
    """
    data = bytearray()
    try:
        for chunk in chunks_of(loader(path, offset, length)):
            data += chunk
            if len(data) > length:
                break
    except ShaderloomError:
        raise
    except Exception as error:  # of the caller's function
        reason = f"external_data_loader raised {type(error).__name__}: {error}"
        raise ModelError(reason, tensor=tensor, hint="it must give the bytes that are asked for") from error
    check_length(len(data), length, tensor)
    return bytes(data)


def check_length(got: int, wanted: int, tensor: str) -> None:
    if got != wanted:
        raise ModelError(f"an initializer has {got} bytes instead of {wanted}", tensor=tensor)


def _from_thread(data: Any) -> Iterator[memoryview]:
    """Run an asynchronous loader in a thread with a loop of its own: the caller's may be the one that waits here."""
    import asyncio  # few models have such a loader

    ready: queue.Queue[Any] = queue.Queue(_AHEAD)
    stopped = threading.Event()

    def put(item: Any) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    async def produce() -> None:
        content = await data if inspect.isawaitable(data) else data
        if hasattr(content, "__aiter__"):
            async for chunk in content:
                if not put(chunk):
                    return
        else:
            put(content)

    def work() -> None:
        try:
            asyncio.run(produce())
        except BaseException as error:
            put(error)
        else:
            put(None)

    thread = threading.Thread(target=work, name="shaderloom-load", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield from chunks_of(item)
    finally:
        stopped.set()
        thread.join()
