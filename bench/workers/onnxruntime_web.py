"""onnxruntime-web's WebGPU provider in a page; nodes that it does not have run on its WebAssembly provider."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bench.runtimes import RUNTIMES
from bench.workers.browser import open_page
from bench.workers.protocol import Job, Opened, serve

_SCRIPT = """
import * as ort from "./dist/ort.webgpu.min.mjs";
ort.env.wasm.wasmPaths = new URL("./dist/", import.meta.url).href;
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
const names = NAMES;
export async function open(feeds) {
  const session = await ort.InferenceSession.create("./model.onnx", { executionProviders: ["webgpu"] });
  const inputs = {};
  for (const { name, dtype, data, dims } of feeds) inputs[name] = new ort.Tensor(dtype, data, dims);
  return async () => {
    const outputs = await session.run(inputs);
    return Promise.all(names.map(async (name) => ({ data: await outputs[name].getData(), dims: outputs[name].dims })));
  };
}
"""


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    package = RUNTIMES["onnxruntime-web"].folder / "node_modules" / "onnxruntime-web"
    version = json.loads((package / "package.json").read_text())["version"]
    facts = {"version": version, "device": "WebGPU in Chromium"}
    script = _SCRIPT.replace("NAMES", json.dumps(job.output_names))
    return open_page(script, {"dist": package / "dist", "model.onnx": Path(job.model)}, feeds, lambda _: facts)


if __name__ == "__main__":
    serve(open_model)
