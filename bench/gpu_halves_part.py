"""The part of the GPU benchmarks with halves: files and ``precision="float16"``, each beside the float32 model."""

from __future__ import annotations

import argparse
from typing import Any

from .chosen import chosen
from .gpu_models_part import measure_models

#: Largest difference from onnxruntime's CPU provider on the same file, over the largest output: that computes most
#: operators in float32, between casts
TOLERANCE = 0.02
#: Runtimes of the command line -> their workers; PyTorch's modules are float32
WORKERS = {"shaderloom": "gpu_shaderloom_halves", "onnxruntime": "gpu_onnxruntime"}


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and the models whose outputs are wrong or missing."""
    from bench.gpu_models import HALF_MODELS

    names = [WORKERS[name] for name in arguments.workers.split(",") if name in WORKERS]
    models = chosen(arguments.models, HALF_MODELS)
    measured = measure_models(models, TOLERANCE, arguments, environment, names)
    return measured, [item["model"] for item in measured["models"] if not item["correct"]]
