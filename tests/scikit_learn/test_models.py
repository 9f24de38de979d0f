"""Models of scikit-learn by skl2onnx, and of LightGBM by onnxmltools, beside onnxruntime.

Covers: compiler/ops/ml.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import shaderloom

from ..support.environments import TIMEOUT, installed

HERE = Path(__file__).resolve().parent

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_providers")]

#: What is left to the cpu, by the name of the model; the others run wholly on the device
ON_CPU = {
    "maps": {"ZipMap"},
    "text": {"LinearClassifier", "Cast"},
    "float64": {"MatMul", "Add", "ArgMax", "Cast", "Reshape", "Softmax"},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """The folder of the models, which the packages of ``requirements.txt`` make."""
    folder = tmp_path_factory.mktemp("models")
    python = installed("scikit_learn", HERE / "requirements.txt")
    command = [python, HERE / "make_models.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def _compare(actual: object, expected: object) -> None:
    if isinstance(expected, list):  # a map for each row
        assert isinstance(actual, list) and len(actual) == len(expected)
        for left, right in zip(actual, expected):
            assert left.keys() == right.keys()
            np.testing.assert_allclose(list(left.values()), list(right.values()), atol=1e-5)
        return
    assert isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_models_give_what_onnxruntime_gives(models, device):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    paths = sorted(models.glob("*.onnx"))
    assert len(paths) > 35
    for path in paths:
        reference = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feeds = {reference.get_inputs()[0].name: np.load(path.with_suffix(".npy"))}
        expected = reference.run(None, feeds)
        with shaderloom.InferenceSession(path, providers=["wgpu", "cpu"], device=device, cache=False) as session:
            for actual, wanted in zip(session.run(None, feeds), expected, strict=True):
                _compare(actual, wanted)
            on_cpu = {placement.op_type for placement in session.placement() if placement.provider == "cpu"}
        assert on_cpu <= ON_CPU.get(path.stem, set()), f"{path.stem}: {on_cpu}"
