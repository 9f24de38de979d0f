"""The part of the GPU benchmarks with whole models in float32, single kernels, and starts of processes."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .chosen import chosen
from .gpu_turns import open_workers, take_turns
from .gpu_worker import BUILD

if TYPE_CHECKING:
    from .gpu_models import GpuModel

ROUNDS = 3
#: Runtimes whose starts are measured, and their workers; rounds of them, and later runs of each process
STARTED = {"shaderloom": "shaderloom_session", "onnxruntime": "onnxruntime_plugin"}
START_ROUNDS = 5
RUNS = 40
#: Largest difference from onnxruntime's CPU provider, in relation to the largest output, that counts as correct
TOLERANCE = 1e-3


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and the models whose outputs are wrong or missing."""
    measured = measure_models(_chosen(arguments), TOLERANCE, arguments, environment)
    if not arguments.no_kernels:
        measured["kernels"] = _measure_kernels(environment)
    if not arguments.no_starts:
        measured["starts"] = _measure_starts(arguments, environment)
    return measured, [item["model"] for item in measured["models"] if not item["correct"]]


def measure_models(
    models: Iterable[GpuModel],
    tolerance: float,
    arguments: argparse.Namespace,
    environment: dict[str, str],
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure models on every runtime in turns; ``tolerance`` is that of outputs, in relation to the largest.

    ``names`` are the workers, by default those of the runtimes that the command line names.
    """
    import numpy as np

    from bench.gpu_models import fill, fill_float32

    names = names or [f"gpu_{name}" for name in arguments.workers.split(",")]
    options = {"gpu_shaderloom": ["--profile"] if arguments.profile else []}
    results = []
    with open_workers(names, environment, options) as workers:
        for model in models:
            path = fill(model, BUILD / "gpu-models")
            np.savez(BUILD / "inputs.npz", **model.feeds())
            job = {"model": str(path), "torch": model.torch, "inputs": str(BUILD / "inputs.npz")}
            job["float32"] = str(fill_float32(model, BUILD / "gpu-models"))
            result = take_turns(model.name, job, workers, seconds=arguments.seconds, most=400, rounds=ROUNDS)
            ours = next((name for name in names if name.startswith("gpu_shaderloom")), "")
            result["correct"] = result["differences"].get(ours, math.inf) <= tolerance or (
                not any(name.startswith("gpu_onnxruntime") for name in names) or not ours
            )
            _refuse_early_returns(result)
            results.append(result)
        facts = {worker.name: worker.facts for worker in workers}
    return {"models": results, "runtimes": facts}


def _chosen(arguments: argparse.Namespace) -> list[GpuModel]:
    """Return the models that the command line names, or all."""
    from bench.gpu_models import GPU_MODELS

    return chosen(arguments.models, GPU_MODELS)


def _measure_starts(arguments: argparse.Namespace, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the starts of each model, medians of rounds in turns; of those that differ in a batch only the first."""
    import numpy as np

    from bench.gpu_models import fill
    from bench.starts import output_names, start_in_turns
    from bench.workers.protocol import Job

    results = []
    inputs, outputs = BUILD / "inputs.npz", BUILD / "start.npz"
    for model in {model.skeleton: model for model in reversed(_chosen(arguments))}.values():
        np.savez(inputs, **model.feeds())
        path = fill(model, BUILD / "gpu-models")
        job = json.dumps(asdict(Job(str(path), str(inputs), str(outputs), output_names(path), str(path))))
        commands = {
            runtime: [sys.executable, "-m", f"bench.workers.{worker}", job] for runtime, worker in STARTED.items()
        }
        starts = start_in_turns(commands, environment, runs=RUNS, rounds=START_ROUNDS)
        print(model.name, json.dumps(starts), file=sys.stderr, flush=True)
        results.append({"model": model.name, "starts": starts})
    return results[::-1]


def _refuse_early_returns(result: dict[str, Any]) -> None:
    """Times of runs that were not waited for are none: many runs to the last byte cannot take much longer a run."""
    settled = result["summary"].pop("gpu_shaderloom/settled", {}).get("median", 0.0)
    settled /= result["facts"].get("gpu_shaderloom", {}).get("settled_runs", 1)
    result["facts"].get("gpu_shaderloom", {})["settled_ms"] = settled
    summary = result["summary"].get("gpu_shaderloom/device")
    if summary and summary["median"] < 0.6 * settled:
        result["errors"]["gpu_shaderloom/device"] = (
            f"runs return before the device has finished: {summary['median']:.3f} ms each, {settled:.3f} ms to the end"
        )
        result["correct"] = False
        del result["summary"]["gpu_shaderloom/device"]


def _measure_kernels(environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.gpu_kernels"]
    done = subprocess.run(command, cwd=BUILD, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip()[-1000:]}
    return json.loads(done.stdout.splitlines()[-1])
