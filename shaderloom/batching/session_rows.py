"""A session as batching sees it: its model, its declared sizes, and runs of a number of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cpu.provider import CpuEngine
from ..execution.engine import WgpuEngine
from ..model.header import ModelHeader
from ..runtime.execution.ports import Feed
from ..runtime.plan.size_range import SizeRange
from .claimed_rows import ClaimedRows
from .model_rows import ModelRows

if TYPE_CHECKING:
    from ..compiler.frontend.model import ImportedModel
    from ..compiler.options import Limits


#: Batches in flight on a GPU
_IN_FLIGHT = 2


class SessionRows:
    """The engines of a session and its ``run``, which gets checked feeds and the targets of outputs."""

    def __init__(
        self,
        header: ModelHeader,
        engine: WgpuEngine | None,
        cpu: CpuEngine | None,
        run: Callable[[dict[str, Feed], dict[str, Any]], dict[str, Any]],
    ) -> None:
        self.header = header
        self._engine, self._cpu, self._run = engine, cpu, run

    @property
    def declared_sizes(self) -> Mapping[str, SizeRange] | None:
        """The declared ranges of dimensions; None for a session that runs on cpu alone, which compiles nothing."""
        return None if self._engine is None else self._engine.source.dynamic

    @property
    def in_flight(self) -> int:
        """Return how many batches run at the same time.

        On a GPU one is joined and divided while another is computed.  A software device computes on the cores that
        would do so, and Mesa's loses some kilobytes with each run where several threads wait for runs.
        """
        is_gpu = self._engine is not None and self._engine.device.profile.kind != "cpu"
        return _IN_FLIGHT if is_gpu else 1

    @property
    def slots(self) -> float:
        """Return how many runs there may be at the same time, those in the threads of callers included."""
        return math.inf if self._engine is None else self.in_flight

    def rows(self, most: int) -> ModelRows | ClaimedRows:
        """Return what says which rows belong together, for batches of up to ``most`` rows.

        Raises :class:`UnsupportedError` where no input has rows, or a bundle does not say so.
        """
        engine = self._engine
        plans = None if engine is None else engine.source.batch_plans()
        if engine is None or plans is None:
            return ModelRows(self.header, most, self._import_model)
        return ClaimedRows(plans, engine.source.dynamic, most)

    def _import_model(self) -> tuple[ImportedModel, Limits]:
        """Return the parsed model and the limits of the compiler."""
        from ..compiler.options import DEFAULT_LIMITS

        if self._engine is None:
            assert self._cpu is not None, "a session has a provider"
            return self._cpu.import_model(), DEFAULT_LIMITS
        model = self._engine.model
        assert model is not None, "a bundle states what is proven of a model"
        return model.imported, model.limits

    def run(self, output_names: Sequence[str], feeds: dict[str, Any], *, own_plan: bool) -> list[np.ndarray]:
        """Run a batch, with outputs on the host; with ``own_plan`` by a plan for its number of rows alone."""
        if own_plan and self._engine is not None and self._engine.model is not None:
            self._engine.use_own_plan({name: array.shape for name, array in feeds.items()}, feeds)
        results = self._run(feeds, dict.fromkeys(output_names, "cpu"))
        return [results[name] for name in output_names]
