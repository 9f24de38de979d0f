"""Routes of the protocol: health, metadata, inference."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ...runtime.plan.errors import InputError, LimitError
from ...version import __version__
from ..errors import RequestError
from ..limits import ServerLimits
from ..metrics import Reading
from ..requests import Bodies, parse_json, stated_length, while_connected
from .served_session import Outputs, ServedSession
from .tensors import described, objects, read_tensor, write_tensor, wrong

#: The header that says where bytes begin behind the JSON
HEADER_LENGTH = "Inference-Header-Content-Length"
_VERSION = "1"
#: The status by which the protocol says no to whether something is ready
_NOT_READY = 400


class KServeApi:
    """Inference with one model, which clients call ``name``: a part of paths, so :class:`InputError` for a slash."""

    open_paths = frozenset({"/v2/health/live", "/v2/health/ready"})

    def __init__(self, model: ServedSession, name: str, limits: ServerLimits) -> None:
        if "/" in name:
            raise InputError(f"the name '{name:.80}' is a part of paths, so that it has no slash", hint="--name")
        self._model, self._name, self._limits = model, name, limits
        self._bodies = Bodies(limits)
        self._inputs = [described(port) for port in model.session.get_inputs()]
        self._outputs = [described(port) for port in model.session.get_outputs()]
        self._requests = 0

    @property
    def routes(self) -> Sequence[BaseRoute]:
        versions = ("/v2/models/{name}", f"/v2/models/{{name}}/versions/{_VERSION}")
        return [
            Route("/v2", self._server),
            Route("/v2/health/live", self._live),
            Route("/v2/health/ready", self._server_ready),
            *(Route(path, self._metadata) for path in versions),
            *(Route(f"{path}/ready", self._model_ready) for path in versions),
            *(Route(f"{path}/infer", self._infer, methods=["POST"]) for path in versions),
        ]

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: not while the model has no device."""
        return self._model.is_ready

    def error_body(self, error: RequestError) -> dict[str, Any]:
        return {"error": error.message}

    def readings(self) -> Iterable[Reading]:
        yield "shaderloom_waiting_requests", "Requests in the queue", self._model.waiting
        yield "shaderloom_inferences_total", "Requests that ran", self._requests
        yield "shaderloom_device_bytes", "Device memory of the model", self._model.session.device_bytes

    def close(self) -> None:
        self._model.close()

    async def _server(self, _: Request) -> Response:
        return JSONResponse({"name": "shaderloom", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def _live(self, _: Request) -> Response:
        return JSONResponse({})

    async def _server_ready(self, _: Request) -> Response:
        return JSONResponse({}, 200 if self.is_ready else _NOT_READY)

    async def _model_ready(self, request: Request) -> Response:
        self._check_name(request)
        is_ready = self.is_ready
        return JSONResponse({"name": self._name, "ready": is_ready}, 200 if is_ready else _NOT_READY)

    async def _metadata(self, request: Request) -> Response:
        self._check_name(request)
        ports = {"inputs": self._inputs, "outputs": self._outputs}
        return JSONResponse({"name": self._name, "versions": [_VERSION], "platform": "onnx_shaderloom", **ports})

    def _check_name(self, request: Request) -> None:
        name = request.path_params["name"]
        if name != self._name:
            raise RequestError(404, f"there is no model '{name:.200}'; the model is called '{self._name}'")

    async def _infer(self, request: Request) -> Response:
        self._check_name(request)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestError(415, "bodies are not compressed")
        async with self._bodies.read(request) as body:
            call = _Call(body, request.headers.get(HEADER_LENGTH), self._limits.depth, self._outputs)
            try:
                future = self._model.submit(call.feeds, call.names)
            except LimitError:
                raise RequestError(429, "the queue of requests is full", headers={"Retry-After": "1"}) from None
            outputs = await while_connected(request, self._result(asyncio.wrap_future(future)))
        self._requests += 1
        return call.answer(outputs, self._name)

    async def _result(self, future: asyncio.Future[Outputs]) -> Outputs:
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                return await future
        except TimeoutError:
            seconds = self._limits.request_seconds
            raise RequestError(504, f"the answer was not there after {seconds:g} seconds") from None


class _Call:
    """A request: the inputs, and how each output is wanted."""

    def __init__(
        self, body: bytearray, header_length: str | None, depth: int, ports: Sequence[Mapping[str, Any]]
    ) -> None:
        head, rest = _divided(body, header_length)
        fields = objects("the request", parse_json(head, depth), {"id", "parameters", "inputs", "outputs"})
        self._id = fields.get("id", "")
        if not isinstance(self._id, str):
            raise wrong("id", "is not a text")
        inputs = fields.get("inputs")
        if not isinstance(inputs, list) or len(inputs) > 4096:
            raise wrong("inputs", "is not a list of tensors")
        self.feeds: dict[str, np.ndarray] = {}
        for index, value in enumerate(inputs):
            name, array, size = read_tensor(f"inputs[{index}]", value, rest)
            if name in self.feeds:
                raise wrong(f"input '{name:.80}'", "is there twice")
            self.feeds[name], rest = array, rest[size:]
        if len(rest):
            raise wrong("the body", f"has {len(rest):,} bytes behind the last tensor")
        self._binary = self._wanted(fields, [port["name"] for port in ports])
        self.names = list(self._binary)

    def _wanted(self, fields: Mapping[str, Any], names: Sequence[str]) -> dict[str, bool]:
        """Return the outputs that are asked for, and whether their bytes are."""
        parameters = fields.get("parameters", {})
        if not isinstance(parameters, dict):
            raise wrong("parameters", "is not an object")
        if any(name.startswith("sequence_") for name in parameters):
            raise wrong("parameters", "has a sequence, which is not supported")
        default = _flag("binary_data_output", parameters.get("binary_data_output", False))
        outputs = fields.get("outputs") or [{"name": name} for name in names]
        if not isinstance(outputs, list) or len(outputs) > 4096:
            raise wrong("outputs", "is not a list")
        wanted: dict[str, bool] = {}
        for index, value in enumerate(outputs):
            output = objects(f"outputs[{index}]", value, {"name", "parameters"})
            own = objects(f"parameters of outputs[{index}]", output.get("parameters", {}), {"binary_data"})
            name = output.get("name")
            if not isinstance(name, str) or name not in names or name in wanted:
                raise wrong(f"outputs[{index}]", f"names no output of the model, or one again: {name!r:.80}")
            wanted[name] = _flag("binary_data", own.get("binary_data", default))
        return wanted

    def answer(self, outputs: Outputs, model: str) -> Response:
        """Return the outputs in the form that was asked for."""
        tensors = [
            write_tensor(name, array, binary=binary) for (name, binary), array in zip(self._binary.items(), outputs)
        ]
        value: dict[str, Any] = {
            "model_name": model,
            "model_version": _VERSION,
            "outputs": [head for head, _ in tensors],
        }
        if self._id:
            value["id"] = self._id
        head = json.dumps(value).encode()
        if not any(self._binary.values()):
            return Response(head, media_type="application/json")
        parts = b"".join([head, *(data for _, data in tensors)])
        return Response(parts, media_type="application/octet-stream", headers={HEADER_LENGTH: str(len(head))})


def _divided(body: bytearray, header_length: str | None) -> tuple[bytes | bytearray, memoryview]:
    """Return the JSON of a body, and the bytes behind it."""
    if header_length is None:
        return body, memoryview(b"")
    length = stated_length(header_length)
    if length is None or length > len(body):
        raise wrong(HEADER_LENGTH, f"is not a length inside of the body: {header_length:.40}")
    return bytes(body[:length]), memoryview(body)[length:]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, "is not true or false")
    return value
