"""Tuning on first use: configurations of kernels are measured when a session compiles for new shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..measurements.device_records import DeviceRecords, driver_of
from ..notices import notify
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import ShaderloomError
from ..runtime.plan.plan import Plan
from .compiled import Progress
from .feeds import Ranges, ShapeKey


class Tune(Protocol):
    """Measures the configurations of one model's kernels; see :func:`shaderloom.tuner.parent.tune`."""

    def __call__(
        self,
        model: str | os.PathLike[str] | bytes,
        shapes: Mapping[str, Sequence[int]],
        *,
        adapter: str,
        driver: str,
        dynamic: Ranges,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> bool:
        """Tune the model; return whether anything was measured.  Raises :class:`ShaderloomError` if tuning fails."""
        ...


class SelfTuner:
    """Tunes the problems of a model's plans, once for each shape key; ``records`` receive what was measured."""

    def __init__(self, tune: Tune, records: DeviceRecords) -> None:
        self._tune = tune
        self._records = records
        self._tuned: set[ShapeKey] = set()

    def is_due(self, key: ShapeKey, plan: Plan) -> bool:
        """Return whether the plan of a key has problems that were never measured; True once for each key."""
        if key in self._tuned or not any(decision.is_unmeasured for decision in plan.facts.decisions):
            return False
        self._tuned.add(key)
        return True

    def measure(
        self,
        model: os.PathLike[str] | bytes,
        shapes: Mapping[str, tuple[int, ...]],
        profile: DeviceProfile,
        *,
        dynamic: Ranges,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> bool:
        """Tune the problems of the plan for ``shapes``; return whether anything was measured.

        Failures are reported, not raised.
        """
        try:
            measured = self._tune(
                model,
                shapes,
                adapter=profile.adapter,
                driver=driver_of(profile),
                dynamic=dynamic,
                options=options,
                progress=progress,
            )
        except ShaderloomError as error:
            notify(f"tuning failed: {error}", once=f"tune {error.reason}")
            return False
        self._records.reload()
        return measured
