"""Compare what a model's kernels compute with a reference: outputs, and tensors inside the graph.

The check covers exactly what a run executes: the same steps, plans, kernels, fusion and memory.  Where a tensor
differs, :mod:`.diagnosis` searches for the cause.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..cpu.provider import CpuEngine
from ..execution.engine import WgpuEngine
from ..model.model import Model
from ..runtime.device.device import Device
from .expectations import Expectations
from .index_check import IndexCheck
from .onnx_model import OnnxModel
from .references import Reference
from .run_check import CheckResult, RunChecker

Feeds = Mapping[str, np.ndarray]

#: Largest error over largest magnitude of a float32 model's tensors in half precision
HALF_TOLERANCE = 2e-2


class Checker:
    """Checks one model on one device with one set of inputs.  Close it, or use it in ``with``."""

    def __init__(
        self,
        model: Model,
        source: OnnxModel,
        reference: Reference,
        device: Device,
        feeds: Feeds,
        *,
        tolerance: float | None = None,
        calibration: Feeds | None = None,
    ) -> None:
        """Prepare the check; a half-precision model is calibrated on ``calibration``, by default on ``feeds`` as in a
        session.

        Nodes that wgpu refuses run on the cpu if the model was opened with ``keep_refused``.
        """
        self.model, self.source, self.reference = model, source, reference
        self.device, self.feeds = device, feeds
        if tolerance is None and model.options.half and model.calibration is not None:
            tolerance = HALF_TOLERANCE
        self.calibration_feeds = feeds if calibration is None else calibration
        self.progress = model.progress
        cpu = CpuEngine(*model.file)
        self.engine = WgpuEngine(model, device, cpu_options=cpu.options, poison=True)
        self.expected = Expectations(source, reference, feeds, tolerance, self.progress)

    def close(self) -> None:
        """Free everything on the device."""
        self.engine.close()

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *, per_node: bool) -> CheckResult:
        """Compare the outputs; with ``per_node``, or if an output differs, also the tensors inside the graph."""
        result = CheckResult(self.reference.name, self.device.name, outputs=tuple(self.source.outputs))
        check = IndexCheck(self.model.imported, self.source, self.reference, self.feeds)
        result.indices = check.run()
        self.expected.leave_out(check.undefined)
        if self.model.calibration is not None and self.model.calibration.is_due:
            self.progress("calibrating", 0, 0)
            self.engine.calibrate(self.calibration_feeds)
        RunChecker(self.engine, self.expected, self.feeds, result).run(per_node=per_node)
        result.unknown = self.expected.unknown
        return result
