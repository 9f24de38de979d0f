"""Tune a model: start the measuring process, store its results, and restart it after a bad candidate."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..compiler.tuning.config_choice import EncodedCandidate
from ..measurements.database import VARIABLE, Database, DeviceTable, RefusedCandidate, TuningEntry, user_path
from ..model.compiled import Progress
from ..model.self_tuning import Tune
from ..runtime.plan.errors import DeviceError, InputError, ShaderloomError
from ..runtime.plan.record import record
from .worker import MARK, TuningJob

#: Default time budget of tuning in seconds
BUDGET = 60.0
CANDIDATES = 8
#: Seconds after the budget within which the process must answer; one candidate may take long to compile
_PATIENCE = 120.0
#: Number of restarts of the process after a candidate ended it
_MOST_RESTARTS = 20


@record
class TunedProblem:
    """A measured problem: the number of its calls in a run, and the result."""

    problem: str
    calls: int
    entry: TuningEntry

    @property
    def is_changed(self) -> bool:
        return self.entry.choice != self.entry.analytic

    def to_json(self) -> dict[str, Any]:
        return {"problem": self.problem, "calls": self.calls, "gain": round(self.entry.gain, 3), **self.entry.to_json()}


@dataclass
class TuningResult:
    """The result of tuning a model.  ``left`` problems were not reached in time; ``present`` were measured before."""

    adapter: str = ""
    driver: str = ""
    method: str = ""
    rows: list[TunedProblem] = field(default_factory=list)
    refused: list[tuple[str, RefusedCandidate]] = field(default_factory=list)
    present: int = 0
    left: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "adapter": self.adapter,
            "driver": self.driver,
            "method": self.method,
            "problems": [row.to_json() for row in self.rows],
            "refused": [
                {"problem": problem, "choice": dict(item.choice), "why": item.why} for problem, item in self.refused
            ],
            "present": self.present,
            "left": self.left,
            "seconds": round(self.seconds, 3),
        }


def tune(
    model: str | os.PathLike[str] | bytes,
    shapes: Mapping[str, Sequence[int]],
    *,
    adapter: str,
    driver: str,
    dynamic: Mapping[str, Sequence[int]] | None = None,
    options: Mapping[str, Any] | None = None,
    budget: float = BUDGET,
    candidates: int = CANDIDATES,
    again: bool = False,
    forms: bool = True,
    path: Path | None = None,
    progress: Progress | None = None,
) -> TuningResult:
    """Measure the configurations of a model's kernels on a device and store the results in the database.

    ``adapter`` and ``driver`` name the device as its profile does.  Problems that the database already has are skipped,
    unless ``again``.  ``path`` is the database, None the user's.  An interrupt keeps the results so far.

    Raises :class:`InputError` for a database that cannot be used, and the errors of the compiler for the model.
    """
    path = path or user_path()
    if path is None:
        raise InputError("there is no database to keep what is tuned", hint=f"{VARIABLE}=off says so; unset it")
    if budget <= 0 or candidates < 1:
        raise InputError("tuning needs a budget of some seconds and at least one candidate")
    table = Database.read(path).find(adapter, driver) or DeviceTable((adapter,), driver)
    result = TuningResult(adapter, driver)
    measured = DeviceTable((adapter,), driver)
    start = time.monotonic()
    with _model_file(model) as file:
        job = TuningJob(
            str(file),
            {name: list(map(int, shape)) for name, shape in shapes.items()},
            {name: list(bounds) for name, bounds in (dynamic or {}).items()},
            dict(options or {}),
            f"{adapter} {driver}".strip(),
            budget,
            candidates,
            forms,
            {} if again else {key: dict(entry.choice) for key, entry in table.problems.items()},
            {key: [dict(item.choice) for item in items] for key, items in table.refused.items()},
        )
        try:
            _Run(job, result, measured, start, progress or (lambda what, done, total: None)).run()
        finally:
            result.seconds = time.monotonic() - start
            _keep(path, measured)
    return result


def within(budget: float) -> Tune:
    """Return a function that tunes a model within ``budget`` seconds a shape."""

    def measure(model: str | os.PathLike[str] | bytes, shapes: Mapping[str, Sequence[int]], **settings: Any) -> bool:
        return bool(tune(model, shapes, budget=budget, **settings).rows)

    return measure


def _keep(path: Path, measured: DeviceTable) -> None:
    """Merge results into the current file: another process may have added some meanwhile."""
    if not measured.problems and not measured.refused:
        return
    database = Database.read(path)
    table = database.table(measured.adapters[0], measured.driver)
    table.method = measured.method
    table.problems.update(measured.problems)
    for key, items in measured.refused.items():
        table.refused.setdefault(key, []).extend(items)
    database.write(path)


class TuningWorkerError(ShaderloomError):
    """The error of a worker, whose text has all of its parts."""

    def __str__(self) -> str:
        return self.reason


class _Run:
    """The processes of one tuning run."""

    def __init__(
        self, job: TuningJob, result: TuningResult, table: DeviceTable, start: float, progress: Progress
    ) -> None:
        self.job, self.result, self.table, self.progress = job, result, table, progress
        self.end = start + job.budget
        self.calls: dict[str, int] = {}
        self.before = set(job.measured)
        self.trying: dict[str, EncodedCandidate] = {}
        self.finished = False
        self.total = 0

    def run(self) -> None:
        for _ in range(_MOST_RESTARTS + 1):
            self.trying = {}
            ended = self._process()
            if self.finished:
                break
            if not self.trying:
                raise DeviceError(f"the process that tunes ended before it tried anything: {ended}")
            for key, choice in self.trying.items():
                self._refuse(key, RefusedCandidate(choice, ended))
            self.job.budget = max(self.end - time.monotonic(), 0.0)
        self.result.rows = [
            TunedProblem(key, self.calls.get(key, 1), entry) for key, entry in self.table.problems.items()
        ]

    def _refuse(self, key: str, refusal: RefusedCandidate) -> None:
        self.table.refused.setdefault(key, []).append(refusal)
        self.result.refused.append((key, refusal))
        self.job.refused.setdefault(key, []).append(refusal.choice)

    def _process(self) -> str:
        """Run one process to its end; return how it ended."""
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        environment["MESA_SHADER_CACHE_DISABLE"] = "true"  # compile time is measured
        process = subprocess.Popen(
            [sys.executable, "-m", "shaderloom.tuner.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        lines: queue.Queue[str | None] = queue.Queue()
        errors: list[str] = []
        readers = [
            threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True),
            threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            assert process.stdin is not None
            try:
                process.stdin.write(self.job.to_text())
                process.stdin.close()
            except BrokenPipeError:
                pass  # its exit status gives the reason
            while True:
                try:
                    line = lines.get(timeout=max(self.end - time.monotonic(), 0.0) + _PATIENCE)
                except queue.Empty:
                    process.kill()
                    return "it did not end in time"
                if line is None:
                    break
                if line.startswith(MARK):
                    self._hear(json.loads(line[len(MARK) :]))
            code = process.wait()
            readers[1].join(5)
            if code and self.finished:
                self.finished = False
            last = errors[-1].strip()[:300] if errors else ""
            signal = f"the process ended with {'signal ' + str(-code) if code < 0 else 'status ' + str(code)}"
            return f"{signal}: {last}" if last else signal
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _hear(self, message: Mapping[str, Any]) -> None:
        kind = message["kind"]
        if kind == "device":
            self.table.method = self.result.method = message["method"]
        elif kind == "tasks":
            self.calls.update(message["calls"])
            self.result.present = sum(key in self.before for key in self.calls)
        elif kind == "trying":
            self.trying = dict(message["choices"])
        elif kind == "progress":
            self.total = max(self.total, message["total"])
            done = self.total - message["total"] + message["done"] if message["total"] else 0
            self.progress(f"measuring {message['what'][:60]}", done, self.total if message["total"] else 0)
        elif kind == "refused":
            self._refuse(message["problem"], RefusedCandidate(message["choice"], message["why"]))
        elif kind == "entry":
            row = message["entry"]
            self.table.problems[message["problem"]] = TuningEntry(
                row["choice"], row["ns"], row["analytic"], row["analytic_ns"], row["compile_ns"]
            )
            self.job.measured[message["problem"]] = row["choice"]
        elif kind == "error":
            raise TuningWorkerError(message["text"])
        elif kind == "done":
            self.finished = True
            self.result.left = message["left"]


def _read_lines(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


@contextmanager
def _model_file(model: str | os.PathLike[str] | bytes) -> Iterator[Path]:
    if not isinstance(model, bytes):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        file.write_bytes(model)
        yield file
