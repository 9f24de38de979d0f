"""shaderloom.js: large pieces are hashed by a worker, and by the page's own thread where none runs.

Covers: runtime/web/shaderloom/hashing.js, runtime/web/shaderloom/hashing_worker.js.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.format import CHUNK

from ..support.bundles import copy_bundle
from .conftest import OpenBundle

FLOATS = 2_750_000

#: With workers, without, and where they do not start: the outcome of a load, and the largest piece that the page hashes
LOADS = """async () => {
  const { load } = await import("/shaderloom.js");
  const digest = crypto.subtle.digest;
  let largest = 0;
  crypto.subtle.digest = function (algorithm, bytes) {
    largest = Math.max(largest, bytes.byteLength);
    return digest.call(crypto.subtle, algorithm, bytes);
  };
  const Original = globalThis.Worker;
  class Missing extends Original {
    constructor(url, options) {
      super("/missing.js", options);
    }
  }
  const loads = [];
  for (const kind of KINDS) {
    largest = 0;
    globalThis.Worker = kind;
    const outcome = await load("/bundle/").then(async (session) => {
      const { y } = await session.run({ x: new Float32Array([0.5]) });
      session.dispose();
      return y.data.every((value, at) => value === (at % 1000) + 0.5);
    }, ({ kind, message }) => `${kind}: ${message}`);
    loads.push([outcome, largest]);
  }
  return loads;
}"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose weights are three chunks."""
    path = tmp_path_factory.mktemp("large") / "b"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[{FLOATS}] y) {{ y = Add(x, w) }}'
    model = onnx.parser.parse_model(text)
    table = (np.arange(FLOATS) % 1000).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
    compile_bundle(model, path)
    return path


def test_the_page_hashes_no_large_piece(open_bundle: OpenBundle, bundle: Path):
    ((outcome, largest),) = open_bundle(bundle).evaluate(f"({LOADS.replace('KINDS', '[Original]')})()")
    assert outcome is True
    assert 0 < largest < 2**20


@pytest.mark.parametrize("kind", ["undefined", "Missing"])
def test_without_a_worker_the_page_hashes(open_bundle: OpenBundle, bundle: Path, kind: str):
    """Twice: the second load asks no worker that did not start."""
    loads = open_bundle(bundle).evaluate(f"({LOADS.replace('KINDS', f'[{kind}, {kind}]')})()")
    assert loads == [[True, CHUNK]] * 2


def test_damage_is_found_by_a_worker(open_bundle: OpenBundle, bundle: Path, tmp_path: Path):
    path = copy_bundle(bundle, tmp_path / "b")
    (weights,) = path.glob("weights-*")
    content = bytearray(weights.read_bytes())
    content[CHUNK + 1] ^= 1
    weights.write_bytes(content)
    ((outcome, largest),) = open_bundle(path).evaluate(f"({LOADS.replace('KINDS', '[Original]')})()")
    assert outcome == "bundle: 'weights-00001.safetensors' is damaged: its hash differs from the bundle's"
    assert largest < 2**20
