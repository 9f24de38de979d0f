"""Drives a headless Chromium with WebGPU, through the pipe of its DevTools protocol.

The protocol is JSON messages that end with a zero byte, on file descriptors 3 (to the browser) and 4 (from it).
https://chromedevtools.github.io/devtools-protocol/ has the commands.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..support.patience import PATIENCE

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-dev-shm-usage",
    # Without a GPU Chromium gives no adapter unless it is told to; SwiftShader is the software driver that it ships.
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    # Software drivers are slow, and a dispatch that takes long is no hang.
    "--disable-gpu-watchdog",
    "--remote-debugging-pipe",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


class PageError(Exception):
    """A script on a page threw, or the browser refused a command."""


def find_chromium() -> str | None:
    """The browser's program, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A browser process with a fresh profile, or with the caches of earlier ones in ``profile``.

    Use as a context manager.
    """

    def __init__(self, program: str, profile: Path | None = None) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        folder = self._own.name if profile is None else profile
        read_ours, write_theirs = os.pipe()
        read_theirs, write_ours = os.pipe()
        # Descriptors above 9, so that moving one to its place does not overwrite the other.
        source, target = (fcntl.fcntl(handle, fcntl.F_DUPFD, 10) for handle in (read_theirs, write_theirs))

        def place() -> None:
            os.dup2(source, 3)
            os.dup2(target, 4)

        try:
            self._process = subprocess.Popen(
                [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=place,
                close_fds=False,
                start_new_session=True,
            )
        finally:
            for handle in (read_theirs, write_theirs, source, target):
                os.close(handle)
        self._out = os.fdopen(write_ours, "wb", buffering=0)
        self._in = os.fdopen(read_ours, "rb", buffering=0)
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The browser's process, which leads a session of its own with all that it starts."""
        return self._process.pid

    def close(self) -> None:
        """End the browser and the processes that it started."""
        try:
            self.send("Browser.close", timeout=5)
            self._process.wait(5)
        except (PageError, OSError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._out.close()
        self._own.cleanup()

    def send(
        self, method: str, parameters: Mapping[str, Any] | None = None, *, session: str = "", timeout: float = PATIENCE
    ) -> dict[str, Any]:
        """Give a command and return its result.  Raises :class:`PageError` if it fails or no answer comes in time."""
        number = next(self._numbers)
        self._answers[number] = queue.SimpleQueue()
        message: dict[str, Any] = {"id": number, "method": method, "params": dict(parameters or {})}
        if session:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        try:
            answer = self._answers[number].get(timeout=timeout)
        except queue.Empty:
            raise PageError(f"{method} took longer than {timeout} s") from None
        finally:
            del self._answers[number]
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url: str, *, width: int = 1000, height: int = 800) -> Page:
        """A new page, loaded."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        page.resize(width, height)
        page.load(url)
        return page

    def _listen(self) -> None:
        rest = b""
        while data := self._in.read(1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in map(json.loads, messages):
                if (number := message.get("id")) is not None:
                    if number in self._answers:
                        self._answers[number].put(message)
                elif page := self._pages.get(message.get("sessionId", "")):
                    page.handle(message["method"], message["params"])
        for waiting in list(self._answers.values()):
            waiting.put({"error": {"message": "the browser has ended"}})
        self._in.close()


class Page:
    """A tab.  ``messages`` has what scripts wrote to the console and uncaught exceptions."""

    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self.messages: list[str] = []
        #: URLs that the page asked for
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.send("Target.closeTarget", {"targetId": self._target})

    def send(
        self, method: str, parameters: Mapping[str, Any] | None = None, timeout: float = PATIENCE
    ) -> dict[str, Any]:
        return self._browser.send(method, parameters, session=self._session, timeout=timeout)

    def load(self, url: str) -> None:
        result = self.send("Page.navigate", {"url": url})
        if "errorText" in result:
            raise PageError(f"{url}: {result['errorText']}")
        self.wait_for("document.readyState === 'complete'")

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile},
        )

    def evaluate(self, expression: str, timeout: float = PATIENCE) -> Any:
        """The JSON value of an expression; promises are awaited.  Raises :class:`PageError` with the script's error."""
        result = self.send(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True},
            timeout=timeout,
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def call(self, function: str, *arguments: Any, timeout: float = PATIENCE) -> Any:
        """Call a JavaScript function expression with JSON values."""
        return self.evaluate(f"({function})({', '.join(map(json.dumps, arguments))})", timeout)

    def wait_for(self, condition: str, timeout: float = PATIENCE) -> None:
        """Return once the expression is true.  Raises :class:`PageError` with the page's messages if it never is."""
        deadline = time.monotonic() + timeout
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise PageError(f"{condition} was not true within {timeout} s; {self.messages}")
            time.sleep(0.05)

    def choose_files(self, selector: str, files: Sequence[Path]) -> None:
        """Put files into an ``<input type=file>``, as a person would."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
        self.send("DOM.setFileInputFiles", {"nodeId": node, "files": [str(file.absolute()) for file in files]})

    def screenshot(self, path: Path) -> Path:
        """The whole page as a PNG file."""
        image = self.send("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(image["data"]))
        return path

    def handle(self, method: str, parameters: Mapping[str, Any]) -> None:
        """Called by the browser's listener for each event of this page."""
        if method == "Runtime.consoleAPICalled":
            values = (str(item.get("value", item.get("description"))) for item in parameters["args"])
            self.messages.append(f"{parameters['type']}: {' '.join(values)}")
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.messages.append("exception: " + (details.get("exception", {}).get("description") or details["text"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
