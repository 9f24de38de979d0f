"""Workers of the GPU benchmarks: a runtime in a process of its own, which takes its turns on the device."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

BUILD = Path(__file__).resolve().parents[1] / "build" / "bench"
MARK = "@turn "
PATIENCE = 60  #: seconds that a worker may take for one answer


class GpuWorker:
    """A runtime in its own process."""

    def __init__(self, name: str, environment: dict[str, str], *options: str) -> None:
        self.name = name
        self.log = (BUILD / f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"bench.workers.{name}", *options],
            cwd=BUILD, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )  # fmt: skip
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.facts = self.answer()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            return {"error": f"the process has ended: {error}"}
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next message; a worker that does not answer in time is ended, and its later questions are errors."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                self.process.kill()
                return {"error": f"no answer in {PATIENCE} s"}
            if line is None:
                self.lines.put(None)
                return {"error": f"the process has ended with {self.process.wait()}: {self._last_words()}"}
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])

    def _last_words(self) -> str:
        lines = Path(self.log.name).read_text().strip().splitlines()
        return lines[-1][:300] if lines else "it wrote nothing"

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()
