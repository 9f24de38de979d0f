"""The worker processes of a pool, and the threads of each: some send chunks, one receives answers."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import pickle
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..batching.batch_sizes import DeviceTimes
from ..notices import ShaderloomWarning, notify
from ..runtime.device.pipeline_compiler import cores
from ..runtime.plan.errors import ClosedError, DeviceError, DeviceLost, InputError, RunError
from .answers import unpacked_answers
from .channel import Channel, Received
from .chunk import bytes_of, packed
from .shared_memory import shared_memories
from .work import CHUNK_BYTES, Item, Work
from .worker import WorkerJob, run_worker


def senders_for(cores: int) -> int:
    """Return the number of threads that send to a worker, in a program with so many cores.

    One copies 6 to 10 GB a second into shared memory; a small model on a GPU takes more.
    """
    return min(max(cores // 4, 2), 4)


SENDERS = senders_for(cores())
#: Chunks that a worker has: four that it answers, one that waits and those on their way; each has its shared memory
IN_FLIGHT = 5 + SENDERS
#: Seconds that a process may take to end by itself
_PATIENCE = 5.0


class DeviceWorker:
    """One process.  ``name`` is that of its device, ``joins`` whether it joins items."""

    def __init__(self, job: WorkerJob) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        memories = shared_memories(IN_FLIGHT)
        self.channel = Channel(ours, memories, copies=True)
        arguments = theirs, memories, job
        self.process = context.Process(target=run_worker, args=arguments, name="shaderloom-worker", daemon=True)
        try:
            self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _unsendable("options", error) from None
        # or a fork of the program would end it, as those that are left when multiprocessing's own do
        getattr(multiprocessing.process, "_children", set()).discard(self.process)
        theirs.close()
        self.name = ""
        self.joins = False
        self.is_wanted = threading.Event()
        self.is_wanted.set()
        self._items: dict[int, Item] = {}
        self._times = DeviceTimes()
        self._lock = threading.Lock()
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()  #: memories that no chunk uses
        for slot in range(IN_FLIGHT):
            self._free.put(slot)

    def open(self) -> Exception | None:
        """Wait until the session is open; return the error otherwise."""
        try:
            kind, *facts = self._receive(notify).message
        except (EOFError, OSError):
            self.process.join(_PATIENCE)
            return DeviceError(
                f"a worker process ended with status {self.process.exitcode} before it was ready",
                hint="a program that uses a pool is a file, with its code below: if __name__ == '__main__'",
            )
        if kind == "failed":
            error: Exception = facts[0]
            return error
        self.name, self.joins = facts
        return None

    def send_chunks(self, work: Work) -> None:
        """Send chunks of items, as long as the worker has room and there are some."""
        while (slot := self._memory()) is not None:
            items = work.take(self.is_wanted, self._is_busy, self._hold)
            if not items or not self._send(items, slot, work):
                return

    def _is_busy(self) -> bool:
        return bool(self._items)

    def _hold(self, items: Sequence[Item]) -> None:
        items[0].begun = time.perf_counter()
        with self._lock:
            self._items.update((item.number, item) for item in items)

    def _send(self, items: Sequence[Item], slot: int, work: Work) -> bool:
        """Send items with a memory; return False once the worker takes no more.

        Those that are too large for a chunk are sent by halves.  Where they cannot be pickled each is sent alone, so
        that the error is that of one.
        """
        try:
            message, stacks = packed((item.number, item.feeds) for item in items)
            if len(items) > work.least and bytes_of(message, stacks) > CHUNK_BYTES:
                half = max(len(items) // 2 // work.least, 1) * work.least
                return self._send(items[:half], slot, work) and self._send_next(items[half:], work)
            self.channel.send(message, slot, stacks=stacks)
        except OSError:
            work.give_back(self._release(items), "the process ended")
            return False
        except Exception as error:
            self._free.put(slot)
            if len(items) > 1:
                return all(self._send_next([item], work) for item in items)
            failure = _unsendable("inputs", error)
            work.answer((item, failure) for item in self._release(items))
        return True

    def _send_next(self, items: Sequence[Item], work: Work) -> bool:
        """Send items with the next free memory; those of a worker that takes no more are still its own."""
        slot = self._memory()
        return slot is not None and self._send(items, slot, work)

    def _memory(self) -> int | None:
        """Wait for a memory that no chunk uses; return None once the worker takes no more items."""
        slot = self._free.get()
        if self.is_wanted.is_set():
            return slot
        self._free.put(slot)  # for the next thread that waits
        return None

    def _release(self, items: Sequence[Item]) -> list[Item]:
        """Take back those of the items that the worker still has, as it may retire meanwhile."""
        with self._lock:
            return [item for item in items if self._items.pop(item.number, None) is not None]

    def receive_answers(self, work: Work) -> str:
        """Set results as they come, until the process ends; return why it did."""
        reason = "the process ended"
        while True:
            try:
                (kind, facts), stacks, slot, size = self._receive(_tell)
            except (EOFError, OSError):
                return reason
            if kind == "lost":
                reason = facts
                continue
            outcomes = unpacked_answers(facts, stacks)
            del stacks
            self._free.put(slot)
            with self._lock:
                answers = [(self._items.pop(number), outcome) for number, outcome in outcomes]
                is_idle = not self._items
            work.measure(self, len(answers), self._times.of(answers[0][0].begun, time.perf_counter()), size)
            work.answer(answers)
            if is_idle:
                work.wake()

    def _receive(self, tell: Callable[..., None]) -> Received:
        """Wait for a message that is no notice; ``tell`` those that come before, once for all workers."""
        while True:
            received = self.channel.receive()
            if received.message[0] != "notice":
                return received
            text, category = received.message[1]
            text = text.replace("providers=['cpu']", "devices='cpu'")  # the pool's argument
            tell(text, once=text, category=category)

    def retire(self) -> list[Item]:
        """Take no more items; return those without an answer, in order."""
        self._dismiss()
        with self._lock:
            items = [self._items.pop(number) for number in sorted(self._items)]
        return items

    def end(self) -> None:
        """End the process."""
        self._dismiss()
        self.process.kill()

    def _dismiss(self) -> None:
        """Take no more items; wake the threads that wait for a memory, one after another."""
        self.is_wanted.clear()
        self._free.put(0)


class Workers:
    """All workers.  Raises the error of the first if none can open the model, and any that is not its device's."""

    def __init__(self, jobs: Sequence[WorkerJob], work: Work) -> None:
        self._work = work
        with _ignored_interrupts():
            workers = [DeviceWorker(job) for job in jobs]
        try:
            self._workers = _opened(workers)
        except BaseException:
            _end_all(workers)
            raise
        self.joins = all(worker.joins for worker in self._workers)
        self._left = set(self._workers)
        self._is_ended = False
        self._lock = threading.Lock()
        self._senders = [_start(self._send, worker) for worker in self._workers for _ in range(SENDERS)]
        self._receivers = [_start(self._receive, worker) for worker in self._workers]

    @property
    def names(self) -> list[str]:
        return [worker.name for worker in self._workers if worker in self._left]

    @property
    def processes(self) -> list[int]:
        return [worker.process.pid or 0 for worker in self._workers if worker in self._left]

    def check_thread(self) -> None:
        """Raise :class:`RunError` in a thread of the pool, which would wait for itself."""
        if threading.current_thread() in (*self._senders, *self._receivers):
            raise RunError("a callback of a future cannot wait for a pool", hint="pool.terminate(), or another thread")

    def join(self) -> None:
        """Wait until all items are answered, then end the processes."""
        for thread in self._senders:
            thread.join()
        self.end()

    def end(self) -> None:
        """End the processes; items without an answer get :class:`ClosedError`.  In a fork do nothing."""
        if not self._work.is_ours:
            return
        self._is_ended = True
        self._work.fail(ClosedError("the pool is closed"))
        _end_all(self._workers)
        self._work.wake()
        for thread in (*self._senders, *self._receivers):
            if thread is not threading.current_thread():  # whose callback of a future may have dropped the pool
                thread.join()

    def _send(self, worker: DeviceWorker) -> None:
        worker.send_chunks(self._work)

    def _receive(self, worker: DeviceWorker) -> None:
        reason = worker.receive_answers(self._work)
        items = worker.retire()
        with self._lock:
            self._left.discard(worker)
            is_last = not self._left
        if is_last:
            self._work.fail(DeviceLost(f"no worker is left; the last one: {reason}", hint="open another pool"))
        elif not self._is_ended:
            _tell(f"the pool goes on without {worker.name}: {reason}")
        self._work.give_back(items, reason)
        self._work.wake()


def _opened(workers: Sequence[DeviceWorker]) -> list[DeviceWorker]:
    """Return the workers whose devices can be opened; raise the error of others where a pool cannot go without."""
    errors = [(worker, worker.open()) for worker in workers]
    failures = [error for _, error in errors if error is not None]
    fatal = [error for error in failures if not isinstance(error, DeviceError)]
    if fatal or len(failures) == len(workers):
        raise (fatal or failures)[0]
    for error in failures:
        notify(f"the pool goes without a device: {error}")
    return [worker for worker, error in errors if error is None]


def _unsendable(what: str, error: Exception) -> InputError:
    return InputError(f"{what} cannot be sent to a process: {type(error).__name__}: {error}", hint="pass plain values")


def _tell(text: str, **options: Any) -> None:
    """Notify in a thread whose end would be that of the pool: where warnings are errors nobody would see this one."""
    with suppress(ShaderloomWarning):
        notify(text, **options)


def _start(run: Callable[[DeviceWorker], None], worker: DeviceWorker) -> threading.Thread:
    thread = threading.Thread(target=run, args=(worker,), name="shaderloom-pool", daemon=True)
    thread.start()
    return thread


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Let processes that are started ignore interrupts from their first instruction on: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_all(workers: Sequence[DeviceWorker]) -> None:
    for worker in workers:
        worker.end()
    for worker in workers:
        worker.process.join(_PATIENCE)
