"""Starts of processes: cold, second and third, with the caches that a user's processes have."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .worker import Worker, WorkerError

#: A process with empty caches, and two after it
PROCESSES = ("cold", "second", "third")
#: Folders of caches, ours and the driver's, in a home that the processes of one runtime and model share
_FOLDERS = {"HOME": "", "XDG_CACHE_HOME": ".cache", "XDG_STATE_HOME": ".local/state", "XDG_CONFIG_HOME": ".config"}
#: Heads of :func:`cells`
HEADS = (*PROCESSES, "import + creation + first run")

#: Processes that run beside, from which the page says so
_SHARED = 1.5

#: Seconds from the start of a process to its first output (``start_s``) with the processor time until then
#: (``cpu_s``, of the process alone), of which ``create_s`` and ``first_s`` are creation and first run; ``run_ms`` of a
#: later run, where some were made; ``load`` is that of the machine before it; or an ``error``
Start = dict[str, Any]


def start_processes(
    command: Sequence[str], environment: Mapping[str, str], *, processes: int = len(PROCESSES), runs: int = 0
) -> tuple[list[Start], dict[str, Any], Worker]:
    """Start a worker so many times, in a new home, with ``runs`` after its first.

    Return the starts, the facts of the first process if it has ended, and the process that is left.  Raises
    :class:`WorkerError`.
    """
    home = tempfile.TemporaryDirectory(prefix="start-")
    folders = {name: str(Path(home.name, folder)) for name, folder in _FOLDERS.items()}
    starts: list[Start] = []
    facts: dict[str, Any] = {}
    for number in range(processes):
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        worker = Worker(command, {**environment, **folders})
        try:
            start = {**worker.opened(), "load": load}
            if runs:
                start["run_ms"] = statistics.median(worker.run() for _ in range(runs))
            starts.append(start)
            if number < processes - 1:
                ended = worker.finish()["facts"]
                facts = facts or ended
                worker.kill()
        except BaseException:
            worker.kill()
            raise
    worker.home = home  # goes with the process that uses it
    return starts, facts, worker


def start_in_turns(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], *, runs: int, rounds: int
) -> dict[str, list[Start]]:
    """Start workers in turns, each round in new homes, and return the medians of the rounds for each name.

    A worker that fails has one start with its ``error``, and no further turn.
    """
    turns: dict[str, list[list[Start]]] = {name: [] for name in commands}
    failed: dict[str, list[Start]] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            if name in failed:
                continue
            try:
                starts, _, worker = start_processes(command, environment, runs=runs)
                worker.kill()
            except WorkerError as error:
                failed[name] = [{"error": str(error)}]
            else:
                turns[name].append(starts)
    return {name: failed.get(name) or _medians(turns[name]) for name in commands}


def _medians(turns: Sequence[Sequence[Start]]) -> list[Start]:
    """Return the median of each figure of each process; ``None`` where a process does not know it."""
    return [{key: _median([start[key] for start in process]) for key in process[0]} for process in zip(*turns)]


def _median(figures: Sequence[float | None]) -> float | None:
    measured = [figure for figure in figures if figure is not None]
    return statistics.median(measured) if measured else None


def cells(starts: Sequence[Start]) -> list[str]:
    """Return the cells of a table under :data:`HEADS`; a process that was not measured has an empty one."""
    failed = next((start["error"] for start in starts if "error" in start), None)
    if failed is not None:
        return [failed, *[""] * len(PROCESSES)]
    seconds = [_seconds(start) for start in starts[: len(PROCESSES)]]
    return [*seconds, *[""] * (len(PROCESSES) - len(seconds)), _parts(starts[0]) if starts else ""]


def load_note(starts: Iterable[Start]) -> str:
    """Return what a page says of the starts of a machine that did other work; "" for a quiet one."""
    loads = [load for start in starts if (load := start.get("load")) is not None and load > _SHARED]
    if not loads:
        return ""
    shared = f"{len(loads)} of the starts shared the machine with other work (load up to {max(loads):.0f})"
    return f"{shared}: compare processor time.\n"


def _seconds(start: Start) -> str:
    processor = start.get("cpu_s")
    return f"{start['start_s']:.2f}" + ("" if processor is None else f" ({processor:.2f})")


def _parts(start: Start) -> str:
    before = start["start_s"] - start["create_s"] - start["first_s"]
    return " + ".join(f"{part:.2f}" for part in (before, start["create_s"], start["first_s"]))


def output_names(path: Path) -> list[str]:
    """Return the names of a model's outputs."""
    import onnx

    return [output.name for output in onnx.load(path, load_external_data=False).graph.output]
