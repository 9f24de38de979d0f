"""Bundles of whole models in Chromium beside sessions of the models, and a decode that a page drives.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.files import open_files
from shaderloom.serve.files import bundle_resources, runner_resources
from shaderloom.serve.site import Site

from ..support.bundle_models import MODELS, greedy_decode, speech_decoder, speech_encoder
from ..support.comparison import relative_error
from .conftest import EMPTY

pytestmark = pytest.mark.slow

#: Arrays as they go between Python and a page, and as a page has them
CODEC = """
globalThis.ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array };
globalThis.decoded = (feeds) => Object.fromEntries(Object.entries(feeds).map(([name, { dtype, dims, bytes }]) =>
  [name, { data: new ARRAYS[dtype](Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)).buffer), dims }]));
globalThis.encoded = (outputs) => Object.fromEntries(Object.entries(outputs).map(([name, { dtype, dims, data }]) => {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return [name, { dtype, dims, bytes: btoa(text) }];
}));
"""

RUN = """async (feeds) => {
  const { load } = await import("/shaderloom.js");
  globalThis.session ??= await load("/bundle/");
  return encoded(await session.run(decoded(feeds)));
}"""

#: As :func:`greedy_decode` does; what one run gives the next stays on the device
DECODE = """async (feeds, count) => {
  const { load } = await import("/shaderloom.js");
  const encoder = await load("/encoder/");
  const decoder = await load("/decoder/", { device: encoder.device });
  const { last_hidden_state: hidden } = await encoder.run(decoded(feeds), { location: "gpu" });
  const names = decoder.outputs.map(({ name }) => name).filter((name) => name !== "logits");
  const cacheOf = (name) => name.replace("present", "past_key_values");
  const none = { data: new Float32Array(0), dims: [1, 4, 0, 16] };
  const caches = Object.fromEntries(names.map((name) => [cacheOf(name), none]));
  const location = Object.fromEntries(names.map((name) => [name, "gpu"]));
  const [tokens, logits] = [[], []];
  let token = 3;
  for (let step = 0; step < count; step++) {
    const outputs = await decoder.run({
      input_ids: { data: new BigInt64Array([BigInt(token)]), dims: [1, 1] }, encoder_hidden_states: hidden,
      use_cache_branch: new Uint8Array([step > 0]), ...caches,
    }, { location });
    const row = outputs.logits.data;
    logits.push(Array.from(row));
    token = row.indexOf(Math.max(...row));
    tokens.push(token);
    for (const name of names) {
      if (step === 0 || name.includes(".decoder.")) caches[cacheOf(name)] = outputs[name];
    }
  }
  return { tokens, logits };
}"""


def encoded(feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        name: {
            "dtype": array.dtype.name,
            "dims": list(array.shape),
            "bytes": base64.b64encode(array.tobytes()).decode(),
        }
        for name, array in feeds.items()
    }


def decoded(output: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(output["bytes"]), output["dtype"]).reshape(output["dims"])


@pytest.mark.parametrize("name", MODELS)
def test_bundles_give_what_sessions_give(open_bundle, device, tmp_path, name):
    model = MODELS[name]()
    compile_bundle(model.model, tmp_path / "b", **model.options)
    page = open_bundle(tmp_path / "b")
    page.evaluate(CODEC)
    with shaderloom.InferenceSession(model.model, device=device, cache=False, dynamic=model.dynamic or None) as session:
        names = [port.name for port in session.get_outputs()]
        for feeds in model.feeds:
            outputs = page.call(RUN, encoded(feeds))
            for output, expected in zip(names, session.run(names, feeds), strict=True):
                actual = decoded(outputs[output])
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), output
                if actual.dtype.kind == "f":
                    assert relative_error(actual, expected) <= model.tolerance, output
                else:
                    np.testing.assert_array_equal(actual, expected)
    assert page.messages == []


def test_a_page_drives_a_decode(browser, device, tmp_path):
    models = {"encoder": speech_encoder(), "decoder": speech_decoder()}
    resources, opened = {**EMPTY, **runner_resources()}, []
    for name, model in models.items():
        compile_bundle(model.model, tmp_path / name, **model.options)
        opened.append(open_files(tmp_path / name))
        resources |= bundle_resources(opened[-1], f"/{name}/")
    with Site(resources) as site, browser.open(site.url + "empty.html") as page:
        page.evaluate(CODEC)
        results = page.call(DECODE, encoded(models["encoder"].feeds[0]), 10)
        assert page.messages == []
    for files in opened:
        files.close()
    encoder, decoder = (
        shaderloom.InferenceSession(model.model, device=device, cache=False, dynamic=model.dynamic or None)
        for model in models.values()
    )
    with encoder, decoder:
        tokens, logits = greedy_decode(encoder, decoder, 10)
    assert results["tokens"] == tokens
    assert relative_error(np.array(results["logits"], np.float32), logits) <= 1e-4
