"""What clients of a server may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLimits:
    """Sizes in bytes, times in seconds.  ``None`` as a key lets everybody in."""

    #: a request's body, and all bodies that are read at the moment
    body: int = 4 << 20
    bodies: int = 64 << 20
    #: the line and the headers of a request
    headers: int = 32 << 10
    #: connections that are open at a time
    connections: int = 512
    #: until the headers are there, until the body is, and between writes that a client takes nothing of
    header_seconds: float = 20.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    #: of a request, its time in the queue included
    request_seconds: float = 600.0
    #: in which answers may end when the server stops
    stop_seconds: float = 5.0
    #: lists and objects inside of each other in JSON
    depth: int = 64
    #: what clients must send as ``Authorization: Bearer KEY``
    key: str | None = None
