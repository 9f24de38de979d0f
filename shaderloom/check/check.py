"""Compare what a model's kernels compute with a reference: outputs, and tensors inside the graph.

What is checked is what runs: the same plans, kernels, fusion and memory.  Where a tensor differs, :mod:`.diagnosis`
looks for the cause.  A model in stages is followed through one run (:mod:`.stage_check`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..plans.instrument import Observation
from ..runtime.execution.executor import Executor
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.plan.caps import Caps, MemoryAccount
from ..runtime.plan.errors import DeviceLimitError, ShapeError, UnsupportedError
from .expectations import Expectations
from .index_check import IndexCheck, IndexFault
from .onnx_model import OnnxModel
from .plan_check import PlanCheck, Row, Watch
from .references import Reference

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering
    from ..model.model import Model
    from ..runtime.device.device import Device
    from .diagnosis import Diagnosis

Feeds = Mapping[str, np.ndarray]

#: Largest error over largest magnitude of a float32 model's tensors in half precision
HALF_TOLERANCE = 2e-2


@dataclass
class CheckResult:
    """``rows`` in the order of the run; ``outputs`` are the names of the model's outputs among them."""

    against: str
    device: str
    rows: list[Row] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    skipped: list[str] = field(default_factory=list)  #: outputs that the reference does not know
    #: nested graphs whose tensors the reference does not know, and why
    unknown: dict[str, str] = field(default_factory=dict)
    indices: list[IndexFault] = field(default_factory=list)  #: that are out of range
    watches: list[Watch] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    stages: int | None = None  #: plans of a model in stages; None of one that is one plan
    on_cpu: int = 0  #: nodes that the cpu provider ran

    @property
    def differing(self) -> list[Row]:
        return [row for row in self.rows if not row.difference.is_close]

    @property
    def is_close(self) -> bool:
        """Whether all that was compared agrees, and no index is wrong; not if there was nothing to compare with."""
        return not (self.differing or self.is_blind or any(fault.is_error for fault in self.indices))

    @property
    def is_blind(self) -> bool:
        """Whether the reference knows no tensor that was made."""
        return bool(self.skipped) and not self.rows


class Checker:
    """One model on one device with one set of inputs.  Close it, or use it in ``with``."""

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
        """A model in half precision is calibrated with ``calibration``, or as a session with ``feeds``.

        Nodes that wgpu refuses run on the cpu if the model was opened with ``keep_refused``.
        """
        self.model, self.source, self.reference = model, source, reference
        self.device, self.feeds = device, feeds
        if tolerance is None and model.calibration is not None:
            tolerance = HALF_TOLERANCE
        self.calibration_feeds = feeds if calibration is None else calibration
        self.progress = model.progress
        self.pool = WeightPool(device, model.sources, MemoryAccount(Caps().device_memory))
        self.expected = Expectations(source, reference, feeds, tolerance, self.progress)

    def close(self) -> None:
        self.pool.close()

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile(self, disabled: Collection[str] = ()) -> Lowering:
        """Compile for the inputs, with further passes disabled.

        Raises :class:`UnsupportedError` or :class:`ShapeError` for a model that is no single plan.
        """
        from ..compiler.driver import compile_unit

        if self.model.calibration is not None and self.model.calibration.is_new:
            self._calibrate()
        self.progress("compiling", 0, 0)
        unit = self.model.unit({name: array.shape for name, array in self.feeds.items()})
        return compile_unit(unit, self.model.compilation(self.device.profile).without(disabled))

    def _calibrate(self) -> None:
        from ..model.calibration import measure
        from ..model.feeds import shape_key

        assert self.model.calibration is not None, "the model is in half precision"
        self.progress("calibrating", 0, 0)
        feeds = self.calibration_feeds
        shapes = {name: array.shape for name, array in feeds.items()}
        key = shape_key(self.model.header, shapes, self.model.dynamic)
        plan = self.model.compile_reference(key, shapes, self.device.profile).plan
        self.model.calibration.add(measure(self.device, plan, self.pool, feeds))

    def run(self, *, per_node: bool) -> CheckResult:
        """Compare the outputs; with ``per_node``, or if an output differs, also the tensors inside the graph."""
        result = CheckResult(self.reference.name, self.device.name, outputs=tuple(self.source.outputs))
        self._check_indices(result)
        try:
            compiled = self.compile()
        except (UnsupportedError, ShapeError, DeviceLimitError):  # it runs in stages, if it runs at all
            from .stage_check import StageChecker

            StageChecker(self, result).run(per_node=per_node)
        else:
            self._check_plan(compiled, result, per_node)
        result.unknown = self.expected.unknown
        return result

    def _check_indices(self, result: CheckResult) -> None:
        check = IndexCheck(self.model.imported, self.source, self.reference, self.feeds)
        result.indices = check.run()
        self.expected.leave_out(check.undefined)

    def _check_plan(self, compiled: Lowering, result: CheckResult, per_node: bool) -> None:
        plan = compiled.plan
        check = PlanCheck(
            self.device,
            self.pool,
            self.expected,
            plan,
            self.feeds,
            lambda disabled: self.compile(disabled) if disabled else compiled,
        )
        self.progress("running", 0, 0)
        with Executor(self.device, plan, self.pool, poison=True) as executor:
            outputs = executor.run(self.feeds)
        self.expected.expect(outputs)
        known = [name for name in outputs if self.expected.knows(name)]
        rows = [check.row(name, outputs[name], check.call_of(name)) for name in known]
        result.skipped = [name for name in outputs if name not in known]
        observed: dict[int, Observation] = {}
        if per_node or any(not row.difference.is_close for row in rows):
            inside, observed = check.inside(row.key for row in rows)
            # in the order of the run; what no kernel computes comes first
            rows = sorted([*inside, *rows], key=lambda row: (-1 if row.call is None else row.call, row.tensor))
        result.rows = rows
        result.watches = check.watch(observed)
        if result.differing:
            from .diagnosis import Diagnostician

            good = {row.key for row in rows if row.difference.is_close}
            result.diagnosis = Diagnostician(check, good, observed).run(result.differing[0])
