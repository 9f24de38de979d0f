"""Measures models on runtimes: every runtime in a process of its own, all of them taking turns."""

from __future__ import annotations

import contextlib
import datetime
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .models import BenchModel, Feeds
from .runtimes import BUILD, OURS, Driver, Runtime
from .starts import PROCESSES, Start, output_names, start_processes
from .worker import PATIENCE, Worker, WorkerError
from .workers.protocol import Job


@dataclass
class Result:
    """One model on one runtime.  ``error`` says why there are no figures."""

    model: str
    runtime: str
    driver: str
    date: str
    error: str | None = None
    median_ms: float | None = None
    least_ms: float | None = None
    most_ms: float | None = None
    runs: int = 0
    starts: list[Start] = field(default_factory=list)  #: of the processes of ``starts.PROCESSES``
    started: str | None = None  #: when, if not with the runs
    peak_mb: float | None = None
    difference: float | None = None  #: largest difference from onnxruntime on the CPU, over its largest output
    facts: dict[str, Any] | None = None
    ours_ms: float | None = None  #: Shaderloom's median in the same rounds
    cold_compile_ms: float | None = None  #: the compiler's part of the cold start, for runtimes that tell


def measure(
    model: BenchModel,
    runtimes: Sequence[Runtime],
    driver: Driver,
    *,
    rounds: int,
    seconds: float,
    tell: Callable[[str], None],
    processes: int = len(PROCESSES),
) -> list[Result]:
    """One model on several runtimes, the reference first, each started ``processes`` times; the last process stays.

    Each runs ``rounds`` times, in turns; one that has used ``seconds`` stops early, but not before its third run.
    """
    path, feeds = model.locate(), model.feeds()
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    results = {runtime.name: Result(model.name, runtime.name, driver.name, date) for runtime in runtimes}
    workers: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        np.savez(scratch / "inputs.npz", **feeds)  # type: ignore[arg-type]
        names = output_names(path)
        try:
            for runtime in runtimes:
                tell(f"{model.name}: starting {runtime.title}")
                result = results[runtime.name]
                try:
                    result.starts, facts, workers[runtime.name] = _start(
                        runtime, model, path, feeds, names, driver, scratch, processes
                    )
                    result.cold_compile_ms = facts.get("compile_ms")
                except (WorkerError, subprocess.CalledProcessError) as error:
                    result.error = _text(error)
            _take_turns(workers, results, rounds, seconds, lambda text: tell(f"{model.name}: {text}"))
            for name, worker in list(workers.items()):
                with contextlib.suppress(WorkerError):
                    message = worker.finish()
                    results[name].peak_mb, results[name].facts = message["peak_mb"], message["facts"]
            _compare(results, scratch)
            ours = next((result.median_ms for result in results.values() if result.runtime in OURS), None)
            for result in results.values():
                result.ours_ms = ours
        finally:
            for worker in workers.values():
                worker.kill()
    return list(results.values())


def _start(
    runtime: Runtime,
    model: BenchModel,
    path: Path,
    feeds: Feeds,
    names: list[str],
    driver: Driver,
    scratch: Path,
    processes: int,
) -> tuple[list[Start], dict[str, Any], Worker]:
    """As :func:`.starts.start_processes`."""
    job = Job(str(path), str(scratch / "inputs.npz"), str(scratch / f"{runtime.name}.npz"), names, str(path))
    if runtime.converts:
        job.model = str(_converted(runtime, model.name, job))
    module = model.worker or runtime.worker
    command = [str(runtime.python().absolute()), "-m", f"bench.workers.{module}", json.dumps(asdict(job))]
    return start_processes(command, driver.environment() if runtime.drivers else {}, processes=processes)


def _converted(runtime: Runtime, name: str, job: Job) -> Path:
    """The model in the form that the runtime reads; made once for each set of packages."""
    folder = (BUILD / "converted" / f"{runtime.packages[0]}-{name}").absolute()
    target = folder / ("model.param" if runtime.name == "ncnn" else "model.onnx")
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        job = Job(**{**asdict(job), "model": str(target)})
        command = [str(runtime.python().absolute()), "-m", "bench.workers.convert", runtime.worker]
        subprocess.run(
            [*command, json.dumps(asdict(job))], check=True, capture_output=True, text=True, timeout=PATIENCE
        )
    return target


def _take_turns(
    workers: dict[str, Worker], results: dict[str, Result], rounds: int, seconds: float, tell: Callable[[str], None]
) -> None:
    times: dict[str, list[float]] = {name: [] for name in workers}
    for number in range(rounds):
        for name in list(workers):
            if len(times[name]) >= 3 and sum(times[name]) > seconds * 1e3:
                continue
            tell(f"round {number + 1} of {rounds}, {name}")
            try:
                times[name].append(workers[name].run())
            except WorkerError as error:
                results[name].error = _text(error)
                workers.pop(name).kill()
    for name in workers if rounds else ():
        result, taken = results[name], times[name]
        result.runs = len(taken)
        result.median_ms, result.least_ms, result.most_ms = statistics.median(taken), min(taken), max(taken)


def _compare(results: dict[str, Result], scratch: Path) -> None:
    """Differences from the first runtime, the reference."""
    from tests.support.comparison import relative_error

    reference, *others = results
    if reference in OURS or not (scratch / f"{reference}.npz").is_file():
        return
    expected = _outputs(scratch / f"{reference}.npz")
    for name in others:
        if results[name].error is None:
            outputs = _outputs(scratch / f"{name}.npz")
            if len(outputs) == len(expected) and all(a.size == b.size for a, b in zip(outputs, expected, strict=True)):
                results[name].difference = max(
                    relative_error(one.reshape(other.shape).astype(other.dtype), other)
                    for one, other in zip(outputs, expected, strict=True)
                )
            else:
                results[name].error = "its outputs have other shapes than onnxruntime's"


def _outputs(path: Path) -> list[np.ndarray]:
    with np.load(path) as archive:
        return [archive[f"arr_{number}"] for number in range(len(archive.files))]


def _text(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = [line.strip() for line in str(error.stderr or error.stdout or "").splitlines() if line.strip()]
        return (said or [f"ended with code {error.returncode}"])[-1][:300]
    return str(error)
