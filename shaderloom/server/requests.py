"""Bodies of requests, within limits, and work for a client that may leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from .errors import RequestError
from .limits import ServerLimits

Result = TypeVar("Result")


class Bodies:
    """Reads bodies, of which all together are bounded too."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._bytes = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """Read a body, which counts until the block ends.

        Raises :class:`RequestError` for one that is too large or too slow, or while others take all memory there is.
        """
        body = bytearray()
        try:
            await self._receive(request, body)
            yield body
        finally:
            self._bytes -= len(body)

    async def _receive(self, request: Request, body: bytearray) -> None:
        limit = self._limits.body
        if (stated_length(request.headers.get("content-length", "")) or 0) > limit:
            raise too_large(limit)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for part in request.stream():
                    if len(body) + len(part) > limit:
                        raise too_large(limit)
                    if self._bytes + len(part) > self._limits.bodies:
                        raise RequestError(503, "too many requests are being read", code="busy", headers=SOON)
                    self._bytes += len(part)
                    body += part
        except TimeoutError:
            raise RequestError(408, "the body of the request did not come in time", headers=CLOSE) from None


#: Headers of answers: read no further; ask again in a second
CLOSE = {"Connection": "close"}
SOON = {"Retry-After": "1"}


def too_large(limit: int) -> RequestError:
    """Return the error for a body of more than ``limit`` bytes, whose rest is not read."""
    return RequestError(413, f"the body of the request has more than {limit:,} bytes", code="too_large", headers=CLOSE)


def stated_length(text: str) -> int | None:
    """Return the bytes that a header states, which are too many where it has many digits; None for other texts."""
    if not (text.isascii() and text.isdigit()):
        return None
    return int((text.lstrip("0") or "0")[:20])


def parse_json(body: bytes | bytearray, depth: int) -> dict[str, Any]:
    """Return the object of a body of JSON, which is at most ``depth`` levels deep.

    Raises :class:`RequestError` for what is none.
    """
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
        if b"\\u" in body:  # halves of characters, which are no text
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise RequestError(400, f"the JSON is more than {depth} levels deep") from None
    except ValueError as error:  # numbers of too many digits, and bytes that are no UTF-8, too
        raise RequestError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(400, "the body is not a JSON object")
    level: list[Any] = [value]
    for _ in range(depth):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return value
    raise RequestError(400, f"the JSON is more than {depth} levels deep")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of ``work``, which is cancelled when the client leaves: :class:`ClientDisconnect` then."""
    task, left = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        await _cancel(task)
        await _cancel(left)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: Awaitable[Any]) -> None:
    assert isinstance(task, asyncio.Future)
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
