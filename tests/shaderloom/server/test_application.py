"""What all servers of models refuse, whatever their API is: hosts, keys, sizes, times; and how they stop.

Covers: shaderloom/server/application, shaderloom/server/requests, shaderloom/server/errors, shaderloom/server/metrics,
shaderloom/server/connections, shaderloom/server/running, shaderloom/server/limits.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from shaderloom.runtime.plan.errors import ClosedError, DeviceLost, InputError, ModelError, Origin, ShapeError
from shaderloom.server.errors import RequestError, as_request_error
from shaderloom.server.limits import ServerLimits
from shaderloom.server.requests import Bodies, parse_json, while_connected
from shaderloom.server.running import ApiServer

from ...support.patience import PATIENCE

LIMITS = ServerLimits(body=1000, bodies=1500, headers=8000, stop_seconds=PATIENCE)


class SmallApi:
    """Returns bodies, and waits for what a test wants to see."""

    open_paths = frozenset({"/open"})

    def __init__(self, limits: ServerLimits) -> None:
        self.bodies, self.depth = Bodies(limits), limits.depth
        self.begun, self.left, self.closed = threading.Event(), threading.Event(), threading.Event()
        self.is_ready = True
        self.routes = [
            Route("/echo", self._echo, methods=["POST"]),
            Route("/open", self._open),
            Route("/wait/{name}", self._wait),
            Route("/broken", self._broken),
            Route("/much", self._much),
        ]

    async def _echo(self, request: Request) -> Response:
        async with self.bodies.read(request) as body:
            self.begun.set()
            return JSONResponse(parse_json(body, self.depth))

    async def _open(self, _: Request) -> Response:
        return JSONResponse({})

    async def _wait(self, request: Request) -> Response:
        return JSONResponse(await while_connected(request, self._forever()))

    async def _forever(self) -> None:
        try:
            self.begun.set()
            await asyncio.sleep(10 * PATIENCE)
        finally:
            self.left.set()

    async def _broken(self, _: Request) -> Response:
        raise ZeroDivisionError("a secret")

    async def _much(self, _: Request) -> Response:
        async def parts() -> Any:
            try:
                self.begun.set()
                while True:
                    yield bytes(1 << 20)
                    await asyncio.sleep(0)  # as whoever computes something
            finally:
                self.left.set()

        return StreamingResponse(parts())

    def error_body(self, error: RequestError) -> dict[str, Any]:
        return {"message": error.message, "code": error.code}

    def readings(self) -> Iterable[tuple[str, str, float]]:
        yield "small_total", "Something that grows", 3
        yield "small", "Something else", 0.5

    def close(self) -> None:
        self.closed.set()


Start = Callable[..., tuple[SmallApi, ApiServer]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a server with some limits."""
    servers = []

    def begin(**limits: Any) -> tuple[SmallApi, ApiServer]:
        own = replace(LIMITS, **limits)
        api = SmallApi(own)
        servers.append(ApiServer(api, own))
        return api, servers[-1]

    yield begin
    for server in servers:
        server.close()


def raw(server: ApiServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    connection.settimeout(PATIENCE)
    return connection


def until_closed(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def test_bodies(start: Start):
    _, server = start()
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        assert client.post("/echo", json={"a": [1, "ü"]}).json() == {"a": [1, "ü"]}
        deep = {"a": json.loads("[" * (LIMITS.depth - 1) + "]" * (LIMITS.depth - 1))}
        assert client.post("/echo", json=deep).json() == deep
        for wrong in (
            b"", b"{", b"[]", b"3", b"{'a': 1}", b'{"a": NaN}', b'{"a": 1e}', b'{"a": "\xff"}', b'{"a": "\\ud800"}',
            b"[" * 900, b'{"a":' * 150, json.dumps({"a": deep["a"], "b": [deep["a"]]}).encode(),
        ):  # fmt: skip
            answer = client.post("/echo", content=wrong)
            assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json"), wrong
            assert "JSON" in answer.json()["message"]
        assert client.post("/echo", content=b" " * 1001).status_code == 413
        assert client.post("/echo", content=iter([b" " * 600] * 2)).status_code == 413
        assert client.get("/echo").status_code == 405
        assert client.get("/nothing").json() == {"message": "Not Found", "code": None}


def test_bodies_of_all_together(start: Start):
    """The second one does not fit while the first is read, and does behind it."""
    _, server = start(body=1000, bodies=1000)
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"
    body = json.dumps({"a": "b" * 800}).encode().ljust(900)
    with raw(server) as slow, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        slow.sendall(head + body[:800])
        busy = client.post("/echo", content=body)
        while busy.status_code == 200:  # the server has not read the first one yet
            busy = client.post("/echo", content=body)
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
        slow.sendall(body[800:])
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert client.post("/echo", content=body).status_code == 200


def test_who_may_ask(start: Start):
    _, server = start(key="secret")
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/open").status_code == 200
        for key in (None, "Bearer wrong", "secret", "Basic secret", "Bearer sécret"):
            headers = {} if key is None else {"Authorization": key.encode()}
            answer = client.get("/metrics", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "invalid_api_key")
        own = {"Authorization": "Bearer secret"}
        assert client.get("/metrics", headers=own).status_code == 200
        for host in ("elsewhere.example", "localhost.elsewhere.example", "[", ""):
            assert client.get("/open", headers={"Host": host}).status_code in (400, 421)
        for origin, status in (("http://elsewhere.example", 403), ("null", 403), (server.url, 200), ("http://[", 403)):
            assert client.get("/open", headers={"Origin": origin}).status_code == status


def test_metrics_and_health(start: Start):
    api, server = start()
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        for path in ("/open", "/open", "/nothing", "/broken", "/else"):
            client.get(path)
        lines = client.get("/metrics").text.splitlines()
        for line in (
            'shaderloom_requests_total{path="/open",status="200"} 2.0',
            'shaderloom_requests_total{path="other",status="404"} 2.0',
            'shaderloom_requests_total{path="/broken",status="500"} 1.0',
            'shaderloom_request_seconds_count{path="/open"} 2.0',
            "small_total 3.0",
            "small 0.5",
        ):
            assert line in lines
        assert "# TYPE small gauge" in lines
        api.is_ready = False
        assert client.get("/health").status_code == 503


def test_what_fails_is_logged_and_not_told(start: Start, caplog: pytest.LogCaptureFixture):
    _, server = start()
    answer = httpx.get(f"{server.url}/broken", timeout=PATIENCE)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert "ZeroDivisionError: a secret" in caplog.text


def test_work_ends_when_its_client_leaves(start: Start):
    api, server = start()
    with raw(server) as connection:
        connection.sendall(b"GET /wait/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert api.begun.wait(PATIENCE)
        assert not api.left.is_set()
    assert api.left.wait(PATIENCE)


@pytest.mark.parametrize(
    ("sent", "limits"),
    [
        (b"", {"header_seconds": 0.2}),
        (b"GET /open HTTP/1.1\r\nHost: loc", {"header_seconds": 0.2}),
        (b"GET /open HTTP/1.1\r\nHost: localhost\r\n\r\nGET /open", {"header_seconds": 0.2}),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", {"body_seconds": 0.2}),
        (b"GET /" + b"a" * 20_000, {}),
        (b"GET /open HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 5_000, {}),
        (b"nothing of HTTP\r\n\r\n", {}),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n", {}),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", {}),
    ],
)
def test_connections_that_are_slow_or_wrong_are_closed(start: Start, sent: bytes, limits: dict[str, float]):
    _, server = start(**limits)
    with raw(server) as connection:
        connection.sendall(sent)
        assert b" 500 " not in until_closed(connection)
    assert httpx.get(f"{server.url}/open", timeout=PATIENCE).status_code == 200


def test_a_client_that_takes_nothing_is_left(start: Start):
    api, server = start(write_seconds=0.2)
    with raw(server) as connection:
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert api.left.wait(PATIENCE)


def test_connections_beyond_the_limit_are_closed(start: Start):
    _, server = start(connections=2)
    with raw(server) as first, raw(server) as second:
        for connection in (first, second):
            connection.sendall(b"GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        with raw(server) as third:
            assert until_closed(third) == b""
    with pytest.raises(InputError, match="--port"):
        ApiServer(SmallApi(LIMITS), LIMITS, port=server.port)


def test_a_stop_lets_answers_end_for_a_while(start: Start):
    api, server = start(stop_seconds=1)
    with raw(server) as connection:
        connection.sendall(b"GET /wait/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert api.begun.wait(PATIENCE)
        server.close()
        assert api.left.is_set()
        assert api.closed.is_set()


def test_errors_of_the_package():
    for error, status in (
        (InputError("x"), 400),
        (ModelError("x"), 400),
        (ClosedError("x"), 503),
        (DeviceLost("x"), 503),
        (ValueError("x"), 500),
        (RequestError(418, "x"), 418),
    ):
        assert as_request_error(error).status == status
    located = ShapeError("differs", origin=Origin("main", 3, "Add"), tensor="x", hint="h")
    assert as_request_error(located).message == "Add (main node 3), tensor 'x': differs [h]"
