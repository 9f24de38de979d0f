"""A small HTTP server on 127.0.0.1 for a fixed table of resources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from ..runtime.plan.errors import InputError, ShaderloomError
from ..runtime.plan.record import record

HOST = "127.0.0.1"
#: bytes written at once
BLOCK = 1 << 20
_NAMES = frozenset({HOST, "localhost"})
_HEADERS = {
    # Scripts, styles, pictures and forms may contact this server only.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@record(slots=False)
class Resource:
    """``read`` returns the bytes on request; an error of Shaderloom's is answered with status 500."""

    content_type: str
    read: Callable[[], bytes | memoryview]


class Site:
    """Serves ``resources`` by path (``/manifest.json``) until it is closed.  ``port`` 0 takes any free port."""

    def __init__(self, resources: Mapping[str, Resource], port: int = 0) -> None:
        handler = type("Handler", (_Handler,), {"resources": dict(resources)})
        try:
            self._server = ThreadingHTTPServer((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"cannot listen on port {port}: {getattr(error, 'strerror', None) or error}",
                hint="choose another with --port; 0 takes any that is free",
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}/"

    def wait(self) -> None:
        """Block until the server has ended; a KeyboardInterrupt propagates."""
        while self._thread.is_alive():
            self._thread.join(1)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    resources: ClassVar[Mapping[str, Resource]] = {}
    protocol_version = "HTTP/1.1"  # a bundle has many small files: connections are kept
    server_version = "shaderloom"
    sys_version = ""
    timeout = 60
    disable_nagle_algorithm = True  # a body follows its headers at once, not 40 ms later

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        # DNS rebinding: a page of another site could reach this server through its own host name.
        try:
            host, path = urlsplit("//" + self.headers.get("Host", "")).hostname, unquote(urlsplit(self.path).path)
        except ValueError:  # an address that is none
            self._tell(HTTPStatus.BAD_REQUEST, "the request names no address")
            return
        if host not in _NAMES:
            self._tell(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to localhost only")
            return
        resource = self.resources.get(path + "index.html" if path.endswith("/") else path)
        if resource is None:
            self._tell(HTTPStatus.NOT_FOUND, "there is no such file")
            return
        try:
            body = memoryview(resource.read())
        except ShaderloomError as error:
            self._tell(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
            return
        self._send(HTTPStatus.OK, resource.content_type, body, with_body)

    def _tell(self, status: HTTPStatus, message: str) -> None:
        self._send(status, "text/plain; charset=utf-8", memoryview(f"{message}\n".encode()), self.command != "HEAD")

    def _send(self, status: HTTPStatus, content_type: str, body: memoryview, with_body: bool) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(body.nbytes))
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                for start in range(0, body.nbytes, BLOCK):
                    self.wfile.write(body[start : start + BLOCK])
        except ConnectionError:  # the page closed the connection
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Discard the line that the base class logs for each request."""
