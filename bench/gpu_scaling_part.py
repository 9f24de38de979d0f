"""The part of the GPU benchmarks with pools of one GPU and of several, for a machine that has these."""

from __future__ import annotations

import argparse
from typing import Any

from .gpu_many_part import measure_many


def measure(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return what was measured, and what is wrong: with the GPUs that were used, too."""
    return measure_many(arguments, environment, ["many_shaderloom"], ["--gpus"])
