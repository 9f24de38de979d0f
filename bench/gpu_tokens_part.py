"""The part of the GPU benchmarks with texts: tokens of a decoder one after another, through all that generates them."""

from __future__ import annotations

import argparse
import math
import shutil
from typing import Any

from .chosen import chosen
from .gpu_turns import open_workers, take_turns
from .gpu_worker import BUILD

ROUNDS = 2
#: Workers by the names of the runtimes; PyTorch has none
WORKERS = {"shaderloom": "generator_shaderloom", "onnxruntime": "generator_onnxruntime"}
#: Largest difference of the logits behind the prompt from the other runtime's, over the largest: both round activations
TOLERANCE = 0.1


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and the decoders that gave no tokens, or other logits than onnxruntime."""
    from bench.decoders import DECODERS, write_folder

    names = [WORKERS[name] for name in arguments.workers.split(",") if name in WORKERS]
    results = []
    with open_workers(names, environment, {}) as workers:
        for decoder in chosen(arguments.models, DECODERS):
            folder = BUILD / "decoders" / decoder.name
            job = {"model": str(write_folder(decoder, folder)), "decoder": decoder.name}
            result = take_turns(decoder.name, job, workers, seconds=arguments.seconds, most=50, rounds=ROUNDS)
            compared = "generator_onnxruntime" in result["facts"]
            difference = result["differences"].get("generator_shaderloom", math.inf if compared else 0.0)
            result["correct"] = "generator_shaderloom" in result["facts"] and difference <= TOLERANCE
            results.append(result)
            shutil.rmtree(folder)  # gigabytes
        facts = {worker.name: worker.facts for worker in workers}
    return {"models": results, "runtimes": facts}, [item["model"] for item in results if not item["correct"]]
