"""Errors of requests, which each API tells its clients in a form of its own."""

from __future__ import annotations

from collections.abc import Mapping

from ..runtime.plan.errors import (
    ClosedError,
    DeviceError,
    DeviceLost,
    InputError,
    InternalError,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)


class RequestError(Exception):
    """What is wrong with a request: an HTTP status, a text, and the field of the request and a word for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.code = code
        self.headers = dict(headers or {})


def as_request_error(error: Exception, *, field: str | None = None) -> RequestError:
    """Return what a client is told of an error; of one that is not the client's, no more than that there was one."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, (InputError, ShapeError, UnsupportedError)):
        hint = f" [{error.hint}]" if error.hint else ""
        return RequestError(400, f"{_place(error)}{error.reason}{hint}", field=field)
    if isinstance(error, ClosedError):
        return RequestError(503, error.reason, code="unavailable")
    if isinstance(error, DeviceLost):
        return RequestError(503, "the device was lost; ask again when the server is ready", code="device_lost")
    if isinstance(error, DeviceError):
        return RequestError(503, "the device failed", code="device_failed")
    if isinstance(error, ShaderloomError) and not isinstance(error, InternalError):
        return RequestError(400, f"{_place(error)}{error.reason}", field=field)
    return RequestError(500, "the server failed; its log says how", code="internal_error")


def _place(error: ShaderloomError) -> str:
    """Return the node and the tensor at fault, which a client knows of the model, as the beginning of a text."""
    parts = [str(error.origin)] if error.origin else []
    if error.tensor:
        parts.append(f"tensor '{error.tensor}'")
    return f"{', '.join(parts)}: " if parts else ""
