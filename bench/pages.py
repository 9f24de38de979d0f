"""What a page takes with each runtime for browsers: files, a first run, memory, and tasks that keep it from answering.

    python -m bench.pages [--models A,B] [--rounds N]

Each measurement is a new Chromium with a page of its own; runtimes take turns.  Processor time is that of all of the
browser's processes from the page's start to the first outputs, and memory what they have then beyond an empty page
(proportional set size).  The table of docs/guide/web.md is written from the results.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import json
import os
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from shaderloom.bundles.compile import compile_bundle
from tests.web.chromium import Chromium, Page, PageError, find_chromium

from .chosen import chosen
from .models import MODELS
from .runtimes import BUILD

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "pages.json"
GUIDE = ROOT / "docs" / "guide" / "web.md"
BEGIN, END = "<!-- measured by python -m bench.pages -->", "<!-- end of what is measured -->"
PACKAGES = ("onnxruntime-web@1.30.0", "@huggingface/transformers@4.3.2")
PATIENCE = 600.0
#: From this many milliseconds a task keeps a page from answering
LONG_TASK_MS = 50

_PAGE = """<!doctype html><title>benchmark</title><link rel=icon href="data:,">
<script type="importmap">{"imports": {"onnxruntime-common": "./common/dist/esm/index.js",
  "onnxruntime-web/webgpu": "./ort/ort.webgpu.bundle.min.mjs", "onnxruntime-web": "./ort/ort.webgpu.bundle.min.mjs"}}
</script>
<script type="module">
const tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries())).observe({ type: "longtask", buffered: true });
let run, opened;
globalThis.start = async (feeds) => {
  const arrays = feeds.map(({ name, dtype, dims }) => {
    const length = dims.reduce((product, dim) => product * dim, 1);
    const data = dtype === "int64" ? new BigInt64Array(length).fill(1n) : new Float32Array(length);
    return { name, dtype, dims, data };
  });
  const { open } = await import("./open.js");
  run = await open(arrays);
  opened = performance.now();
  const outputs = await run();
  const loading = tasks.filter(({ startTime }) => startTime < opened).map(({ duration }) => duration);
  return { outputs, first_ms: performance.now(), longest_loading_task_ms: Math.max(0, ...loading) };
};
globalThis.repeat = async () => {
  for (let count = 0; count < 3; count++) await run();
  await new Promise((resolve) => setTimeout(resolve, 300));
  const after = tasks.filter(({ startTime }) => startTime >= opened).map(({ duration }) => duration);
  return { longest_task_ms: Math.max(0, ...after) };
};
</script>"""

_SCRIPTS = {
    "Shaderloom": """
import { load } from "./runtime/shaderloom.min.js";
export async function open(feeds) {
  const session = await load("./bundle/");
  const inputs = Object.fromEntries(feeds.map(({ name, data, dims }) => [name, { data, dims }]));
  return async () => Object.values(await session.run(inputs)).map(({ data }) => data.length);
}""",
    "onnxruntime-web 1.30": """
import * as ort from "./runtime/ort.webgpu.min.mjs";
ort.env.wasm.wasmPaths = new URL("./runtime/", import.meta.url).href;
ort.env.wasm.numThreads = 1;
export async function open(feeds) {
  const file = "./models/model/onnx/model.onnx";
  const session = await ort.InferenceSession.create(file, { executionProviders: ["webgpu"] });
  const inputs = {};
  for (const { name, dtype, data, dims } of feeds) inputs[name] = new ort.Tensor(dtype, data, dims);
  return async () => {
    const outputs = Object.values(await session.run(inputs));
    return (await Promise.all(outputs.map((output) => output.getData()))).map((data) => data.length);
  };
}""",
    "transformers.js 4.3": """
import { AutoModel, Tensor, env } from "./runtime/transformers.web.min.js";
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = new URL("./models/", import.meta.url).href;
env.useBrowserCache = false;
env.backends.onnx.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
env.backends.onnx.wasm.numThreads = 1;
export async function open(feeds) {
  const model = await AutoModel.from_pretrained("model", { device: "webgpu", dtype: "fp32" });
  const inputs = Object.fromEntries(feeds.map(({ name, dtype, data, dims }) => [name, new Tensor(dtype, data, dims)]));
  return async () => Object.values(await model(inputs)).map(({ data }) => data.length);
}""",
}


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and notes the files of the runtimes that were asked for."""

    extensions_map: ClassVar[dict[str, str]] = {
        ".html": "text/html",
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        "": "application/octet-stream",
    }

    def __init__(self, *arguments: Any, asked: set[Path], **options: Any) -> None:
        self._asked = asked
        super().__init__(*arguments, **options)

    def send_head(self) -> Any:
        path = Path(self.translate_path(self.path))
        if path.suffix in (".js", ".mjs", ".wasm") and path.name != "open.js":
            self._asked.add(path.resolve())
        return super().send_head()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def opened(links: Mapping[str, Path], files: Mapping[str, str]) -> Iterator[tuple[Page, Chromium, set[Path]]]:
    """A page of a new browser over ``links`` (name: file or folder) and ``files``, with the scripts it asks for."""
    program = find_chromium()
    if program is None:
        raise RuntimeError("chromium is not installed")
    asked: set[Path] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in {"index.html": _PAGE, **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        for path, target in links.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(target.absolute())
        handler = functools.partial(_Handler, directory=name, asked=asked)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with Chromium(program) as browser, browser.open(f"http://127.0.0.1:{server.server_port}/") as page:
                yield page, browser, asked
        finally:
            server.shutdown()
            server.server_close()


def processes(browser: Chromium) -> tuple[float, int]:
    """Processor seconds and bytes of a browser's processes, which are a session of their own."""
    session, tick = browser.pid, os.sysconf("SC_CLK_TCK")
    seconds, size = 0.0, 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            seconds += (int(fields[11]) + int(fields[12])) / tick
            lines = (folder / "smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        size += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return seconds, size


def measure(links: Mapping[str, Path], files: Mapping[str, str], feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """One start of a runtime."""
    packed = [{"name": name, "dtype": array.dtype.name, "dims": array.shape} for name, array in feeds.items()]
    with opened(links, files) as (page, browser, asked):
        before = processes(browser)
        try:
            started = page.call("start", packed, timeout=PATIENCE)
        except PageError as error:
            return {"error": str(error).partition("\n")[0]}
        after = processes(browser)
        repeated = page.call("repeat", timeout=PATIENCE)
        contents = [path.read_bytes() for path in asked]
    return {
        **started,
        **repeated,
        "load": os.getloadavg()[0],
        "cpu_s": after[0] - before[0],
        "memory_bytes": after[1] - before[1],
        "files": sorted(path.name for path in asked),
        "shipped_bytes": sum(map(len, contents)),
        "shipped_gzip_bytes": sum(len(gzip.compress(content, 6)) for content in contents),
    }


def starts(name: str, peers: Path, package: Path, bundle: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """What measures each runtime with a model."""
    model = MODELS[name]
    modules = peers / "node_modules"
    transformers = modules / "@huggingface" / "transformers"
    nested = transformers / "node_modules" / "onnxruntime-web" / "dist"
    file = {"models/model/onnx/model.onnx": model.locate()}
    links = {
        "Shaderloom": {"runtime": package, "bundle": bundle},
        "onnxruntime-web 1.30": {"runtime": modules / "onnxruntime-web" / "dist", **file},
        "transformers.js 4.3": {"runtime": transformers / "dist", "ort": nested, **file,
                                "common": modules / "onnxruntime-common"},
    }  # fmt: skip
    config = {"models/model/config.json": json.dumps({"model_type": "bert"})}
    return {
        runtime: functools.partial(
            measure, links[runtime], {"open.js": script, **(config if "transformers" in runtime else {})}, model.feeds()
        )
        for runtime, script in _SCRIPTS.items()
    }


def table(results: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> str:
    """The rows of every model and runtime: medians of the rounds."""
    lines = [
        "| model | runtime | JavaScript and WebAssembly | gzipped | processor time to the first outputs | memory | "
        f"longest task of over {LONG_TASK_MS} ms after loading |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, runtimes in results.items():
        for runtime, rounds in runtimes.items():

            def median(key: str, rounds: list[dict[str, Any]] = rounds) -> float:
                return statistics.median(item[key] for item in rounds)

            if "error" in rounds[0]:
                lines.append(f"| {model} | {runtime} | {rounds[0]['error']} | | | | |")
                continue
            task = median("longest_task_ms")
            cells = (
                f"{median('shipped_bytes') / 1e3:,.0f} KB",
                f"{median('shipped_gzip_bytes') / 1e3:,.0f} KB",
                f"{median('cpu_s'):.1f} s",
                f"{median('memory_bytes') / 1e6:,.0f} MB",
                f"{task:.0f} ms" if task else "none",
            )
            lines.append(f"| {model} | {runtime} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pages")
    parser.add_argument("--models", default="squeezenet1_1,bert_small")
    parser.add_argument("--runtimes", default=",".join(_SCRIPTS), help="what is not measured stays as it is stored")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", action="store_true", help="write the table again from what is stored")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    if not arguments.page:
        results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        models = chosen(arguments.models, {name: name for name in MODELS})
        runtimes = chosen(arguments.runtimes, {name: name for name in _SCRIPTS})
        for name, measured in run(models, runtimes, arguments.rounds).items():
            results[name] = {**results.get(name, {}), **measured}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    GUIDE.write_text(f"{before}{BEGIN}\n\n{table(json.loads(RESULTS.read_text()))}\n\n{END}{rest.partition(END)[2]}")


def install_peers() -> Path:
    """The folder in which npm has the other runtimes."""
    peers = BUILD / "peers" / "pages"
    if not (peers / "installed").is_file():
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--omit=optional")
        subprocess.run(["npm", "install", *options, "--prefix", str(peers), *PACKAGES], check=True)
        (peers / "installed").touch()
    return peers


def package_of(folder: Path) -> Path:
    """The npm package of the runner, built in a folder."""
    subprocess.run([ROOT / "dev", "npm", folder / "package"], check=True)
    return folder / "package"


def run(models: list[str], runtimes: list[str], rounds: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Measure all runtimes in turns."""
    peers = install_peers()
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        package = package_of(Path(scratch))
        for name in models:
            bundle, shapes = Path(scratch) / name, {key: value.shape for key, value in MODELS[name].feeds().items()}
            compile_bundle(MODELS[name].locate(), bundle, shapes=[shapes], target="web-software")
            work = starts(name, peers, package, bundle)
            results[name] = {runtime: [] for runtime in runtimes}
            for _ in range(rounds):
                for runtime in runtimes:
                    results[name][runtime].append(work[runtime]())
                    print(name, runtime, results[name][runtime][-1], flush=True)
    return results


if __name__ == "__main__":
    main()
