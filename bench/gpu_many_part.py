"""The part of the GPU benchmarks with many inputs: pictures a second of loops and of a pool of one GPU."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .chosen import chosen
from .gpu_turns import open_workers, take_turns
from .gpu_worker import BUILD

ROUNDS = 3
#: Largest difference from onnxruntime's CPU provider, in relation to the largest output, that counts as correct
TOLERANCE = 1e-3
#: Rows of a batch, and the pictures that all ways take, again and again
BATCH, PICTURES = 32, 256
MODELS = ("resnet50", "mobilenet_v2")
#: Runtimes of the command line -> their workers
WORKERS = {"shaderloom": "many_shaderloom", "onnxruntime": "many_onnxruntime", "torch": "many_torch"}


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and the models whose outputs are wrong or missing, or whose GPUs are mistaken."""
    return measure_many(arguments, environment, [WORKERS[name] for name in arguments.workers.split(",")], [])


def measure_many(
    arguments: argparse.Namespace, environment: dict[str, str], names: Sequence[str], options: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return what workers measured, and what is wrong; ``options`` are those of the worker of Shaderloom."""
    import numpy as np

    inputs = BUILD / "inputs.npz"
    BUILD.mkdir(parents=True, exist_ok=True)
    np.savez(inputs, input=np.random.default_rng(0).standard_normal((PICTURES, 3, 224, 224), dtype=np.float32))
    results, wrong = [], []
    with open_workers(names, environment, {"many_shaderloom": options}) as workers:
        for name in chosen(arguments.models, {name: name for name in MODELS}):
            job = {"model": str(open_model(name)), "torch": name, "inputs": str(inputs), "batch": BATCH}
            result = take_turns(name, job, workers, seconds=arguments.seconds, most=100, rounds=ROUNDS)
            result["rates"] = _rates(result)
            results.append(result)
            facts = result["facts"].get("many_shaderloom", {})
            if "many_onnxruntime" in names and not result["differences"].get("many_shaderloom", math.inf) <= TOLERANCE:
                wrong.append(name)
            if not facts.get("right_cards", True):
                wrong.append(f"{name}: the memory of other cards grew than those of the pool")
        runtimes = {worker.name: worker.facts for worker in workers}
    return {"models": results, "runtimes": runtimes}, wrong


def open_model(name: str) -> Path:
    """Return the file of a model with weights and an open batch."""
    from bench.gpu_models import GPU_MODELS, fill

    path = BUILD / "gpu-models" / f"{name}-open.onnx"
    if not path.is_file():
        import onnx

        proto = onnx.load(fill(GPU_MODELS[name], path.parent))
        del proto.graph.value_info[:]
        for port in (*proto.graph.input, *proto.graph.output):
            port.type.tensor_type.shape.dim[0].dim_param = "batch"
        partial = path.with_suffix(".partial")
        onnx.save(proto, partial)
        partial.rename(path)
    return path


def _rates(result: dict[str, Any]) -> dict[str, float]:
    """Return pictures a second of each way, by worker and mode, of the median time."""
    rates = {}
    for key, summary in result["summary"].items():
        worker, _, mode = key.partition("/")
        rates[key] = result["facts"][worker]["pictures"][mode] / summary["median"] * 1e3
    return rates
