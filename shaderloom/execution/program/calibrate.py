"""What a program reaches: its stages in full precision, on the inputs of a run, in every step of its loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...model.calibration import measure
from .steps import DeviceStep, Observer

if TYPE_CHECKING:
    from ...runtime.execution.weight_pool import WeightPool
    from .interpreter import Program


def measure_program(program: Program, feeds: Mapping[str, Any]) -> dict[str, float]:
    """The largest magnitudes of what the kernels of all stages write, by ONNX node; see :func:`~.calibration.measure`.

    The float32 weights are on the device while it runs.
    """
    engine = program.engine
    pool = engine.weights()
    reference = type(program)(program.source, engine, program.cpu, pool=pool)
    measuring = _Measuring(pool)
    try:
        reference.observe(feeds, measuring)
    finally:
        reference.close()
        pool.close()
    return measuring.found


class _Measuring(Observer):
    """Keeps the largest magnitude of each node."""

    def __init__(self, pool: WeightPool) -> None:
        self.found: dict[str, float] = {}
        self._pool = pool

    def before_plan(self, step: DeviceStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        for node, magnitude in measure(step.device, step.executor.plan, self._pool, feeds).items():
            self.found[node] = max(self.found.get(node, 0.0), magnitude)
