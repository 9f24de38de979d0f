"""Bundles that say which rows are independent: they are joined, and a false word is an error of its own runs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.batching.claimed_rows import ClaimedRows
from shaderloom.bundles.compile import compile_bundle
from shaderloom.bundles.session import load_bundle
from shaderloom.execution.plan_source import BatchPlan
from shaderloom.runtime.bundle.format import DIGEST, MANIFEST
from shaderloom.runtime.bundle.integrity import digest_line
from shaderloom.runtime.plan.batch_ports import BatchPorts
from shaderloom.runtime.plan.errors import BundleError, UnsupportedError
from shaderloom.runtime.plan.size_range import SizeRange

from ...support.patience import PATIENCE

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
MODEL = f"""{HEAD} g (float[batch, k, 4] x, float[4] b) => (float[batch, k, 4] y, float[k, batch] z) {{
    a = Add(x, b)
    y = Softmax<axis = -1>(a)
    last = Constant<value_ints = [2]>()
    s = ReduceSum<keepdims = 0>(a, last)
    z = Transpose<perm = [1, 0]>(s)
}}"""
MIXING = f"{HEAD} g (float[batch, 4] x) => (float[batch, 4] y) {{ y = Softmax<axis = 0>(x) }}"
FORMS: dict[str, dict[str, Any]] = {
    "some numbers of rows": {"shapes": [{"x": (rows, 3, 4)} for rows in (1, 4)]},
    "one number of rows": {"shapes": [{"x": (4, 3, 4)}]},
    "any number of rows": {"shapes": [{"x": (1, 3, 4)}], "dynamic": {"batch": (1, 64)}},
    "few numbers of rows": {"shapes": [{"x": (2, 3, 4)}], "dynamic": {"batch": (2, 6, 2)}},
}


def compiled(folder: Path, text: str = MODEL, **options: Any) -> Path:
    compile_bundle(onnx.parser.parse_model(text), folder / "b", **options)
    return folder / "b"


def feeds(number: int, rows: int = 1) -> dict[str, np.ndarray]:
    x = np.random.default_rng(number).standard_normal((rows, 3, 4), dtype=np.float32)
    return {"x": x, "b": np.arange(4, dtype=np.float32)}


def rewrite(bundle: Path, rows: dict[str, Any]) -> None:
    """Let the plans of a bundle state other axes."""
    manifest = json.loads((bundle / MANIFEST).read_bytes())
    for plan in manifest["plans"]:
        plan["rows"] = rows
    content = json.dumps(manifest).encode()
    (bundle / MANIFEST).write_bytes(content)
    (bundle / DIGEST).write_bytes(digest_line(content))


@pytest.mark.parametrize("form", FORMS)
def test_requests_to_a_bundle_are_joined(form: str, tmp_path: Path, each_device: Any):
    requests = [feeds(number, rows) for number, rows in enumerate((1, 2, 1, 1, 3, 1, 7, 1))]
    session = load_bundle(compiled(tmp_path, **FORMS[form]), device=each_device)
    with session, session.batched(8, max_wait_ms=50) as batched:
        for _ in range(3):
            futures = [batched.submit(each) for each in requests]
            for future, request in zip(futures, requests, strict=True):
                y, z = future.result(PATIENCE)
                a = (request["x"] + request["b"]).astype(np.float64)
                np.testing.assert_allclose(y, np.exp(a) / np.exp(a).sum(-1, keepdims=True), rtol=1e-5)
                np.testing.assert_allclose(z, a.sum(-1).T, rtol=1e-4, atol=1e-5)
        assert batched.stats.requests == 24
        assert batched.stats.runs < 24
        seconds = batched.measure(feeds(0))
        assert min(seconds.values()) > 0
        if "dynamic" not in FORMS[form]:
            assert list(seconds) == [shapes["x"][0] for shapes in FORMS[form]["shapes"]]


def test_what_mixes_rows_is_not_stated_to_be_independent(tmp_path: Path, device: Any):
    session = load_bundle(compiled(tmp_path, MIXING, shapes=[{"x": (4, 4)}]), device=device)
    with session, pytest.raises(UnsupportedError, match="does not say"):
        session.batched()


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"x": 0}, {"y": 0, "z": 0}), ({"x": 0}, {"y": 2, "z": 1}), ({"b": 0}, {"y": 0, "z": 0}),
        ({"x": 1}, {"y": 1, "z": 0}), ({"x": 0, "b": 0}, {"y": 0, "z": 1}), ({"x": 2}, {"y": 0, "z": 1}),
    ],
)  # fmt: skip
def test_a_false_word_gives_other_results_or_errors(
    inputs: dict[str, int], outputs: dict[str, int], tmp_path: Path, device: Any
):
    bundle = compiled(tmp_path, shapes=[{"x": (rows, 3, 4)} for rows in (1, 4)])
    rewrite(bundle, {"inputs": inputs, "outputs": outputs})
    with load_bundle(bundle, device=device) as session, session.batched(4, max_wait_ms=20) as batched:
        outcomes = [batched.submit(feeds(number)) for number in range(8)]
        for future in outcomes:
            error = future.exception(PATIENCE)
            assert error is None or isinstance(error, shaderloom.ShaderloomError), repr(error)
        expected = session.run(None, feeds(0))
        assert [array.shape for array in expected] == [(1, 3, 4), (3, 1)]


def test_results_without_the_stated_rows_are_an_error(tmp_path: Path, device: Any):
    bundle = compiled(tmp_path, shapes=[{"x": (4, 3, 4)}])
    rewrite(bundle, {"inputs": {"x": 0}, "outputs": {"y": 0, "z": 0}})
    session = load_bundle(bundle, device=device)
    with session, session.batched(4, max_wait_ms=0) as batched, pytest.raises(BundleError, match="axis 0 of an output"):
        batched.run(None, feeds(0))


def test_plans_of_other_rows_are_not_used():
    ports = BatchPorts({"x": 0}, {"y": 0})
    plans = [
        BatchPlan({"x": (1, 3)}, ports),
        BatchPlan({"x": (8, 3)}, ports),
        BatchPlan({"x": (5, 4)}, ports),
        BatchPlan({"x": ("n", "k")}, ports),
        BatchPlan({"x": (2, 3)}, BatchPorts({"x": 1}, {"y": 0})),
        BatchPlan({"x": (0, 3)}, ports),
    ]
    rows = ClaimedRows(plans, {"n": SizeRange(16, 64, 16), "k": SizeRange(7, 9)}, 40)
    assert rows.sizes({"x": (1, 3)}) == (1, 8)
    assert rows.sizes({"x": (1, 4)}) == (5,)
    assert rows.sizes({"x": (1, 8)}) == (16, 32)
    for shapes in ({"x": (1, 6)}, {"x": (1, 3, 1)}, {"x": (1, 3), "y": (1,)}):
        with pytest.raises(UnsupportedError, match="has no plan for rows"):
            rows.prove(shapes)
    assert ClaimedRows(plans, {"n": SizeRange(16, 64, 16), "k": SizeRange(7, 9)}, 4).sizes({"x": (1, 8)}) == (16,)
    assert ClaimedRows(plans[3:], {"n": SizeRange(0, 2), "k": SizeRange(7, 9)}, 4).sizes({"x": (1, 8)}) == (1, 2)
