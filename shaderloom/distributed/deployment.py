"""A server of a model under Ray Serve: requests are joined by ``@serve.batch``, replicas scale with their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from ray import serve

from ..runtime.plan.errors import DeviceLost
from .predictor import Predictor


@serve.deployment(
    max_ongoing_requests=128, autoscaling_config={"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 32}
)
class Deployment:
    """Answers ``{"input": [...]}``, one row of each input, with the outputs as lists.

    ``Deployment.bind("model.onnx")`` is an application; ``Deployment.options(...)`` changes replicas and resources.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self._predictor = Predictor(model, **options)
        self._names = [port.name for port in self._predictor.session.get_outputs()]

    def check_health(self) -> None:
        """Raise :class:`DeviceLost` for a replica whose device is lost: Ray starts another one."""
        session = self._predictor.session
        if "wgpu" in session.get_providers() and session.device.check_lost():
            raise DeviceLost("the device of the replica is lost")

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)  # type: ignore[untyped-decorator]
    async def predict(self, rows: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the outputs of a row; Ray gathers the rows of several callers."""
        batch = {name: [np.asarray(row[name]) for row in rows] for name in rows[0]}
        outputs = self._predictor(batch)
        return [{name: outputs[name][row] for name in self._names} for row in range(len(rows))]

    async def __call__(self, request: Any) -> dict[str, Any]:
        """Answer a request in JSON."""
        outputs = await self.predict(await request.json())
        return {name: array.tolist() for name, array in outputs.items()}
