"""Many clients of a server in a process of its own: right requests, wrong ones, and clients that stop in the middle.

Covers: shaderloom/server.
"""

from __future__ import annotations

import itertools
import json
import operator
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx.parser
import pytest

from ....support.kserve import INFER, MODEL, connect, infer, infer_body, wrong_requests
from ....support.patience import PATIENCE

CLIENTS = 64
#: Bytes of the largest body that the server reads
LIMIT = 1 << 16
WRONG = wrong_requests(LIMIT)
#: Bytes of memory that may come with requests after the first ones: in a minute less than 1 KB each
GROWTH = 6 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="the system does not tell of other processes"
)


@dataclass(frozen=True)
class ServerProcess:
    """The command ``shaderloom serve``, which answers on ``port``."""

    process: int
    port: int

    def memory(self) -> int:
        """Return the bytes that belong to the process alone."""
        status = Path(f"/proc/{self.process}/status").read_text(encoding="utf-8")
        return 1024 * sum(int(size) for size in re.findall(r"(?:RssAnon|VmSwap):\s+(\d+) kB", status))

    def holdings(self) -> tuple[int, int]:
        """Return the numbers of its open files, connections among them, and of its threads."""
        return len(os.listdir(f"/proc/{self.process}/fd")), len(os.listdir(f"/proc/{self.process}/task"))

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE).text


@contextmanager
def serve(folder: Path, device: Any) -> Iterator[ServerProcess]:
    path = folder / "small.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    command = [sys.executable, "-W", "ignore", "-m", "shaderloom", "serve", str(path), "--api", "kserve"]
    command += ["--port", "0", "--name", "small", "--max-body", str(LIMIT), "--queue", str(8 * CLIENTS)]
    environment = os.environ | {"SHADERLOOM_ADAPTER": device.name}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert address, line + process.stderr.read()
        yield ServerProcess(process.pid, int(address[1]))
        process.send_signal(2)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


class Client:
    """Asks for what it can check; in between it sends what is wrong, and leaves before a request or answer is whole."""

    def __init__(self, server: ServerProcess, place: int, turns: Iterator[int]) -> None:
        self._port, self._turns = server.port, turns
        self._rng = np.random.default_rng(place)
        self._client = connect(server.port)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE)

    def ask(self) -> None:
        rows = int(self._rng.integers(1, 4))
        x, add = self._rng.random((rows, 3), np.float32), self._rng.integers(-9, 9, (rows, 3))
        result = infer(self._client, x, add, binary=bool(self._rng.integers(2)))
        y = x + add.astype(np.float32)
        np.testing.assert_array_equal(result.as_numpy("y"), y)
        np.testing.assert_array_equal(result.as_numpy("large"), y > x)

    def ask_wrongly(self, number: int) -> None:
        request = WRONG[number % len(WRONG)]
        answer = self._http.post(request.path, content=request.content, headers=request.headers)
        assert (answer.status_code, list(answer.json())) == (request.status, ["error"]), request

    def stop(self, number: int) -> None:
        """Leave within the headers, the body, or the answer, in order or abruptly."""
        body = json.dumps(infer_body()).encode()
        head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n".encode()
        sent = (head[: len(head) // 2], head + b"\r\n" + body[: len(body) // 2], head + b"\r\n" + body)[number // 2 % 3]
        with socket.create_connection(("127.0.0.1", self._port), PATIENCE) as connection:
            if number % 2:  # closing resets the connection
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(sent)
            if number // 6 % 2 and sent.endswith(body):
                connection.recv(10)

    def take_turn(self) -> None:
        number = next(self._turns)
        self.ask()
        self.ask_wrongly(number)
        self.stop(number)

    def close(self) -> None:
        self._client.close()
        self._http.close()


def ask_all(server: ServerProcess, turns: Iterator[int], goes_on: Callable[[int], bool]) -> int:
    """Let all clients take turns at the same time while ``goes_on``, which is told the turns of each; count all."""

    def take_turns(place: int) -> int:
        client, taken = Client(server, place, turns), 0
        try:
            while goes_on(taken):
                client.take_turn()
                taken += 1
            client.ask()
        finally:
            client.close()
        return taken

    with ThreadPoolExecutor(CLIENTS) as threads:
        return sum(threads.map(take_turns, range(CLIENTS)))


def settled(read: Callable[[], Any], expected: Any) -> Any:
    """Return a reading once it is what is expected, or what it is after a long time."""
    deadline = time.monotonic() + PATIENCE
    while (reading := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return reading


@pytest.mark.parametrize("seconds", [pytest.param(0, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.soak)])
def test_a_server_of_many_clients_neither_fails_nor_grows(
    seconds: float, tmp_path: Path, device: Any, interrupts: None
):
    """Every answer is right and every wrong request refused; connections, threads and memory stay what they were."""
    turns = itertools.count()
    with serve(tmp_path, device) as server:
        begun = time.monotonic()
        ask_all(server, turns, lambda taken: taken < 2 or time.monotonic() < begun + seconds / 2)  # fills what is kept
        waiting = "\nshaderloom_waiting_requests 0.0\n"
        assert settled(lambda: waiting in server.metrics(), True)
        holdings, memory = server.holdings(), server.memory()
        begun = time.monotonic()
        taken = ask_all(server, turns, lambda taken: taken < 2 or time.monotonic() < begun + seconds)
        assert taken >= len(WRONG) > 30
        assert settled(lambda: waiting in server.metrics(), True)
        assert settled(lambda: all(map(operator.le, server.holdings(), holdings)), True)
        assert server.memory() - memory < GROWTH, (taken, memory, server.memory())
        assert not re.search(r'status="5', server.metrics())
