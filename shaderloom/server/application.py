"""The application of all servers: who may ask, how much, and how errors are told; the rest is an API's."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..log import SERVER
from .errors import RequestError, as_request_error
from .limits import ServerLimits
from .metrics import Reading, ServerMetrics

#: What answers without a key: whether the server lives
HEALTH = "/health"
METRICS = "/metrics"
#: Names by which this machine reaches itself
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Api(Protocol):
    """What clients of one kind ask for."""

    @property
    def routes(self) -> Sequence[BaseRoute]: ...
    @property
    def open_paths(self) -> frozenset[str]:
        """Paths that answer without a key."""

    @property
    def is_ready(self) -> bool: ...
    def error_body(self, error: RequestError) -> dict[str, Any]:
        """Return the JSON in which clients expect an error."""

    def readings(self) -> Iterable[Reading]:
        """Return the numbers for ``/metrics``."""

    def close(self) -> None: ...


def build_application(api: Api, limits: ServerLimits, hosts: frozenset[str] | None = LOOPBACK) -> Starlette:
    """Return the application of an API.  ``hosts`` are the names that requests may call the server; None: any."""
    metrics = ServerMetrics(api.readings)

    async def health(_: Request) -> Response:
        ready = api.is_ready
        return JSONResponse({"status": "ok" if ready else "failed"}, 200 if ready else 503)

    async def show_metrics(request: Request) -> Response:
        text, content_type = metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    async def tell(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return error_response(api, RequestError(error.status_code, error.detail, headers=error.headers))
        if isinstance(error, ClientDisconnect):
            return Response(status_code=499)  # which nobody reads; metrics count it
        assert isinstance(error, RequestError), "these are told here"
        return error_response(api, error)

    routes = [Route(HEALTH, health), Route(METRICS, show_metrics), *api.routes]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Gate, api=api, limits=limits, hosts=hosts, metrics=metrics)],
        exception_handlers=dict.fromkeys((HTTPException, RequestError, ClientDisconnect), tell),
    )


def error_response(api: Api, error: RequestError) -> Response:
    """Return an error in the form of an API."""
    return JSONResponse(api.error_body(error), error.status, error.headers)


class _Gate:
    """Lets requests in that may ask, and counts their answers."""

    def __init__(
        self, app: ASGIApp, api: Api, limits: ServerLimits, hosts: frozenset[str] | None, metrics: ServerMetrics
    ) -> None:
        self._app, self._api, self._hosts, self._metrics = app, api, hosts, metrics
        self._key = None if limits.key is None else limits.key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, is_counted = time.perf_counter(), 499, False

        def count() -> None:
            nonlocal is_counted
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.count(path, status, time.perf_counter() - begun)
            is_counted = True

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
            elif not message.get("more_body"):
                count()  # before the client has all and may ask for the numbers
            await send(message)

        error = self._refusal(Request(scope))
        try:
            await (self._app if error is None else error_response(self._api, error))(scope, receive, counted)
        except Exception as failure:
            shown = as_request_error(failure)
            if shown.status >= 500:
                SERVER.error("a request failed", exc_info=failure)
            if status != 499:  # the answer has begun
                raise
            await error_response(self._api, shown)(scope, receive, counted)
        finally:
            if not is_counted:
                count()

    def _refusal(self, request: Request) -> RequestError | None:
        # A page of another site could reach this server through its own host name, or send it requests blindly.
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._hosts is not None and _name("//" + host) not in self._hosts:
            return RequestError(421, "this server answers to localhost only", code="wrong_host")
        if origin is not None and _address(origin) != _address("//" + host):
            return RequestError(403, "pages of other origins may not ask this server", code="wrong_origin")
        if self._key is None or request.url.path in {HEALTH, *self._api.open_paths}:
            return None
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode(), self._key):
            return None
        headers = {"WWW-Authenticate": "Bearer"}
        return RequestError(401, "the API key is missing or wrong", code="invalid_api_key", headers=headers)


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _address(address: str) -> str | None:
    try:
        return urlsplit(address).netloc.lower()
    except ValueError:
        return None
