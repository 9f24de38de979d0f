"""Running many cases in processes of their own: a case that hangs or ends its process is a failed case, not more."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .running import Outcome

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a worker may take to start and to make the suites
START = 300.0

Record = dict[str, Any]  #: the fields of an outcome, and ``seconds`` of processor time


def run_all(wanted: Mapping[str, Sequence[str]], device: str, limit: float, done: Callable[[Record], None]) -> str:
    """Run cases (suite -> names); ``done`` gets each result.  Gives the name of the device.

    ``limit`` is in seconds, for each case.  Raises RuntimeError if no worker can be started.
    """
    left = {suite: list(names) for suite, names in wanted.items() if names}
    name = ""
    while left:
        worker = _Worker(device, left)
        try:
            name = worker.next(START)["device"]
            _follow(worker, left, limit, done)
        except (TimeoutError, EOFError) as error:
            raise RuntimeError(f"the worker did not start: {error}") from None
        finally:
            worker.stop()
        left = {suite: names for suite, names in left.items() if names}
    return name


def _follow(worker: _Worker, left: dict[str, list[str]], limit: float, done: Callable[[Record], None]) -> None:
    """Read results until all are there, or until one case breaks the worker."""
    current = ""
    wait = START
    while any(left.values()):
        try:
            message = worker.next(wait)
        except (TimeoutError, EOFError) as error:
            if not current:
                raise
            done({"key": current, "kind": "failed", "reason": str(error), "seconds": 0.0})
            _remove(left, current)
            return
        if "start" in message:
            current, wait = message["start"], limit
        else:
            done(message)
            _remove(left, message["key"])
            current, wait = "", START


def _remove(left: dict[str, list[str]], key: str) -> None:
    suite, _, name = key.partition("/")
    left[suite].remove(name)


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
