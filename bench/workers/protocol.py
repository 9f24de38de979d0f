"""What a worker and the harness say to each other.  Needs numpy alone: workers run in environments of their own.

A worker gets a job as JSON in its first argument.  It opens the model, runs it once, saves the outputs, and writes a
message; then it runs the model once for each line ``run`` that it reads, and writes the milliseconds; at the end of its
input it writes what it has learned.  A message is a line of JSON behind ``MARK``: libraries write to the same stream.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MARK = "@bench "


@dataclass
class Job:
    """``model`` is the ONNX file or what it was converted to; ``inputs`` and ``outputs`` are files of arrays."""

    model: str
    inputs: str
    outputs: str
    output_names: list[str]
    source: str  #: the ONNX file, also where ``model`` is another


@dataclass
class Opened:
    """A model that is ready to run; ``facts`` are versions, the device, and what else the runtime tells.

    ``time`` makes one run and gives its milliseconds, for runtimes that are not in this process, and ``started`` the
    seconds of their start and its parts, after the first run.
    """

    run: Callable[[], list[np.ndarray]]
    facts: dict[str, Any] = field(default_factory=dict)
    finish: Callable[[], dict[str, Any]] = dict  #: further facts, known at the end
    time: Callable[[], float] | None = None
    started: Callable[[], dict[str, float]] | None = None


def serve(
    open_model: Callable[[Job, dict[str, np.ndarray]], Opened], load: Callable[[], object] = lambda: None
) -> None:
    """The main program of a worker; ``load`` imports the runtime, which is no part of opening a model."""
    job = Job(**json.loads(sys.argv[1]))
    with np.load(job.inputs) as archive:
        feeds = {name: archive[name] for name in archive.files}
    load()
    start = time.perf_counter()
    opened = open_model(job, feeds)
    created = time.perf_counter()
    outputs = opened.run()
    done = time.perf_counter()
    if opened.started is None:
        say(create_s=created - start, first_s=done - created, cpu_s=time.process_time())
    else:
        say(**opened.started(), cpu_s=None)
    np.savez(job.outputs, *outputs)
    for line in sys.stdin:
        if line.strip() != "run":
            break
        start = time.perf_counter()
        elapsed = opened.run() if opened.time is None else opened.time()
        say(ms=elapsed if isinstance(elapsed, float) else (time.perf_counter() - start) * 1e3)
    say(peak_mb=peak_memory(), facts={**opened.facts, **opened.finish()})


def say(**message: Any) -> None:
    print(MARK + json.dumps(message), flush=True)


def peak_memory() -> float | None:
    """Largest resident size of this process so far in MB (10^6 bytes); None where the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return None
