"""A process of one runtime with one model; ``bench.workers.protocol`` is its side."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .workers.protocol import MARK

#: A process that says nothing for so many seconds has failed
PATIENCE = 300.0


class WorkerError(Exception):
    """A runtime failed; the text is what it said last."""


def user_environment() -> dict[str, str]:
    """Return the environment as a user's process has it, which keeps the bytecode of what it imports."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Worker:
    """A running process of one runtime with one model."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.home: tempfile.TemporaryDirectory[str] | None = None  #: of its caches, if it is alone in there
        self._start = time.perf_counter()
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            command,
            env={**user_environment(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
        )
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._last_line = ""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                self._messages.put(json.loads(line[len(MARK) :]))
            elif line.strip():
                self._last_line = line.strip()
        self._messages.put(None)

    def receive(self) -> dict[str, Any]:
        """The next message.  Raises :class:`WorkerError` if there is none."""
        try:
            message = self._messages.get(timeout=PATIENCE)
        except queue.Empty:
            self.kill()
            raise WorkerError(f"no answer in {PATIENCE:.0f} s") from None
        if message is None:
            code = self._process.wait()
            self._errors.seek(0)
            said = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
            raise WorkerError((said or [self._last_line or f"ended with code {code}"])[-1][:300])
        return message

    def opened(self) -> dict[str, Any]:
        """Waits for the first run; gives the seconds since the process was started, and its parts."""
        message = self.receive()
        return {"start_s": time.perf_counter() - self._start, **message}

    def run(self) -> float:
        """One run: milliseconds."""
        return float(self.ask()["ms"])

    def ask(self) -> dict[str, Any]:
        """One run: what the worker says of it."""
        self._tell("run\n")
        return self.receive()

    def finish(self) -> dict[str, Any]:
        """End the process; gives its last message."""
        self._tell(None)
        message = self.receive()
        self._process.wait(PATIENCE)
        return message

    def _tell(self, text: str | None) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a dead process: receive() says why
            if text is None:
                self._process.stdin.close()
            else:
                self._process.stdin.write(text)
                self._process.stdin.flush()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._errors.close()
        if self.home is not None:
            self.home.cleanup()
