"""Connections that do not stay open for clients that are slow, or too many."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import ServerLimits


class LimitedConnection(H11Protocol):
    """A connection of uvicorn's, with limits on the time of headers and of writes, and on their number."""

    limits = ServerLimits()
    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None

    @classmethod
    def with_limits(cls, limits: ServerLimits) -> type[LimitedConnection]:
        """Return the class of connections with these limits."""
        return type("LimitedConnection", (cls,), {"limits": limits})

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # which a server's is
        if len(self.connections) > self.limits.connections:
            self.transport.abort()
            return
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_headers()

    def _expect_headers(self) -> None:
        """Give the headers of the next request their time, from the moment on from which they are awaited."""
        is_awaited = self.cycle is None or self.cycle.response_complete
        if not is_awaited or self.transport.is_closing():
            self._deadline = _ended(self._deadline)
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = _ended(self._write_deadline)
        self._write_deadline = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_deadline = _ended(self._write_deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline = _ended(self._deadline)
        self._write_deadline = _ended(self._write_deadline)
        super().connection_lost(exc)


def _ended(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer; return what there is behind that."""
    if timer is not None:
        timer.cancel()
    return None
