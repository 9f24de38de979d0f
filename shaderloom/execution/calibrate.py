"""Calibration of a model with halves: magnitudes that its tensors reach in runs in full precision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..model.calibration import Calibration, measure
from ..model.compiled import CompiledPlan
from ..model.feeds import ShapeKey
from ..model.random_inputs import random_feeds
from ..runtime.execution.ports import Feed
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import InputError
from .resources import DeviceResources
from .steps import Observer, PlanStep, RunRecord, host_targets

if TYPE_CHECKING:
    from ..model.model import Model


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


class Calibrator:
    """Measures the magnitudes that a model's plans depend on, and compiles plans by them.

    Not thread-safe: the engine's lock guards it.
    """

    def __init__(self, model: Model, calibration: Calibration, resources: DeviceResources) -> None:
        self.is_assumed = False  #: a plan is based on random inputs, until a run has real ones
        self.half = calibration.half  #: the model is in half precision; else it may declare float16 itself
        self._model = model
        self._calibration = calibration
        self._resources = resources

    def compile(
        self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None
    ) -> CompiledPlan:
        """Return the plan of a key by the magnitudes recorded so far.

        In half precision what they do not cover is measured first.
        """
        compile_plan = partial(
            self._model.compile, key, shapes, self._resources.device.profile, self._resources.add_kernel
        )
        if not self.half:
            return compile_plan()
        start = time.perf_counter()
        if self._calibration.is_new:
            self._record(self.measure_plan(shapes, feeds, key), assumed=feeds is None)
        compiled = compile_plan()
        precision = compiled.plan.facts.precision
        assert precision is not None, "the plan is in half precision"
        if not self._calibration.covers(precision.measured):
            self._record(self.measure_plan(shapes, feeds, key), assumed=feeds is None)
            compiled = compile_plan()
        return replace(compiled, milliseconds=(time.perf_counter() - start) * 1e3)

    def renew(self, measure_run: Callable[[], Mapping[str, float]]) -> bool:
        """Record the magnitudes of a run on real inputs and forget those of random ones.

        Return whether plans that were compiled before may need other types.
        """
        before = self._model.options.current
        self.is_assumed = False
        self._calibration.forget_assumed()
        self._record(measure_run(), assumed=False)
        self._model.remember_ranges()
        return self._model.options.current != before

    def _record(self, magnitudes: Mapping[str, float], *, assumed: bool) -> None:
        """Add the magnitudes of a run; ``assumed``: its inputs were random."""
        self._calibration.add(magnitudes, assumed=assumed)
        self.is_assumed = self.is_assumed or assumed

    def measure_plan(
        self, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None, key: ShapeKey | None = None
    ) -> dict[str, float]:
        """Run the plan in full precision once, on random inputs without ``feeds``, and return its magnitudes.

        With a ``key`` it is the plan of that key, of which ``shapes`` are one instance.
        """
        key = key or self._model.key(shapes)
        device = self._resources.device
        plan = self._model.compile_reference(key, shapes, device.profile).plan
        if not self.half and not plan.facts.declares_halves:
            raise nothing_to_calibrate()
        if feeds is None:
            arrays = random_feeds(self._model.header, shapes)
        else:
            arrays = {name: feed.numpy() if isinstance(feed, Tensor) else feed for name, feed in feeds.items()}
        with self._weights() as pool:
            return measure(device, plan, pool, arrays)

    @contextmanager
    def _weights(self) -> Iterator[WeightPool]:
        """Yield the weights of a run that is measured: in half precision others than those of later plans."""
        if not self.half:
            yield self._resources.pool
            return
        pool = self._resources.weights()
        try:
            yield pool
        finally:
            pool.close()

    def measure_steps(self, feeds: Mapping[str, Feed], cpu_options: Mapping[str, Any] | None) -> dict[str, float]:
        """Run the program in full precision once and return its magnitudes."""
        from .program import Program

        with self._weights() as pool:
            reference = Program(self._model, self._resources, cpu_options, pool=pool)
            ranges = RangeObserver(pool)
            try:
                reference.run(feeds, host_targets(self._model.header), RunRecord(observer=ranges))
                if not self.half and not any(plan.facts.declares_halves for plan in reference.plans()):
                    raise nothing_to_calibrate()
            finally:
                reference.close()
        return ranges.magnitudes


def nothing_to_calibrate() -> InputError:
    """Return the error for a session whose plans depend on no calibration."""
    return InputError(
        "the session has no precision to calibrate: the model declares no tensor float16, or widen is 'off'",
        hint="set SessionOptions.precision = 'float16'",
    )
