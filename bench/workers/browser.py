"""Runtimes in a page: a headless Chromium, a local server, and a page that opens a model and runs it.

The page imports a script with ``open(feeds)``, which gives ``run()``; that gives the outputs as typed arrays, in the
model's order.  A run is timed by the page, from the call until the outputs are in its memory, and so is a start: from
the page's navigation, in a browser that has just started.  Processes with one home share the browser's profile, with
its caches, and the page's address.
"""

from __future__ import annotations

import base64
import functools
import http.server
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.workers.protocol import Opened
from tests.web.chromium import Chromium, find_chromium

#: Seconds that opening a model or one run may take
PATIENCE = 300.0

_PAGE = """<!doctype html><title>benchmark</title><link rel=icon href="data:,"><script type="module">
import { open } from "./open.js";
const kinds = {
  float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, int8: Int8Array, bool: Uint8Array,
};
const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
const text = (array) => {
  const view = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let result = "";
  for (let at = 0; at < view.length; at += 32768) result += String.fromCharCode(...view.subarray(at, at + 32768));
  return btoa(result);
};
let run;
const loaded = performance.now();
const started = {};
async function timed(name, work) {
  const start = performance.now();
  const result = await work();
  started[name] ??= (performance.now() - start) / 1e3;
  return result;
}
globalThis.bench = {
  async open(feeds) {
    for (const feed of feeds) feed.data = new kinds[feed.dtype](bytes(feed.data).buffer);
    run = await timed("create_s", () => open(feeds));
  },
  async outputs() {
    const kind = (array) => Object.keys(kinds).find((name) => array instanceof kinds[name]);
    const outputs = await timed("first_s", run);
    return outputs.map(({ data, dims }) => ({ data: text(data), dtype: kind(data), dims }));
  },
  started: () => ({ ...started, start_s: loaded / 1e3 + started.create_s + started.first_s }),
  async time() {
    const start = performance.now();
    await run();
    return performance.now() - start;
  },
};
globalThis.ready = true;
</script>"""


class _PageHandler(http.server.SimpleHTTPRequestHandler):
    def guess_type(self, path: Any) -> str:
        suffixes = {
            ".html": "text/html",
            ".js": "text/javascript",
            ".mjs": "text/javascript",
            ".wasm": "application/wasm",
        }
        return suffixes.get(Path(path).suffix, "application/octet-stream")

    def log_message(self, *_: object) -> None:
        pass


def open_page(
    script: str, links: Mapping[str, Path], feeds: Mapping[str, np.ndarray], facts: Callable[[Any], dict[str, Any]]
) -> Opened:
    """Serve ``links`` (name: file or folder) beside ``script``, and open it in a page of a new browser.

    Raises RuntimeError without Chromium.  ``facts`` is asked for what is known of the page's runtime.
    """
    program = find_chromium()
    if program is None:
        raise RuntimeError("chromium is not installed")
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    (root / "index.html").write_text(_PAGE)
    (root / "open.js").write_text(script)
    for name, target in links.items():
        (root / name).symlink_to(target.absolute())
    profile = Path.home() / ".cache" / "bench-browser"
    server = _serve(folder.name, profile / "port")
    browser = Chromium(program, profile / "profile")
    page = browser.open(f"http://127.0.0.1:{server.server_port}/index.html")
    page.wait_for("globalThis.ready")
    packed = [
        {
            "name": name,
            "dtype": array.dtype.name,
            "dims": list(array.shape),
            "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
        }
        for name, array in feeds.items()
    ]
    page.call("bench.open", packed, timeout=PATIENCE)

    def run() -> list[np.ndarray]:
        return [
            np.frombuffer(base64.b64decode(item["data"]), item["dtype"]).reshape(item["dims"])
            for item in page.evaluate("bench.outputs()", timeout=PATIENCE)
        ]

    def finish() -> dict[str, Any]:
        browser.close()
        server.shutdown()
        folder.cleanup()
        return {}

    return Opened(
        run,
        facts(page),
        finish,
        time=lambda: float(page.evaluate("bench.time()", timeout=PATIENCE)),
        started=lambda: dict(page.evaluate("bench.started()")),
    )


def _serve(folder: str, port: Path) -> http.server.ThreadingHTTPServer:
    """Serve ``folder`` on a thread: at the port in the file ``port``, by which browsers know their caches, if that is
    there and free.
    """
    handler = functools.partial(_PageHandler, directory=folder)
    port.parent.mkdir(parents=True, exist_ok=True)
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port.read_text())), handler)
    except (OSError, ValueError):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    port.write_text(str(server.server_port))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
