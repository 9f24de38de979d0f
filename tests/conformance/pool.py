"""Running many cases in processes of their own: a case that hangs or ends its process is a failed case, not more.

A process runs a *batch* of cases of one suite, so that what cases leave in memory ends with it.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .running import Outcome

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a worker may take to start and to make the suites
START = 300.0
#: Most cases of a batch: operators, and whole models
BATCH = 400
BATCH_OF_MODELS = 1

Record = dict[str, Any]  #: the fields of an outcome, ``seconds`` of processor time, and ``facts`` of a whole model


class Pool:
    """``done`` gets each result, ``limit`` is in seconds for each case; after ``until`` (monotonic) no case begins."""

    def __init__(self, device: str, limit: float, until: float, done: Callable[[Record], None]) -> None:
        self.device_name = ""
        self._device, self._limit, self._until, self._done = device, limit, until, done
        self._lock = threading.Lock()

    def run(self, wanted: Mapping[str, Sequence[str]], jobs: int) -> None:
        """Run cases (suite -> names) in ``jobs`` processes.  Raises RuntimeError if a worker cannot be started."""
        batches = [(suite, batch) for suite, names in wanted.items() for batch in _batches(suite, names, jobs)]
        with ThreadPoolExecutor(jobs) as executor:
            for future in [executor.submit(self._run_batch, suite, names) for suite, names in batches]:
                future.result()

    def _run_batch(self, suite: str, names: list[str]) -> None:
        left = list(names)
        while left and time.monotonic() < self._until:
            worker = _Worker(self._device, {suite: left})
            try:
                self.device_name = worker.next(START)["device"]
                self._follow(worker, left)
            except (TimeoutError, EOFError) as error:
                raise RuntimeError(f"the worker did not start: {error}") from None
            finally:
                worker.stop()

    def _follow(self, worker: _Worker, left: list[str]) -> None:
        """Read results until all are there, until one case breaks the worker, or until the time is over."""
        current = ""
        wait = START
        while left:
            try:
                message = worker.next(wait)
            except (TimeoutError, EOFError) as error:
                if not current:
                    raise
                self._finish({"key": current, "kind": "failed", "reason": str(error), "seconds": 0.0}, left)
                return
            if "start" in message:
                current, wait = message["start"], self._limit
            else:
                self._finish(message, left)
                current, wait = "", START
                if time.monotonic() >= self._until:
                    return

    def _finish(self, record: Record, left: list[str]) -> None:
        left.remove(record["key"].partition("/")[2])
        with self._lock:
            self._done(record)


def _batches(suite: str, names: Sequence[str], jobs: int) -> list[list[str]]:
    """Batches of about the same work: every n-th case, as neighbours are alike."""
    most = BATCH_OF_MODELS if suite == "real" else BATCH
    count = max(min(jobs, len(names)), -(-len(names) // most)) if names else 0
    return [list(names[number::count]) for number in range(count)]


class _Worker:
    """One process and the lines that it writes."""

    def __init__(self, device: str, wanted: Mapping[str, Sequence[str]]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.worker", device],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        json.dump(wanted, self._process.stdin)
        self._process.stdin.close()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def next(self, seconds: float) -> Record:
        """The next message.  Raises TimeoutError, or EOFError when the process has ended."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {seconds:.0f} s") from None
        if line is None:
            raise EOFError(f"the process ended with status {self._process.wait()}")
        message: Record = json.loads(line)
        return message

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def outcome_of(record: Record) -> Outcome:
    return Outcome(record["key"], record["kind"], record.get("reason", ""))
