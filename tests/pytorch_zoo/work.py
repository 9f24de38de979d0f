"""One model in a process of its own: ``python -m tests.pytorch_zoo.work LIBRARY/NAME [LOCK]`` prints JSON.

Runs in the environment of the zoo.  Times are taken while no other process with the same file LOCK computes.
"""

from __future__ import annotations

import dataclasses
import fcntl
import importlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import shaderloom

from . import comparing, timing
from .example import Example, make


def example(name: str) -> Example:
    """Return a model by library and name."""
    library, _, model = name.partition("/")
    return make(importlib.import_module(f".of_{library}", __package__).MODELS[model])


class Quiet:
    """A context in which no other process with the same lock compares, or is in this context."""

    def __init__(self, lock: Path) -> None:
        self._file = lock.open("w")
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_SH)


def run(name: str, lock: Path | None) -> dict[str, Any]:
    """Return the results for a model: of each part an object, or the text of what was raised."""
    results: dict[str, Any] = {"model": name, "times": "not measured"}
    quiet = None if lock is None else Quiet(lock)

    def note(part: str, call: Callable[[Example], Any]) -> None:
        try:
            results[part] = dataclasses.asdict(call(example(name)))
        except (shaderloom.ShaderloomError, ValueError) as error:
            results[part] = str(error)

    note("session", comparing.compare_session)
    note("compiled", comparing.compare_compiled)
    if quiet is not None:
        time = timing.time_on_gpu if torch.cuda.is_available() else timing.time_on_host
        note("times", lambda each: time(each, quiet))
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]) if sys.argv[2:] else None)))
