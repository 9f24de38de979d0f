"""Hostile manifests of further models in Chromium, with right digests, and their plans: an error of the runner's own.

Covers: runtime/web/shaderloom/files.js.
"""

from __future__ import annotations

import json

import pytest

from ..support.bundles import copy_bundle, files_of, further_bundle, seal
from ..support.effort import SOAK
from .attempts import Attempts, try_mutations
from .test_hostile_programs import FEEDS

#: Feeds of the models of the bundle, as JavaScript
MODELS = {
    "cache": "{ past: { data: new Float32Array(48).fill(1), dims: [2, 6, 4] }, row: new Float32Array(8),"
    " place: BigInt64Array.of(5n, 2n) }",
    "steps": FEEDS["steps"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return further_bundle(tmp_path_factory.mktemp("further") / "b", target="web-software")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "2.0"}, "format is version 2.0; this runner reads 3.x"),
        ({"plans": []}, "plans has neither a plan nor a program"),
        ({"limits": {"maxBufferSize": 1 << 52}}, "lacks what the bundle needs: maxBufferSize of"),
    ],
)
def test_what_a_further_model_says_is_checked(browser, folder, tmp_path, change, reason):
    path = copy_bundle(folder, tmp_path / "b")
    file = path / "models" / "cache.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **change}))
    seal(path)
    with Attempts(browser, [files_of(path)], MODELS["cache"], "cache") as attempts:
        outcome = attempts.outcome(0)
    assert outcome.kind in ("bundle", "device")
    assert reason in outcome.text


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("model", MODELS)
def test_random_mutations_end(browser, folder, model):
    """250 of each model: its manifest, whose programs are changed first, or its plan."""
    kinds = try_mutations(browser, folder, MODELS[model], 2500 if SOAK else 250, model)
    assert kinds["ran"] and kinds["bundle"] > 50, kinds
