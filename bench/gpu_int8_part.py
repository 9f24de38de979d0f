"""The part of the GPU benchmarks with models of 8 bits, each beside the float32 model that it was made of."""

from __future__ import annotations

import argparse
from typing import Any

from .chosen import chosen
from .gpu_models_part import measure_models

#: Largest difference from onnxruntime's CPU provider, over the largest output: numbers half way between two steps of a
#: quantised tensor become either, in every layer
TOLERANCE = 0.05


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and the models whose outputs are wrong or missing."""
    from bench.gpu_models import INT8_MODELS

    models = chosen(arguments.models, INT8_MODELS)
    sources = {(model.skeleton, model.batch) for model in models}
    beside = [
        model
        for model in INT8_MODELS.values()
        if model in models or (not model.quantised and (model.skeleton, model.batch) in sources)
    ]
    measured = measure_models(beside, TOLERANCE, arguments, environment)
    return measured, [item["model"] for item in measured["models"] if not item["correct"]]
