"""What runtimes for browsers do in a page beyond a first run: control flow, outputs on the GPU, damage, storage, loss.

    python -m bench.page_features [--probes A,B] [--runtimes A,B]

Each measurement is a new Chromium with one page, the same for all runtimes; what differs is how each opens a model.
The page counts what it reads from the GPU and what buffers it makes, the server what it sends.  The table of
docs/guide/web.md is written from the results.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser

from shaderloom.bundles.compile import compile_bundle
from tests.web.chromium import Chromium, Page, PageError, find_chromium

from .models import MODELS
from .pages import GUIDE, ROOT, install_peers, package_of

PAGE = ROOT / "bench" / "workers" / "page_features.html"
RESULTS = ROOT / "bench" / "results" / "page-features.json"
BEGIN, END = "<!-- measured by python -m bench.page_features -->", "<!-- end of the features measured -->"
#: Seconds for a probe, and for what may never end in a page
PATIENCE, HANGS_MS = 300.0, 20_000
ITERATIONS = 12
CONTROL = """
<ir_version: 8, opset_import: ["" : 17]>
control (float[64, 64] x, int64 k, bool c) => (float[64, 64] y) {
    z = Loop (k, , x) < body = b (int64 i, bool go, float[64, 64] v) => (bool on, float[64, 64] u) {
        on = Identity(go)  m = MatMul(v, w)  u = Tanh(m) } >
    y = If (c) < then_branch = t () => (float[64, 64] p) { p = MatMul(z, w) },
                 else_branch = e () => (float[64, 64] q) { q = Neg(z) } >
}
"""
PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
plain (float[64, 64] x) => (float[64, 64] y) { m = MatMul(x, w)  y = Tanh(m) }
"""
#: A model of several chunks of weights, for what is stored and shared
LARGE = "mobilenet_v2"

_SCRIPTS = {
    "Shaderloom": """
import { load } from "./runtime/shaderloom.min.js";
export async function open(name, { gpu, cache, beside }) {
  const session = await load(`./models/${name}.bundle/`, { cache, device: beside?.device });
  return {
    device: session.device,
    recover: () => session.recover(),
    async run(feeds) {
      const inputs = Object.fromEntries(feeds.map(({ name, data, dims }) => [name, { data, dims }]));
      const outputs = await session.run(inputs, { location: gpu ? "gpu" : "cpu" });
      return Object.values(outputs).map(({ data, buffer }) => ({ data, location: buffer ? "gpu" : "cpu" }));
    },
  };
}""",
    "onnxruntime-web 1.30": """
import * as ort from "./runtime/ort.webgpu.min.mjs";
ort.env.wasm.wasmPaths = new URL("./runtime/", import.meta.url).href;
ort.env.wasm.numThreads = 1;
export async function open(name, { gpu }) {
  const session = await ort.InferenceSession.create(`./models/${name}/onnx/model.onnx`, {
    executionProviders: ["webgpu"], preferredOutputLocation: gpu ? "gpu-buffer" : "cpu" });
  return {
    async run(feeds) {
      const inputs = {};
      for (const { name, dtype, data, dims } of feeds) inputs[name] = new ort.Tensor(dtype, data, dims);
      return Object.values(await session.run(inputs)).map((tensor) => tensor.location === "gpu-buffer"
        ? { location: "gpu" } : { location: tensor.location, data: tensor.data });
    },
  };
}""",
    "transformers.js 4.3": """
import { AutoModel, Tensor, env } from "./runtime/transformers.web.min.js";
env.allowLocalModels = false;
env.remoteHost = new URL("./models/", import.meta.url).href;
env.remotePathTemplate = "{model}/";
env.backends.onnx.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
env.backends.onnx.wasm.numThreads = 1;
export async function open(name, { gpu, cache }) {
  env.useBrowserCache = Boolean(cache);
  const model = await AutoModel.from_pretrained(name, { device: "webgpu", dtype: "fp32",
    session_options: { preferredOutputLocation: gpu ? "gpu-buffer" : "cpu" } });
  return {
    async run(feeds) {
      const inputs = {};
      for (const { name, dtype, data, dims } of feeds) inputs[name] = new Tensor(dtype, data, dims);
      return Object.values(await model(inputs)).map((tensor) => tensor.location === "gpu-buffer"
        ? { location: "gpu" } : { location: tensor.location, data: tensor.data });
    },
  };
}""",
}


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder with ranges.  ``sent`` counts the bytes of models; ``damage`` flips a bit of a file at an offset,
    and ``limit`` ends its answer there."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent = 0
        self.damage: tuple[str, int] | None = None
        self.limit: tuple[str, int] | None = None
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that the browser closed."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    _TYPES: ClassVar[dict[str, str]] = {
        ".html": "text/html",
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".json": "application/json",
    }

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.server.folder / (self.path.partition("?")[0].lstrip("/") or "index.html")
        if not path.is_file():
            self.send_error(404)
            return
        content = bytearray(path.read_bytes())
        if self.server.damage and path.name == self.server.damage[0]:
            content[self.server.damage[1]] ^= 1
        first, last = 0, len(content) - 1
        if asked := self.headers.get("Range"):
            low, _, high = asked.removeprefix("bytes=").partition("-")
            first, last = int(low), int(high or last)
        body = bytes(content[first : last + 1])
        self.send_response(206 if asked else 200)
        self.send_header("Content-Type", self._TYPES.get(path.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(body)))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "HEAD":
            return
        limit = self.server.limit
        is_ended = limit is not None and path.name == limit[0]
        if limit is not None and is_ended:
            body = body[: limit[1]]
        try:
            self.wfile.write(body)
        except ConnectionError:
            return
        if "/models/" in self.path:
            self.server.sent += len(body)
        self.close_connection = is_ended or self.close_connection

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Page, Server]]:
    """A page of a new browser."""
    program = find_chromium()
    if program is None:
        raise RuntimeError("chromium is not installed")
    server = Server(folder)
    try:
        with Chromium(program) as browser, browser.open(server.url) as page:
            page.wait_for("globalThis.ready")
            yield page, server
    finally:
        server.shutdown()
        server.server_close()


def weighted(text: str) -> onnx.ModelProto:
    """The model of a text, with 64 x 64 weights named ``w``."""
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


def packed(feeds: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    return [
        {"name": name, "dtype": array.dtype.name, "dims": array.shape, "data": array.ravel().tolist()}
        for name, array in feeds.items()
    ]


class Models:
    """The models of the probes, as ONNX files and as bundles, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        x = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
        self.feeds = {
            "plain": {"x": x},
            "control": {"x": x, "k": np.array(ITERATIONS), "c": np.array(True)},
        }
        self.protos = {"plain": weighted(PLAIN), "control": weighted(CONTROL)}
        for name, model in self.protos.items():
            self._add(name, model.SerializeToString())
            compile_bundle(
                model,
                folder / f"{name}.bundle",
                shapes=[{key: value.shape for key, value in self.feeds[name].items()}],
                target="web-software",
                ranges={"k": (0, 64)} if name == "control" else {},
            )
        large = MODELS[LARGE]
        self._add("large", large.locate().read_bytes())
        shapes = {key: value.shape for key, value in large.feeds().items()}
        compile_bundle(large.locate(), folder / "large.bundle", shapes=[shapes], target="web-software")

    def _add(self, name: str, content: bytes) -> None:
        path = self.folder / name / "onnx" / "model.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        (self.folder / name / "config.json").write_text(json.dumps({"model_type": "bert"}))

    def expected(self, name: str) -> np.ndarray:
        """The output in double precision."""
        weight = onnx.numpy_helper.to_array(self.protos[name].graph.initializer[0]).astype(np.float64)
        value = self.feeds[name]["x"].astype(np.float64)
        for _ in range(ITERATIONS if name == "control" else 1):
            value = np.tanh(value @ weight)
        return value @ weight if name == "control" else value


def call(page: Page, probe: str, *arguments: Any) -> Any:
    try:
        return page.call(f"(values) => probes.{probe}(values)", list(arguments), timeout=PATIENCE)
    except PageError as error:
        return {"error": str(error).partition("\n")[0][:200]}


def probe_run(
    folder: Path, models: Models, name: str, gpu: bool, damage: tuple[str, int] | None = None
) -> dict[str, Any]:
    """The reads of a run, and how far its output is from that in double precision."""
    with opened(folder) as (page, server):
        server.damage = damage
        result = call(page, "run", name, packed(models.feeds[name]), gpu)
    data = result.pop("data", None)
    if data is not None:
        result["difference"] = float(np.abs(np.array(data) - models.expected(name).ravel()).max())
    return result


def probe_damage(folder: Path, models: Models, name: str) -> dict[str, Any]:
    """A run of a model of which one bit of a weight's exponent is flipped on its way."""
    file, content = weights_file(folder, name)
    weight = onnx.numpy_helper.to_array(models.protos["plain"].graph.initializer[0]).tobytes()
    place = content.find(weight[:64])
    assert place >= 0, "the weights are stored as they are"
    return probe_run(folder, models, "plain", False, (file, place + 3))


def weights_file(folder: Path, runtime: str) -> tuple[str, bytes]:
    """The file with the weights of the small model, as a runtime asks for it."""
    models = folder / "models"
    (path,) = (
        (models / "plain.bundle").glob("weights-*") if runtime == "Shaderloom" else [models / "plain/onnx/model.onnx"]
    )
    return path.name, path.read_bytes()


def probe_storage(folder: Path, models: Models, name: str) -> dict[str, Any]:
    """Bytes that are sent to a second visit, and to one behind a transfer that broke within the weights."""
    bundle, onnx_file = folder / "models" / "large.bundle", folder / "models" / "large" / "onnx" / "model.onnx"
    (weights,) = bundle.glob("weights-*") if name == "Shaderloom" else [onnx_file]
    results: dict[str, Any] = {"file_bytes": weights.stat().st_size}
    with opened(folder) as (page, server):
        results["first"] = call(page, "load", "large", True)
        results["first_bytes"], server.sent = server.sent, 0
        page.load(server.url)
        page.wait_for("globalThis.ready")
        results["second"] = call(page, "load", "large", True)
        results["second_bytes"] = server.sent
    with opened(folder) as (page, server):
        server.limit = (weights.name, int(0.7 * weights.stat().st_size))
        results["broken"] = call(page, "load", "large", True)
        server.limit, server.sent = None, 0
        page.load(server.url)
        page.wait_for("globalThis.ready")
        results["resumed"] = call(page, "load", "large", True)
        results["resumed_bytes"] = server.sent
    return results


def probe_share(folder: Path, models: Models, name: str) -> dict[str, Any]:
    """Bytes of buffers that a first and a second session of a model make, before runs."""
    with opened(folder) as (page, _):
        return call(page, "share", "large")


def probe_loss(folder: Path, models: Models, name: str) -> dict[str, Any]:
    """What a run says whose device is lost, and a new attempt in the page behind that."""
    with opened(folder) as (page, _):
        return call(page, "lose", "plain", packed(models.feeds["plain"]), HANGS_MS)


PROBES = {
    "control flow": lambda folder, models, name: probe_run(folder, models, "control", False),
    "outputs": lambda folder, models, name: probe_run(folder, models, "plain", True),
    "damage": probe_damage,
    "storage": probe_storage,
    "sessions": probe_share,
    "loss": probe_loss,
}


def run(probes: list[str], runtimes: list[str]) -> dict[str, dict[str, Any]]:
    """The results of each probe by runtime."""
    peers = install_peers() / "node_modules"
    transformers = peers / "@huggingface" / "transformers"
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        (models_folder := Path(scratch) / "models").mkdir()
        models = Models(models_folder)
        links = {
            "Shaderloom": {"runtime": package_of(Path(scratch))},
            "onnxruntime-web 1.30": {"runtime": peers / "onnxruntime-web" / "dist"},
            "transformers.js 4.3": {
                "runtime": transformers / "dist",
                "ort": transformers / "node_modules" / "onnxruntime-web" / "dist",
                "common": peers / "onnxruntime-common",
            },
        }
        for runtime in runtimes:
            folder = Path(scratch) / runtime
            folder.mkdir()
            shutil.copy(PAGE, folder / "index.html")
            (folder / "open.js").write_text(_SCRIPTS[runtime])
            for path, target in {**links[runtime], "models": models_folder}.items():
                (folder / path).symlink_to(target.absolute())
            for probe in probes:
                measured = PROBES[probe](folder, models, runtime)
                results.setdefault(probe, {})[runtime] = measured
                print(probe, runtime, measured, flush=True)
    return results


def table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The rows of what was measured, a column for each runtime."""
    runtimes = list(_SCRIPTS)

    def row(label: str, probe: str, cell: Callable[[Mapping[str, Any]], str]) -> str:
        return f"| {label} | " + " | ".join(cell(results[probe][runtime]) for runtime in runtimes) + " |"

    def megabytes(key: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda measured: f"{measured[key] / 1e6:.1f} MB"

    return "\n".join(
        [
            f"| | {' | '.join(runtimes)} |",
            "|---|" + "---|" * len(runtimes),
            row(
                f"reads from the GPU in a run of a `Loop` of {ITERATIONS} iterations with an `If` behind it",
                "control flow",
                lambda measured: measured.get("error") or f"{measured['reads']}",
            ),
            row("bytes that a run reads whose output stays on the GPU", "outputs", lambda it: f"{it['read_bytes']}"),
            row(
                "a model of which one bit of a weight is flipped on its way",
                "damage",
                lambda it: "is refused" if "error" in it else f"runs; the output is off by {it['difference']:.2g}",
            ),
            row("a first visit fetches", "storage", megabytes("first_bytes")),
            row("a second one", "storage", megabytes("second_bytes")),
            row("one behind a transfer that broke at 70 %", "storage", megabytes("resumed_bytes")),
            row("buffers on the GPU after loading", "sessions", megabytes("first_bytes")),
            row("further ones for a second session on the device", "sessions", megabytes("second_bytes")),
            row("a run on a lost device", "loss", lambda measured: short(measured["run"])),
            row("a new attempt in the page (`recover()`, or a new session)", "loss", lambda it: short(it["again"])),
        ]
    )


def short(outcome: str) -> str:
    """An outcome without the text of its error."""
    return "an error" if outcome.startswith("error: ") else outcome


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.page_features")
    parser.add_argument("--probes", default=",".join(PROBES))
    parser.add_argument("--runtimes", default=",".join(_SCRIPTS), help="what is not measured stays as it is stored")
    parser.add_argument("--page", action="store_true", help="write the table again from what is stored")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    if not arguments.page:
        results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        for probe, measured in run(arguments.probes.split(","), arguments.runtimes.split(",")).items():
            results[probe] = {**results.get(probe, {}), **measured}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    GUIDE.write_text(f"{before}{BEGIN}\n\n{table(json.loads(RESULTS.read_text()))}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
