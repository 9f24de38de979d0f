"""Workers that take turns on one GPU: each opens a model in some modes and times runs when it is asked to.

A worker reads commands as lines of JSON and answers each with one line behind ``MARK``.  Times are of single runs, from
the call to the moment at which its outputs are there: in host memory, or on the device after waiting for it.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MARK = "@turn "


@dataclass
class OpenedRuntime:
    """A model that is ready: a function for each mode, and what the runtime tells about it."""

    modes: dict[str, Callable[[], Any]]
    outputs: Callable[[], list[np.ndarray]] | None = None  #: for the comparison with the reference
    facts: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None


def serve(open_model: Callable[[dict[str, Any], dict[str, np.ndarray]], OpenedRuntime], facts: dict[str, Any]) -> None:
    """The main program.  ``open_model`` takes the job and the inputs."""
    _say(facts=facts)
    opened: OpenedRuntime | None = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "open":
                feeds = _feeds(command.get("inputs"))
                began = time.perf_counter()
                opened = open_model(command, feeds)
                if opened.outputs is not None:
                    outputs = opened.outputs()
                    np.savez(command["outputs"], *outputs)
                first = time.perf_counter() - began
                _say(modes=list(opened.modes), compared=opened.outputs is not None, first_s=first, facts=opened.facts)
            elif command["do"] == "time":
                assert opened is not None, "a model is open"
                _say(ms=_times(opened.modes[command["mode"]], command["seconds"], command["most"]))
            else:
                if opened is not None:
                    opened.close()
                opened = None
                _say(closed=True)
        except Exception as error:
            traceback.print_exc()
            _say(error=f"{type(error).__name__}: {error}"[:400])


def _feeds(path: str | None) -> dict[str, np.ndarray]:
    """Return the inputs that a file holds; without a file there are none, and the worker makes its own."""
    if path is None:
        return {}
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def _times(run: Callable[[], Any], seconds: float, most: int) -> list[float]:
    """Milliseconds of single runs, after some that warm up: at most so many in about so many seconds."""
    clock = time.perf_counter
    end = clock() + seconds / 4
    while clock() < end:
        run()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < most and (clock() < end or len(times) < 5):
        began = clock()
        run()
        times.append((clock() - began) * 1e3)
    return times


def _say(**message: Any) -> None:
    print(MARK + json.dumps(message), flush=True)
