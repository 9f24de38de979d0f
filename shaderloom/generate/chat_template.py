"""Formats messages of a chat by the template of a model, which is not trusted: see :mod:`.template_worker`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runtime.plan.errors import InputError, ModelError

#: Seconds that a template may take, the start of its process included
SECONDS = 20.0
#: Characters of a template
LENGTH = 1 << 18

Message = Mapping[str, Any]


class ChatTemplate:
    """The template of a model, with the texts of its special tokens."""

    def __init__(self, template: str, special: Mapping[str, str], seconds: float = SECONDS) -> None:
        if len(template) > LENGTH:
            raise ModelError(f"the chat template has {len(template):,} characters", hint="check what it is")
        self._template = template
        self._special = dict(special)
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def format(self, messages: Sequence[Message]) -> str:
        """Return the text of a chat that the model goes on with.

        Raises :class:`InputError` for what is no message, and :class:`ModelError` if the template fails, takes more
        than :data:`SECONDS`, or more memory than its process may have.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InputError(f"a message is a dict with 'role' and 'content', not {message!r:.80}")
        variables = {**self._special, "messages": list(messages), "add_generation_prompt": True}
        try:
            request = json.dumps({"template": self._template, "variables": variables})
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a message does not consist of JSON values: {error}") from None
        answer = self._ask(request.encode() + b"\n")
        if "error" in answer:
            raise ModelError(f"the chat template: {answer['error']}", hint="check the roles of the messages")
        return str(answer["text"])

    def _ask(self, request: bytes) -> dict[str, Any]:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = _start()
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(self._seconds, end)
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            self.close()
            reason = f"took more than {self._seconds:g} s" if is_late.is_set() else "needs more memory than it may have"
            raise ModelError(f"the chat template {reason}", hint="check the template")
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()


def _start() -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); from shaderloom.generate.template_worker import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
