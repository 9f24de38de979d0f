"""The part of the GPU benchmarks with decoders: a token behind contexts of several lengths, and prompts."""

from __future__ import annotations

import argparse
import math
import shutil
from typing import Any

from .chosen import chosen
from .gpu_turns import open_workers, take_turns
from .gpu_worker import BUILD

ROUNDS = 2
#: Largest difference of logits from onnxruntime's CPU provider, which rounds activations to 8 bits, over the largest
TOLERANCE = 0.1


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and the decoders whose logits are wrong or missing."""
    from bench.decoders import DECODERS, write_decoder

    names = [f"decoder_{name}" for name in arguments.workers.split(",")]
    results = []
    with open_workers(names, environment, {}) as workers:
        for decoder in chosen(arguments.models, DECODERS):
            folder = BUILD / "decoders" / decoder.name
            job = {"model": str(write_decoder(decoder, folder)), "decoder": decoder.name}
            result = take_turns(decoder.name, job, workers, seconds=arguments.seconds, most=200, rounds=ROUNDS)
            result["correct"] = result["differences"].get("decoder_shaderloom", math.inf) <= TOLERANCE
            results.append(result)
            shutil.rmtree(folder)  # gigabytes
        facts = {worker.name: worker.facts for worker in workers}
    return {"models": results, "runtimes": facts}, [item["model"] for item in results if not item["correct"]]
