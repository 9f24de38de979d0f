"""What docs/guide/production.md says: threads, processes, caches, timeouts, counters.

Covers: shaderloom/session/session, shaderloom/execution/resources.
"""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.plan.errors import ClosedError, InputError, PicklingError, RunError

from ...support.patience import PATIENCE

MODEL = """<ir_version: 8, opset_import: ["" : 18]> g (float[n, 8] x) => (float[n, 8] y) {
    a = Sin(x)  b = Add(a, x)  y = Softmax<axis = 1>(b) }"""
CHILD = """
import sys, numpy as np, shaderloom
options = {"providers": ["wgpu"], "device": int(sys.argv[2]), "cache": sys.argv[3]}
with shaderloom.InferenceSession(sys.argv[1], **options) as session:
    session.run(None, {"x": np.ones((3, 8), np.float32)})
    print(session.stats.misses, session.stats.disk_hits)
"""


@pytest.fixture
def path(tmp_path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def session(path, device):
    with shaderloom.InferenceSession(path, providers=["wgpu"], device=device, cache=False) as opened:
        yield opened


def _rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


def _expected(x: np.ndarray) -> np.ndarray:
    powers = np.exp(np.sin(x) + x)
    return powers / powers.sum(axis=1, keepdims=True)


def test_threads_share_a_session(session):
    feeds = [_rows(2 + seed % 5, seed) for seed in range(48)]
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        for x, (y,) in zip(feeds, threads.map(lambda x: session.run(None, {"x": x}), feeds), strict=True):
            np.testing.assert_allclose(y, _expected(x), rtol=1e-5, atol=1e-6)


def test_sessions_of_one_device_pass_tensors(path, device):
    options = {"providers": ["wgpu"], "device": device, "cache": False}
    with (
        shaderloom.InferenceSession(path, preferred_output_location="gpu-buffer", **options) as first,
        shaderloom.InferenceSession(path, **options) as second,
    ):
        (between,) = first.run(None, {"x": _rows(3)})
        (y,) = second.run(None, {"x": between})
    np.testing.assert_allclose(y, _expected(_expected(_rows(3))), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("move", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_session_cannot_be_pickled(session, move):
    with pytest.raises(PicklingError, match="send the model's path") as caught:
        move(session)
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, shaderloom.ShaderloomError)
    session.run(None, {"x": _rows(1)})
    with pytest.raises(PicklingError, match="open one there"):
        move(session.device)
    tensor = shaderloom.Tensor.from_numpy(_rows(1), session.device)
    for value in (tensor, shaderloom.OrtValue(tensor)):
        with pytest.raises(PicklingError, match=r"send tensor\.numpy\(\)"):
            pickle.dumps(value)
    np.testing.assert_array_equal(tensor.numpy(), _rows(1))


def test_another_process_reads_the_plans_of_the_first(path, tmp_path):
    counts = []
    for _ in range(2):
        command = [sys.executable, "-c", CHILD, str(path), "0", str(tmp_path / "cache")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        counts.append(done.stdout.split())
    assert counts == [["1", "0"], ["1", "1"]]


def test_a_folder_that_cannot_be_written_is_no_obstacle(path, device, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with shaderloom.InferenceSession(path, providers=["wgpu"], device=device, cache=tmp_path / "file") as session:
        np.testing.assert_allclose(session.run(None, {"x": _rows(2)})[0], _expected(_rows(2)), rtol=1e-5, atol=1e-6)


def test_plans_are_ready_after_prepare(session):
    assert session.prepare({"x": (5, 8)})
    assert (session.stats.misses, session.stats.hits) == (1, 0)
    session.run(None, {"x": _rows(5)})
    assert session.stats.misses == 1


def test_a_wait_ends_and_the_run_goes_on(session):
    run = session.run_async(None, {"x": _rows(4)})
    assert run.result(PATIENCE)[0].shape == (4, 8)
    options = shaderloom.RunOptions()
    options.terminate = True
    with pytest.raises(RunError):
        session.run(None, {"x": _rows(4)}, options)
    with pytest.raises(InputError):
        session.run(None, {"x": np.ones(3, np.float32)})
    assert session.run(None, {"x": _rows(4)})[0].shape == (4, 8)


def test_memory_goes_with_the_session(path, device):
    session = shaderloom.InferenceSession(path, providers=["wgpu"], device=device, cache=False)
    session.run(None, {"x": _rows(4)})
    assert session.device_bytes > 0
    session.close()
    assert session.device_bytes == 0
    with pytest.raises(ClosedError):
        session.run(None, {"x": _rows(4)})


def test_counters_are_plain_data(session, caplog):
    with caplog.at_level(logging.DEBUG, "shaderloom"):
        for count in (2, 2, 3):
            session.run(None, {"x": _rows(count)})
    stats = json.loads(json.dumps(dataclasses.asdict(session.stats)))
    assert (stats["misses"], stats["hits"], stats["steps"], stats["crossings"]) == (2, 1, ["wgpu"], [])
    assert [row["runs"] for row in stats["keys"].values()] == [2, 1]
    assert stats["last_run_ms"] > 0 and stats["compile_ms"] > 0
    assert {record.name for record in caplog.records} >= {"shaderloom.compile"}


def test_fallbacks_are_logged(path, device, caplog):
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) {
        a = Cast<to = 11>(x)  b = Sqrt(a)  y = Cast<to = 1>(b) }"""
    )
    with (
        caplog.at_level(logging.INFO, "shaderloom"),
        pytest.warns(UserWarning, match="'cpu' does"),
        shaderloom.InferenceSession(model, providers=["wgpu", "cpu"], device=device, cache=False) as session,
    ):
        session.run(None, {"x": np.ones(3, np.float32)})
    assert any(record.name == "shaderloom.notices" and "'cpu' does" in record.message for record in caplog.records)
    assert "cpu" in session.stats.steps


def test_an_absent_entry_is_a_runtime_error():
    for options in (shaderloom.SessionOptions(), shaderloom.RunOptions()):
        get = getattr(options, "get_session_config_entry", None) or options.get_run_config_entry
        with pytest.raises(RuntimeError, match="no entry 'absent'") as caught:
            get("absent")
        assert isinstance(caught.value, InputError)


@pytest.mark.parametrize("version", [None, 0, 7])
def test_the_version_of_a_model_is_onnxruntimes(version, device):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model(MODEL)
    if version is not None:
        model.model_version = version
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with shaderloom.InferenceSession(model, providers=["wgpu"], device=device, cache=False) as session:
        assert session.get_modelmeta().version == reference.get_modelmeta().version
