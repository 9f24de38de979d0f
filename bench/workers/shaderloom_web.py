"""Shaderloom's runner for browsers with a bundle; creation includes compiling the bundle, which users do beforehand."""

from __future__ import annotations

import json
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from bench.workers.browser import open_page
from bench.workers.protocol import Job, Opened, serve

_SCRIPT = """
import { load } from "./shaderloom.js";
const names = NAMES;
export async function open(feeds) {
  const session = await load("./bundle/");
  const inputs = Object.fromEntries(feeds.map(({ name, data, dims }) => [name, { data, dims }]));
  return async () => {
    const outputs = await session.run(inputs);
    return names.map((name) => outputs[name]);
  };
}
"""


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import shaderloom
    from shaderloom.bundles.compile import compile_bundle

    scratch = tempfile.TemporaryDirectory()
    bundle = Path(scratch.name) / "model.shaderbundle"
    shapes = {name: array.shape for name, array in feeds.items()}
    start = time.perf_counter()
    compile_bundle(job.model, bundle, shapes=[shapes], target="web-software")
    compiled = time.perf_counter() - start
    script = _SCRIPT.replace("NAMES", json.dumps(job.output_names))
    runner = Path(str(files("shaderloom.runtime") / "web"))

    def facts(_: Any) -> dict[str, Any]:
        return {"version": shaderloom.__version__, "device": "WebGPU in Chromium", "bundle_s": compiled}

    links = {"shaderloom.js": runner / "shaderloom.js", "shaderloom": runner / "shaderloom", "bundle": bundle}
    opened = open_page(script, links, feeds, facts)
    finish = opened.finish

    def clean() -> dict[str, Any]:
        result = finish()
        scratch.cleanup()
        return result

    opened.finish = clean
    return opened


if __name__ == "__main__":
    serve(open_model)
