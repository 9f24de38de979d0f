"""Models measured in turns: each worker opens a model, they take turns at timing it, and outputs are compared."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .gpu_worker import BUILD, GpuWorker


@contextmanager
def open_workers(
    names: Sequence[str], environment: dict[str, str], options: Mapping[str, Sequence[str]]
) -> Iterator[list[GpuWorker]]:
    """Start workers, modules of ``bench.workers``, and end them; Shaderloom's must start."""
    BUILD.mkdir(parents=True, exist_ok=True)
    workers = [GpuWorker(name, environment, *options.get(name, ())) for name in names]
    try:
        for worker in workers:
            print(worker.name, json.dumps(worker.facts), file=sys.stderr, flush=True)
            if worker.name.endswith("_shaderloom") and "error" in worker.facts:
                raise SystemExit(f"Shaderloom does not start; see {worker.log.name}")
        yield workers
    finally:
        for worker in workers:
            worker.end()


def take_turns(
    name: str, job: Mapping[str, Any], workers: Sequence[GpuWorker], *, seconds: float, most: int, rounds: int
) -> dict[str, Any]:
    """Measure one model: each mode of each worker for ``seconds`` or ``most`` runs in each of ``rounds``.

    Returns the summaries of times by worker and mode, errors, facts, and differences of outputs from the reference that
    a worker wrote.
    """
    print(name, file=sys.stderr, flush=True)
    began = time.perf_counter()
    result: dict[str, Any] = {"model": name, "errors": {}, "differences": {}, "facts": {}}
    times: dict[str, list[float]] = {}
    opened: dict[str, dict[str, Any]] = {}
    reference = BUILD / "reference.npz"
    reference.unlink(missing_ok=True)
    for worker in workers:
        answer = worker.ask(do="open", **job, outputs=str(BUILD / f"{worker.name}.npz"), reference=str(reference))
        opened[worker.name] = answer
        print(f"  {worker.name} {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        if "error" in answer:
            result["errors"][worker.name] = answer["error"]
        else:
            result["facts"][worker.name] = {**answer["facts"], "first_s": answer["first_s"]}
    for _ in range(rounds):
        for worker in workers:
            for mode in opened[worker.name].get("modes", []):
                timed = worker.ask(do="time", mode=mode, seconds=seconds, most=most)
                if "ms" in timed:
                    times.setdefault(f"{worker.name}/{mode}", []).extend(timed["ms"])
                else:
                    result["errors"][f"{worker.name}/{mode}"] = timed["error"]
    for worker in workers:
        if opened[worker.name].get("compared") and reference.is_file():
            result["differences"][worker.name] = difference(BUILD / f"{worker.name}.npz", reference)
        worker.ask(do="close")
    result["summary"] = {
        key: {"median": statistics.median(each), "least": min(each), "most": max(each), "runs": len(each)}
        for key, each in times.items()
    }
    print(json.dumps({key: item for key, item in result.items() if key != "facts"}), file=sys.stderr, flush=True)
    return result


def difference(ours: Path, theirs: Path) -> float:
    """Largest difference over the largest result, of the worst output; infinite for NaN and for missing outputs."""
    import numpy as np

    worst = 0.0
    with np.load(ours) as mine, np.load(theirs) as reference:
        if len(mine.files) != len(reference.files):
            return math.inf
        for name in mine.files:
            got, wanted = mine[name].astype(np.float64), reference[name].astype(np.float64)
            if got.shape != wanted.shape or not np.isfinite(got).all():
                return math.inf
            worst = max(worst, float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30)))
    return worst
