"""Measures models on runtimes: every runtime in a process of its own, all of them taking turns."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import queue
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .models import BenchModel, Feeds
from .runtimes import BUILD, OURS, Driver, Runtime
from .workers.protocol import MARK, Job

#: A process that says nothing for so many seconds has failed
PATIENCE = 300.0


class WorkerError(Exception):
    """A runtime failed; the text is what it said last."""


class Worker:
    """A running process of one runtime with one model."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._start = time.perf_counter()
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
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
        self._tell("run\n")
        return float(self.receive()["ms"])

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
    cold: dict[str, float] | None = None  #: seconds: from process start to the first output, creation, first run
    warm: dict[str, float] | None = None  #: the same in a second process, with what the first left in caches
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
    warm: bool = True,
) -> list[Result]:
    """One model on several runtimes, the reference first; without ``warm`` the process of the cold start stays.

    Each runs ``rounds`` times, in turns; one that has used ``seconds`` stops early, but not before its third run.
    """
    path, feeds = model.locate(), model.feeds()
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    results = {runtime.name: Result(model.name, runtime.name, driver.name, date) for runtime in runtimes}
    workers: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        np.savez(scratch / "inputs.npz", **feeds)  # type: ignore[arg-type]
        names = _output_names(path)
        try:
            for runtime in runtimes:
                tell(f"{model.name}: starting {runtime.title}")
                result = results[runtime.name]
                try:
                    starts, facts, workers[runtime.name] = _start(
                        runtime, model.name, path, feeds, names, driver, scratch, warm
                    )
                    result.cold, result.warm = starts[0], starts[1] if warm else None
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


def _output_names(path: Path) -> list[str]:
    import onnx

    return [output.name for output in onnx.load(path, load_external_data=False).graph.output]


def _start(
    runtime: Runtime, name: str, path: Path, feeds: Feeds, names: list[str], driver: Driver, scratch: Path, warm: bool
) -> tuple[list[dict[str, float]], dict[str, Any], Worker]:
    """A cold start in caches of its own, then with ``warm`` a second process; the last one stays.

    Gives what each start took, the facts of a cold process that ended, and the process that stays.
    """
    caches = scratch / f"{runtime.name}-caches"
    caches.mkdir()
    # where Mesa, platformdirs and others keep what they may reuse
    environment = {"XDG_CACHE_HOME": str(caches)}
    if runtime.drivers:
        environment |= driver.environment()
    outputs = scratch / f"{runtime.name}.npz"
    job = Job(str(path), str(scratch / "inputs.npz"), str(outputs), names, str(path))
    if runtime.converts:
        job.model = str(_converted(runtime, name, job))
    command = [str(runtime.python().absolute()), "-m", f"bench.workers.{runtime.worker}", json.dumps(asdict(job))]
    starts, facts = [], {}
    attempts = ("cold", "warm") if warm else ("cold",)
    for attempt in attempts:
        worker = Worker(command, environment)
        try:
            starts.append(worker.opened())
            if attempt != attempts[-1]:
                facts = worker.finish()["facts"]
                worker.kill()
        except BaseException:
            worker.kill()
            raise
    return starts, facts, worker


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
    for name in workers:
        result, taken = results[name], times[name]
        result.runs = len(taken)
        result.median_ms, result.least_ms, result.most_ms = statistics.median(taken), min(taken), max(taken)


def _compare(results: dict[str, Result], scratch: Path) -> None:
    """Differences from the first runtime, the reference."""
    from tests.support.comparison import relative_error

    reference, *others = results
    if not (scratch / f"{reference}.npz").is_file():
        return
    expected = _outputs(scratch / f"{reference}.npz")
    for name in others:
        if results[name].error is None:
            found = _outputs(scratch / f"{name}.npz")
            if len(found) == len(expected) and all(a.size == b.size for a, b in zip(found, expected, strict=True)):
                results[name].difference = max(
                    relative_error(one.reshape(other.shape).astype(other.dtype), other)
                    for one, other in zip(found, expected, strict=True)
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
