"""Tokens a second of a folder in a page, under transformers.js and under Shaderloom, in turns.

    python -m bench.page_tokens FOLDER [--prompt 16] [--tokens 8] [--rounds 3]

Each runtime has a Chromium of its own with the model open, both with WebGPU on SwiftShader; a round is one text of
each, as in :mod:`.tokens`.  transformers.js reads the folder's model with its weights in one file, and settings made of
its inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from shaderloom.generate.bundling import compile_generator
from shaderloom.generate.decoder import DecoderForm
from shaderloom.generate.folder import ModelFolder

from .pages import PATIENCE, install_peers, opened, package_of
from .runtimes import Runtime
from .tokens import OURS, VOCABULARY, store

TRANSFORMERS = Runtime("transformers.js", "transformers.js 4.3 in Chromium", "pages")

_OURS_SCRIPT = """
import { loadGenerator } from "./runtime/modules/generate.js";
const generator = await loadGenerator("./bundle/");
globalThis.text = async (ids, count) => {
  generator.rewind(0);
  const generation = generator.generate(ids, { maxNewTokens: count });
  for await (const _ of generation);
  const { firstTokenSeconds, decodeSeconds } = generation.statistics;
  return { first_s: firstTokenSeconds, others_s: decodeSeconds, tokens: generation.tokens };
};"""
_TRANSFORMERS_SCRIPT = """
import { AutoModelForCausalLM, Tensor, env } from "./runtime/transformers.web.min.js";
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = new URL("./models/", import.meta.url).href;
env.useBrowserCache = false;
env.backends.onnx.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
env.backends.onnx.wasm.numThreads = 1;
const model = await AutoModelForCausalLM.from_pretrained("model", { device: "webgpu", dtype: "fp32" });
globalThis.text = async (ids, count) => {
  const dims = [1, ids.length], times = [];
  const input_ids = new Tensor("int64", BigInt64Array.from(ids, BigInt), dims);
  const attention_mask = new Tensor("int64", new BigInt64Array(ids.length).fill(1n), dims);
  const streamer = { put: () => times.push(performance.now()), end: () => {} };
  const options = { max_new_tokens: count, do_sample: false, streamer };
  const output = await model.generate({ input_ids, attention_mask, ...options });
  const [start, first] = times;
  const tokens = Array.from(output.data, Number).slice(ids.length);
  return { first_s: (first - start) / 1e3, others_s: (times.at(-1) - first) / 1e3, tokens };
};"""


def settings_of(folder: Path) -> dict[str, Any]:
    """Return what transformers.js has to know of a decoder: the sizes of its caches."""
    form = DecoderForm(ModelFolder.read(folder), None, False)
    _, heads, size, _ = next(iter(form.layout.values()))
    return {
        "model_type": "llama",
        "num_hidden_layers": len(form.layout) // 2,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": size,
        "hidden_size": heads * size,
        "vocab_size": form.vocabulary,
    }


def measure(folder: Path, prompt: int, count: int, rounds: int) -> dict[str, Any]:
    """Return the times of each runtime in each round."""
    ids = np.random.default_rng(0).integers(10, VOCABULARY, prompt).tolist()
    modules = install_peers() / "node_modules"
    peer = modules / "@huggingface" / "transformers"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        scratch = Path(name)
        onnx.save(onnx.load(ModelFolder.read(folder).model), scratch / "model.onnx")
        compile_generator(folder, scratch / "bundle", max_length=512, target="web-software")
        places = {
            TRANSFORMERS.name: {
                "runtime": peer / "dist",
                "ort": peer / "node_modules" / "onnxruntime-web" / "dist",
                "common": modules / "onnxruntime-common",
                "models/model/onnx/model.onnx": scratch / "model.onnx",
            },
            OURS.name: {"runtime": package_of(scratch), "bundle": scratch / "bundle"},
        }
        files = {
            TRANSFORMERS.name: {
                "open.js": _TRANSFORMERS_SCRIPT,
                "models/model/config.json": json.dumps(settings_of(folder)),
            },
            OURS.name: {"open.js": _OURS_SCRIPT},
        }
        pages = {name: stack.enter_context(opened(places[name], files[name]))[0] for name in places}
        for page in pages.values():
            page.call('() => import("./open.js").then(() => null)', timeout=PATIENCE)
            page.call("text", ids, 2, timeout=PATIENCE)
        texts = [
            {name: page.call("text", ids, count, timeout=PATIENCE) for name, page in pages.items()}
            for _ in range(rounds)
        ]
    device = {"device": "SwiftShader, in Chromium"}
    return {
        "prompt": prompt,
        "count": count,
        "rounds": rounds,
        "opened": dict.fromkeys(pages, device),
        "texts": texts,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.page_tokens")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    measured = measure(arguments.folder, arguments.prompt, arguments.tokens, arguments.rounds)
    store(f"{arguments.folder.name}, chromium", measured, TRANSFORMERS)


if __name__ == "__main__":
    main()
