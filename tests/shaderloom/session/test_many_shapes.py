"""Sessions that meet ever new shapes: what a plan held goes with it, without a garbage collection.

Covers: shaderloom/execution/loaded_plans, shaderloom/execution/shape_plans, runtime/execution/executor.
"""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.execution.plan_bound import DEFAULT_PLANS

from ...support.patience import PATIENCE

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
MODEL = """
g (float[n, 8] x) => (float[n, 8] z) { m = MatMul(x, w) s = Softmax<axis = 0>(m) z = Add(s, x) }"""


def make_model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + MODEL)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    return model


def expected(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(0))
    return powers / powers.sum(0) + x


@pytest.mark.parametrize("on_device", [False, True], ids=["arrays", "tensors"])
def test_evicted_plans_free_their_pipelines_at_once(device, on_device):
    """Cycles that hold pipelines would keep them, and megabytes of a driver, until Python looks for cycles."""
    rng = np.random.default_rng(0)
    with shaderloom.InferenceSession(make_model(), device=device, cache=False, plans=2, dynamic="off") as session:
        session.run(None, {"x": np.ones((1, 8), np.float32)})
        gc.collect()
        gc.disable()
        try:
            before = len(device._pipelines)
            for rows in range(2, 12):
                x = rng.standard_normal((rows, 8)).astype(np.float32)
                feed = shaderloom.Tensor.from_numpy(x, device) if on_device else x
                for _ in range(2):
                    (z,) = session.run(None, {"x": feed})
                    np.testing.assert_allclose(z, expected(x), rtol=1e-5)
            assert len(device._pipelines) <= before + 4
        finally:
            gc.enable()
        assert session.stats.evictions == 9


PROGRAM = """
import numpy as np
import onnx.parser
import shaderloom
from tests.shaderloom.session.test_many_shapes import HEAD

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))

# kernels depend on sizes: the mix is the same throughout
sizes = np.random.default_rng(1).permutation(np.arange(1, 501))
BODY = "g (float[n, 8] x) => (float[n, 8] z) { t = Transpose(x) u = Mul(t, t) z = Transpose(u) }"
model = onnx.parser.parse_model(HEAD + BODY)
session = shaderloom.InferenceSession(model, cache=False, dynamic="off")
for number, rows in enumerate(sizes, 1):
    (z,) = session.run(None, {"x": np.full((rows, 8), 3, np.float32)})
    assert (z == 9).all() and z.shape == (rows, 8)
    if number in (100, 500):
        print(resident())
print(session.stats.evictions)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_five_hundred_shapes_take_no_more_memory_than_a_hundred(device):
    """Measured on lavapipe: 6 MB more, and 30 MB while pipelines waited for Python's collections."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    early, late, evictions = map(int, done.stdout.split())
    assert evictions == 500 - DEFAULT_PLANS
    assert late - early < 16 << 20
