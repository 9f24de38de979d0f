"""Magnitudes that a program's plans reach in full precision, on the inputs of a run, over every step of its loops."""

from __future__ import annotations

from typing import Any

from ..model.calibration import measure
from ..runtime.execution.weight_pool import WeightPool
from .steps import Observer, PlanStep


class RangeObserver(Observer):
    """Collects the largest magnitude that the kernels of all plans write, by ONNX node.

    See :func:`~.calibration.measure`.  ``pool`` has the weights of the observed program.
    """

    def __init__(self, pool: WeightPool) -> None:
        self.magnitudes: dict[str, float] = {}
        self._pool = pool

    def before_plan(self, step: PlanStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        for node, magnitude in measure(step.device, step.executor.plan, self._pool, feeds).items():
            self.magnitudes[node] = max(self.magnitudes.get(node, 0.0), magnitude)
