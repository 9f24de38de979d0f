"""shaderloom.js: files in the browser's storage.

Covers: runtime/web/shaderloom/cache.js.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar

import numpy as np
import onnx.parser
import pytest

from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.format import CHUNK
from shaderloom.serve.files import content_type, runner_resources

from ..support.bundles import files_of
from ..support.patience import PATIENCE
from .chromium import Chromium, Page, find_chromium
from .conftest import EMPTY

FLOATS = 2_750_000

LOAD = """async (expected, options) => {
  const { load, ShaderloomError } = await import("/shaderloom.js");
  try {
    const session = await load("/bundle/", { cache: true, ...options });
    const { y } = await session.run({ x: new Float32Array([0.5]) });
    session.dispose();
    return y.data.length === expected && y.data.every((value, at) => value === (at % 1000) + 0.5);
  } catch (error) {
    return error instanceof ShaderloomError ? `${error.kind}: ${error.message}` : String(error?.stack ?? error);
  }
}"""


class Server(ThreadingHTTPServer):
    """Serves files, with ranges or without; ``sent`` counts bytes by path, ``limits`` ends an answer early,
    when ``ending`` is set."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes], ranges: bool) -> None:
        self.files, self.ranges = files, ranges
        self.sent: Counter[str] = Counter()
        self.limits: dict[str, int] = {}
        self.ending = Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that the browser closed."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version: ClassVar[str] = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        content = self.server.files.get(path)
        if content is None:
            self.send_error(404)
            return
        begin = 0
        asked = self.headers.get("Range")
        if asked and self.server.ranges:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
        body = content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Type", content_type(path))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        body = body[: self.server.limits.get(path, len(body))]
        try:
            self.wfile.write(body)
            self.server.sent[path] += len(body)
        except ConnectionError:
            pass
        if path in self.server.limits:
            self.server.ending.wait(PATIENCE)
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose weights are three chunks."""
    path = tmp_path_factory.mktemp("large") / "b"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[{FLOATS}] y) {{ y = Add(x, w) }}'
    )
    table = (np.arange(FLOATS) % 1000).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
    compile_bundle(model, path)
    return path


@pytest.fixture
def served(browser: Chromium, bundle: Path, request: pytest.FixtureRequest):
    """A page and its server; ranges are as the parameter says."""
    files = {path: bytes(resource.read()) for path, resource in {**EMPTY, **runner_resources()}.items()}
    files |= {f"/bundle/{name}": content for name, content in files_of(bundle).items()}
    server = Server(files, getattr(request, "param", True))
    with browser.open(server.url + "empty.html") as page:
        yield page, server
    server.shutdown()
    server.server_close()


WEIGHTS = "/bundle/weights-00001.safetensors"


def load(page: Page, **options: object) -> bool | str:
    return page.call(LOAD, FLOATS, options)


BREAK = r"bundle: 'weights-00001.safetensors' breaks off after (\d+) bytes: "

#: Ends when the chunks of all hashes are stored
STORED = """async (hashes) => {
  const isStored = async (hash) => Boolean(await caches.match(`/shaderloom/${hash}`));
  while (!(await Promise.all(hashes.map(isStored))).every(Boolean)) await new Promise((done) => setTimeout(done, 20));
}"""


def interrupted(page: Page, server: Server, hashes: list[str]) -> str:
    """What a load says whose connection ends at the server's limit, once the page has stored these chunks."""
    server.ending.clear()
    page.evaluate(f"(globalThis.loading = ({LOAD})({FLOATS}, {{}}), 0)")
    page.call(STORED, hashes)
    server.ending.set()
    return str(page.evaluate("loading"))


def test_what_is_stored_is_not_fetched_again(served: tuple[Page, Server]):
    page, server = served
    assert load(page) is True
    first = dict(server.sent)
    server.sent.clear()
    page.load(server.url + "empty.html")
    assert load(page) is True
    assert {path for path in server.sent if path.startswith("/bundle/")} == {
        "/bundle/manifest.json",
        "/bundle/manifest.sha256",
    }
    assert first[WEIGHTS] > 2 * CHUNK


@pytest.mark.parametrize("served", [True, False], indirect=True, ids=["ranges", "no ranges"])
@pytest.mark.parametrize(("whole", "more"), [(0, 1_000), (1, 1_000_000), (2, 0)])
def test_an_interrupted_load_goes_on(served: tuple[Page, Server], whole: int, more: int):
    """The connection ends behind so many whole chunks: after a reload of the page these are not fetched again."""
    page, server = served
    server.limits[WEIGHTS] = whole * CHUNK + more
    hashes = json.loads(server.files["/bundle/manifest.json"])["files"]["weights-00001.safetensors"]["sha256"]
    told = re.match(BREAK, interrupted(page, server, hashes[:whole]))
    assert told and whole * CHUNK <= int(told[1]) <= whole * CHUNK + more
    page.load(server.url + "empty.html")
    size = len(server.files[WEIGHTS])
    server.limits.clear()
    server.sent.clear()
    assert load(page) is True
    assert server.sent[WEIGHTS] == (size - whole * CHUNK if server.ranges else size)


def test_a_manifest_that_breaks_off_is_told(served: tuple[Page, Server]):
    page, server = served
    server.limits["/bundle/manifest.json"] = 100
    server.ending.set()
    assert re.match(r"bundle: 'manifest.json' breaks off after \d+ bytes: ", str(load(page, cache=False)))


@pytest.mark.slow
def test_a_load_goes_on_in_another_browser_process(browser: Chromium, bundle: Path, tmp_path: Path):
    """What is stored of an interrupted transfer outlives the browser; another port would be another origin."""
    files = {path: bytes(resource.read()) for path, resource in {**EMPTY, **runner_resources()}.items()}
    files |= {f"/bundle/{name}": content for name, content in files_of(bundle).items()}
    server = Server(files, ranges=True)
    program = find_chromium()
    assert program is not None
    server.limits[WEIGHTS] = 2 * CHUNK + 1_000
    with Chromium(program, tmp_path / "profile") as first, first.open(server.url + "empty.html") as page:
        hashes = json.loads(files["/bundle/manifest.json"])["files"]["weights-00001.safetensors"]["sha256"]
        assert re.match(BREAK, interrupted(page, server, hashes[:2]))
    server.limits.clear()
    server.sent.clear()
    with Chromium(program, tmp_path / "profile") as second, second.open(server.url + "empty.html") as page:
        assert load(page) is True
    assert server.sent[WEIGHTS] == len(server.files[WEIGHTS]) - 2 * CHUNK
    server.shutdown()
    server.server_close()


def test_what_was_changed_in_the_storage_is_fetched_again(served: tuple[Page, Server]):
    page, server = served
    assert load(page) is True
    changed = page.evaluate("""(async () => {
      const cache = await caches.open("shaderloom");
      const requests = await cache.keys();
      for (const request of requests) {
        const bytes = new Uint8Array(await (await cache.match(request)).arrayBuffer());
        bytes[0] ^= 1;
        await cache.put(request, new Response(bytes));
      }
      return requests.length;
    })()""")
    server.sent.clear()
    assert load(page) is True
    assert changed >= 5
    assert server.sent[WEIGHTS] == len(server.files[WEIGHTS])


def test_a_small_storage_is_told_before_weights_are_fetched(served: tuple[Page, Server]):
    """Where the browser says what room there is; Chrome says 10 GiB whatever there is."""
    page, server = served
    page.evaluate("StorageManager.prototype.estimate = async () => ({ usage: 1e6, quota: 6e6 })")
    told = str(load(page))
    assert told.startswith(
        "storage: the browser cannot store 11.0 MB of the bundle beside the 1.0 MB in use: "
        "it gives this origin 6.0 MB. Free some"
    )
    assert 'caches.delete("shaderloom")' in told
    assert not server.sent[WEIGHTS]
    assert load(page, cache=False) is True


def test_weights_that_no_storage_holds_are_told_by_the_manifest_alone(served: tuple[Page, Server]):
    """Nineteen gigabytes that a manifest announces; Chrome promises ten."""
    page, server = served
    manifest = json.loads(server.files["/bundle/manifest.json"])
    size = 19 << 30
    hashes = [f"{number:064x}" for number in range(size // CHUNK)]
    manifest["files"]["weights-00002.safetensors"] = {"size": size, "sha256": hashes}
    part = {"file": "weights-00002.safetensors", "offset": 0, "length": size}
    manifest["weights"]["0" * 64] = {"bytes": size, "parts": [part]}
    content = json.dumps(manifest).encode()
    server.files["/bundle/manifest.json"] = content
    server.files["/bundle/manifest.sha256"] = f"{hashlib.sha256(content).hexdigest()}\n".encode()
    told = str(load(page, maxWeightBytes=2**36))
    assert re.match(
        r"storage: .* 20412\.1 MB of the bundle beside the .* in use: it gives this origin [\d.]+ MB\. ", told
    )
    assert not server.sent[WEIGHTS]


def test_a_full_storage_is_told(served: tuple[Page, Server]):
    """One chunk has room, and not two."""
    page, server = served
    page.send("Storage.overrideQuotaForOrigin", {"origin": server.url.rstrip("/"), "quotaSize": 6_000_000})
    told = str(load(page))
    assert re.match(r"storage: .* 4\.2 MB of the bundle beside the 4\.2 MB in use: Quota exceeded\. Free", told)
    assert server.sent[WEIGHTS]
    assert load(page, cache=False) is True


def test_what_is_stored_needs_no_room(served: tuple[Page, Server]):
    page, _ = served
    assert load(page) is True
    page.evaluate("StorageManager.prototype.estimate = async () => ({ usage: 6e6, quota: 6e6 })")
    assert load(page) is True
