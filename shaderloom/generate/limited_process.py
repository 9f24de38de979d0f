"""A process of its own for what files of strangers decide: bounded in time, and in memory where the system limits it.

Its requests and answers are lines of JSON: see :mod:`.text_worker`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from ..runtime.plan.errors import ModelError


class LimitedProcess:
    """Answers requests one after another.  It starts with the first one, and again behind one that had to be ended.

    ``what`` names it in errors; ``seconds`` are those of a request, the start of the process included.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def ask(self, request: Mapping[str, Any], meanwhile: Callable[[], None] | None = None) -> dict[str, Any]:
        """Return the answer, which has ``error`` if the request failed; call ``meanwhile`` while it is made.

        Raises :class:`ModelError` if it takes too long, or ends the process: by memory, or a fault.  ``request`` is of
        JSON's values; TypeError, ValueError or RecursionError are raised for others.
        """
        line = json.dumps(request).encode() + b"\n"
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            process = self._start()
        assert process.stdin is not None, "it is a pipe"
        reason = "ended its process, for which more memory than it may have is the common cause"
        try:
            is_sent = _send(process.stdin, line)
            if meanwhile is not None:
                meanwhile()
            answer = self._lines.get(timeout=self._seconds) if is_sent else b""
        except queue.Empty:
            answer, reason = b"", f"took more than {self._seconds:g} s"
        except BaseException:  # of a signal: the answer would be taken for that to the next request
            self.close()
            raise
        if not answer.endswith(b"\n"):
            self.close()
            raise ModelError(f"{self._what} {reason}", hint="check the files of the model's folder")
        return dict(json.loads(answer))

    def _start(self) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[2])
        program = f"import sys; sys.path.insert(0, {root!r}); from shaderloom.generate.text_worker import main; main()"
        process = self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the program, which may go on
        )
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_forward, args=(process.stdout, self._lines), daemon=True).start()
        return process

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()


def _send(pipe: IO[bytes], line: bytes) -> bool:
    """Return whether the process at the end of a pipe is there to read a line."""
    try:
        pipe.write(line)
        pipe.flush()
    except OSError:
        return False
    return True


def _forward(pipe: Any, lines: queue.SimpleQueue[bytes]) -> None:
    """Hand on lines as they come, and an empty one at the end."""
    with pipe:
        for line in pipe:
            lines.put(line)
    lines.put(b"")
