"""A server of a model under Ray Serve: requests are joined by ``@serve.batch``, replicas scale with their number."""

from __future__ import annotations

from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..runtime.plan.errors import DeviceLost, InputError
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

    def check_health(self) -> None:
        """Raise :class:`DeviceLost` for a replica whose device is lost: Ray starts another one."""
        session = self._predictor.session
        if "wgpu" in session.get_providers() and session.device.check_lost():
            raise DeviceLost("the device of the replica is lost")

    async def predict(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a row.  Raises :class:`InputError` for one that does not fit the model."""
        outcome = await self._outcomes(row)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)  # type: ignore[untyped-decorator]
    async def _outcomes(self, rows: list[Any]) -> list[Any]:
        """Return the outputs or the error of each row; Ray gathers those of several callers."""
        return self._predictor.outcomes(rows)

    async def __call__(self, request: Request) -> Response:
        """Answer a request in JSON, with status 400 and why for one that does not fit."""
        try:
            outputs = await self.predict(await request.json())
        except (InputError, JSONDecodeError) as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({name: array.tolist() for name, array in outputs.items()})
