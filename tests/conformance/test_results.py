"""Results in the repository: the page is theirs, and a part replaces its own alone.

Covers: tests/conformance/results, tests/conformance/report.
"""

from __future__ import annotations

from . import report
from .__main__ import PAGE
from .cases import ConformanceCase
from .results import Results
from .store import Store

DEVICE = "NVIDIA H200 580.159.04"


def test_the_page_is_written_from_the_results():
    assert PAGE.read_text(encoding="utf-8") == report.write(Results.every())


def test_a_suite_replaces_its_own_results_alone(tmp_path):
    before = next(each for each in Results.every() if each.device == DEVICE)
    results = Results.of_device("NVIDIA H200 581.0", tmp_path)
    assert results.path.name == before.path.name
    results.parts = dict(before.parts)
    cases = [ConformanceCase("models", name, "Op", frozenset(("float32",))) for name in ("first", "second", "third")]
    store = Store(tmp_path / "store.jsonl")
    store.head = {"date": "2030-01-02", "packages": {"onnx": "9"}, "fingerprint": "0123456789abcdef", "device": DEVICE}
    for case, kind in zip(cases, ("wgpu", "failed", "missing")):
        store.records[case.key] = {"key": case.key, "kind": kind, "reason": "why", "seconds": 1.0}
    results.replace("models", cases, store)
    (after,) = Results.every(tmp_path)
    assert after.parts["models"] == {
        "date": "2030-01-02",
        "packages": {"onnx": "9"},
        "fingerprint": "0123456789abcdef",
        "cases": 2,
        "others": {"failed": ["second"]},
        "unexpected": {"models/second": "why"},
        "types": {"float32": {"wgpu": 1, "failed": 1}},
        "operators": {},
        "models": [],
    }
    assert {suite: part for suite, part in after.parts.items() if suite != "models"} == {
        suite: part for suite, part in before.parts.items() if suite != "models"
    }
    page = report.write([after])
    assert f"| {after.device} | Small models of onnx | 2030-01-02 | onnx 9 | 0123456789ab |" in page
    assert f"| {after.device} | Small models of onnx | 2 | 1 |  |  |  | 1 |" in page
    assert "- `models/second`: failed: why" in page
