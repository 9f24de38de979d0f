"""Magnitudes observed in a float32 run, which decide which values do not fit half precision.

The float32 plan of the same shapes runs on the caller's inputs, and the largest finite magnitude of every tensor that
its kernels write is kept, by the ONNX node whose result the tensor is.  The plan in half precision has the same kernels
and the same tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plans.instrument import observe
from ..runtime.plan.dtypes import fits_float16
from ..runtime.plan.plan import Plan

if TYPE_CHECKING:
    from ..runtime.device.device import Device
    from ..runtime.execution.weight_pool import WeightPool


class Calibration:
    """Largest magnitudes by ONNX node (as text), over all observed runs.

    A model in half precision is calibrated before its first plan.  One that declares float16 itself is calibrated after
    a run whose outputs are not finite, if at all (:mod:`..execution.overflow`).
    """

    def __init__(self, *, half: bool = True) -> None:
        self.half = half  #: the model is in half precision
        self.reached: dict[str, float] = {}
        self.is_new = True  #: nothing was measured yet
        self._assumed: dict[str, float] = {}  #: from random inputs: discarded when real ones arrive

    @property
    def is_due(self) -> bool:
        """Whether a plan needs a run to be measured first."""
        return self.half and self.is_new

    def covers(self, nodes: Iterable[str]) -> bool:
        """Return whether a magnitude is recorded for every node."""
        return all(node in self.reached or node in self._assumed for node in nodes)

    def add(self, magnitudes: Mapping[str, float], *, assumed: bool = False) -> None:
        """Merge the magnitudes of a run.  ``assumed``: its inputs were random."""
        self.is_new = False
        recorded = self._assumed if assumed else self.reached
        for node, magnitude in magnitudes.items():
            recorded[node] = max(recorded.get(node, 0.0), magnitude)

    def forget_assumed(self) -> None:
        self._assumed.clear()

    def option(self) -> list[list[Any]]:
        """Return the values out of float16's range for ``CompileOptions.reached``, rounded to two digits.

        Values of few bits count in half precision alone: what a file declares float16 has those bits.
        """
        merged = {**self._assumed, **self.reached}
        beyond = {node: reached for node, reached in merged.items() if not fits_float16(reached)}
        return [[node, float(f"{beyond[node]:.2g}")] for node in sorted(beyond) if self.half or beyond[node] > 1.0]


def magnitude(array: np.ndarray) -> float:
    """Return the largest finite magnitude; infinities and NaN are equal in every precision and ignored."""
    finite = np.abs(array[np.isfinite(array)]) if array.size else array
    return float(finite.max(initial=0.0))


def measure(device: Device, plan: Plan, pool: WeightPool, feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Run a float32 plan and return the largest magnitude that its calls write, by ONNX node."""
    calls = [number for number in range(len(plan.calls)) if plan.facts.result(number).dtype == "float32"]
    magnitudes: dict[str, float] = {}
    for seen in observe(device, plan, pool, feeds, calls):
        node = seen.tensor.node
        magnitudes[node] = max(magnitudes.get(node, 0.0), magnitude(seen.array))
    return magnitudes
