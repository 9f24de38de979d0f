"""What a program reaches: its stages in full precision, on the inputs of a run, in every step of its loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..calibration import measure

if TYPE_CHECKING:
    from .interpreter import Program
    from .steps import DeviceStep


def measure_program(program: Program, feeds: Mapping[str, Any]) -> dict[str, float]:
    """The largest magnitudes of what the kernels of all stages write, by ONNX node; see :func:`~..calibration.measure`.

    The float32 weights are on the device while it runs.
    """
    found: dict[str, float] = {}
    engine = program.engine
    pool = engine.weights()
    reference = type(program)(program.source, engine, program.cpu, pool=pool)

    def look(step: DeviceStep, given: Mapping[str, Any]) -> None:
        for node, magnitude in measure(engine.device, step.executor.plan, pool, given).items():
            found[node] = max(found.get(node, 0.0), magnitude)

    try:
        reference.observe(feeds, look)
    finally:
        reference.close()
        pool.close()
    return found
