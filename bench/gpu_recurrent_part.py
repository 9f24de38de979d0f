"""The part of the GPU benchmarks with recurrent layers, in float32 and with weights of 8 bits."""

from __future__ import annotations

import argparse
from typing import Any

from .chosen import chosen
from .gpu_models_part import measure_models

#: Largest difference from onnxruntime's CPU provider, over the largest output: it rounds activations to 8 bits with
#: weights of 8 bits, and a step adds to the difference of the one before
TOLERANCE = 0.05
#: Runtimes of the command line -> their workers; onnxruntime's WebGPU has no recurrent layers
WORKERS = {"shaderloom": "gpu_shaderloom", "onnxruntime": "gpu_onnxruntime_cpu", "torch": "gpu_torch"}


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and the models whose outputs are wrong or missing."""
    from bench.gpu_models import RECURRENT_MODELS

    names = [WORKERS[name] for name in arguments.workers.split(",")]
    models = chosen(arguments.models, RECURRENT_MODELS)
    measured = measure_models(models, TOLERANCE, arguments, environment, names)
    return measured, [item["model"] for item in measured["models"] if not item["correct"]]
