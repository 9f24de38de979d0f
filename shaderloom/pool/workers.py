"""The worker processes of a pool, and two threads for each: one sends chunks, one receives answers."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..notices import notify
from ..runtime.plan.errors import ClosedError, DeviceError, DeviceLost
from .channel import Channel
from .work import Item, Work
from .worker import WorkerJob, run_worker

#: Chunks that a worker has: those that it answers, and one that is on its way
IN_FLIGHT = 3
#: Seconds that a process may take to end by itself
_PATIENCE = 5.0


class DeviceWorker:
    """One process.  ``name`` is that of its device, ``joins`` whether it joins items."""

    def __init__(self, job: WorkerJob) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self.channel = Channel(ours)
        self.process = context.Process(target=run_worker, args=(theirs, job), name="shaderloom-worker", daemon=True)
        self.process.start()
        theirs.close()
        self.name = ""
        self.joins = False
        self.is_wanted = threading.Event()
        self.is_wanted.set()
        self._items: dict[int, Item] = {}
        self._lock = threading.Lock()
        self._room = threading.Semaphore(IN_FLIGHT)

    def open(self) -> Exception | None:
        """Wait until the session is open; return the error otherwise."""
        try:
            kind, *facts = self.channel.receive()
        except (EOFError, OSError):
            self.process.join(_PATIENCE)
            return DeviceError(
                f"a worker process ended with status {self.process.exitcode} before it was ready",
                hint="programs that use a pool have their code below: if __name__ == '__main__'",
            )
        if kind == "failed":
            error: Exception = facts[0]
            return error
        self.name, self.joins = facts
        return None

    def send_chunks(self, work: Work) -> None:
        """Send chunks of items, as long as the worker has room and there are some."""
        while self.is_wanted.is_set():
            self._room.acquire()
            items = work.take(self.is_wanted)
            if not items:
                return
            with self._lock:
                self._items.update((item.number, item) for item in items)
            try:
                self.channel.send([(item.number, item.feeds) for item in items])
            except OSError:
                return  # the other thread sees the end of the process
            except Exception as error:  # inputs that cannot be pickled
                self._refuse(items, error, work)
                self._room.release()

    def _refuse(self, items: Sequence[Item], error: Exception, work: Work) -> None:
        """Answer items that cannot be sent together: send each alone, so that the error is that of one."""
        for item in items:
            try:
                if len(items) == 1:
                    raise error
                self.channel.send([(item.number, item.feeds)])
                self._room.acquire()
            except OSError:
                return
            except Exception as reason:
                with self._lock:
                    self._items.pop(item.number, None)
                work.answer(item, reason)

    def receive_answers(self, work: Work) -> str:
        """Set results as they come, until the process ends; return why it did."""
        reason = "the process ended"
        while True:
            try:
                kind, facts = self.channel.receive()
            except (EOFError, OSError):
                return reason
            if kind == "lost":
                reason = facts
                continue
            for number, outcome in facts:
                with self._lock:
                    item = self._items.pop(number)
                work.answer(item, outcome)
            self._room.release()

    def retire(self) -> list[Item]:
        """Take no more items; return those without an answer, in order."""
        self.is_wanted.clear()
        self._room.release()
        with self._lock:
            items = [self._items.pop(number) for number in sorted(self._items)]
        return items

    def end(self) -> None:
        """End the process."""
        self.is_wanted.clear()
        self._room.release()
        self.process.kill()


class Workers:
    """All workers.  Raises the error of the first if none can open the model, and any that is not its device's."""

    def __init__(self, jobs: Sequence[WorkerJob], work: Work) -> None:
        self._work = work
        with _ignored_interrupts():
            workers = [DeviceWorker(job) for job in jobs]
        errors = [(worker, worker.open()) for worker in workers]
        failures = [error for _, error in errors if error is not None]
        fatal = [error for error in failures if not isinstance(error, DeviceError)]
        if fatal or len(failures) == len(workers):
            _end_all(workers)
            raise (fatal or failures)[0]
        for error in failures:
            notify(f"the pool goes without a device: {error}")
        self._workers = [worker for worker, error in errors if error is None]
        self.joins = all(worker.joins for worker in self._workers)
        self._left = set(self._workers)
        self._is_ended = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        for worker in self._workers:
            for run in (self._send, self._receive):
                thread = threading.Thread(target=run, args=(worker,), name="shaderloom-pool", daemon=True)
                self._threads.append(thread)
                thread.start()

    @property
    def names(self) -> list[str]:
        return [worker.name for worker in self._workers if worker in self._left]

    @property
    def processes(self) -> list[int]:
        return [worker.process.pid or 0 for worker in self._workers if worker in self._left]

    def join(self) -> None:
        """Wait until all items are answered, then end the processes."""
        for thread in self._threads[::2]:
            thread.join()
        self.end()

    def end(self) -> None:
        """End the processes; items without an answer get :class:`ClosedError`."""
        self._is_ended = True
        self._work.fail(ClosedError("the pool is closed"))
        _end_all(self._workers)
        self._work.wake()
        for thread in self._threads:
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
            notify(f"the pool goes on without {worker.name}: {reason}")
        self._work.give_back(items, reason)
        self._work.wake()


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
