"""A server that listens: uvicorn in a thread."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading

import uvicorn

from ..runtime.plan.errors import InputError
from .application import LOOPBACK, Api, build_application
from .connections import LimitedConnection
from .limits import ServerLimits


class ApiServer:
    """Answers the requests of an API until it is closed, which closes the API too.  ``port`` 0 takes any free one."""

    def __init__(self, api: Api, limits: ServerLimits, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen.  Raises :class:`InputError` for an address that cannot be listened on."""
        self._api = api
        self._socket = _listen(host, port)
        name = self._socket.getsockname()[0]
        self._host = f"[{name}]" if ":" in name else name
        self.port: int = self._socket.getsockname()[1]
        self.is_loopback = ipaddress.ip_address(name).is_loopback
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what clients do wrong is not the log's matter
        self._server = uvicorn.Server(
            uvicorn.Config(
                build_application(api, limits, LOOPBACK if self.is_loopback else None),
                http=LimitedConnection.with_limits(limits),
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=limits.headers,
                timeout_keep_alive=int(limits.header_seconds),
                timeout_graceful_shutdown=int(limits.stop_seconds),
            )
        )
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="shaderloom-http", daemon=True).start()

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended.set()

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"http://{self._host}:{self.port}"

    def wait(self) -> None:
        """Block until the server has ended; a KeyboardInterrupt propagates."""
        while not self._ended.wait(1):  # not by joining: an interrupt there makes Python believe that the thread ended
            pass

    def close(self) -> None:
        """Stop listening, let answers end for a while, and close the API.  An interrupt ends answers at once."""
        self._server.should_exit = True
        try:
            self.wait()
        except KeyboardInterrupt:
            self._server.force_exit = True
            self.wait()
        finally:
            self._socket.close()
            self._api.close()

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":  # where it does not mean that two may listen
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
        return listener
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {getattr(error, 'strerror', None) or error}",
            hint="choose another with --port, where 0 takes any that is free, or another --host",
        ) from None
