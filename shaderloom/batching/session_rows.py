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
from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.size_range import SizeRange

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

    def import_model(self) -> tuple[ImportedModel, Limits]:
        """Return the parsed model and the limits of the compiler; raise :class:`UnsupportedError` for a bundle."""
        from ..compiler.options import DEFAULT_LIMITS

        if self._engine is None:
            assert self._cpu is not None, "a session has a provider"
            return self._cpu.import_model(), DEFAULT_LIMITS
        model = self._engine.model
        if model is None:
            raise UnsupportedError(
                "a bundle does not hold the model's nodes, by which rows are proven independent",
                hint="open the model that it was compiled from",
            )
        return model.imported, model.limits

    def run(self, output_names: Sequence[str], feeds: dict[str, Any], *, own_plan: bool) -> list[np.ndarray]:
        """Run a batch, with outputs on the host; with ``own_plan`` by a plan for its number of rows alone."""
        if own_plan and self._engine is not None:
            self._engine.use_own_plan({name: array.shape for name, array in feeds.items()}, feeds)
        results = self._run(feeds, dict.fromkeys(output_names, "cpu"))
        return [results[name] for name in output_names]
