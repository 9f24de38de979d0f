"""wgpu's OpenGL adapter: the last choice, right on a kernel of each kind and a model, and no place for strangers.

Covers: runtime/device/adapters, runtime/device/native.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.device.adapters import OPENGL, list_adapters
from shaderloom.runtime.device.opening import open_device
from shaderloom.runtime.plan.errors import DeviceError

from ...support.comparison import assert_model_close
from ...support.inputs import photograph
from ...support.models import filled_model
from ...support.programs import parse
from ...support.sessions import assert_all_on_device, run_session

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(3)
X = RNG.standard_normal((37, 65)).astype(np.float32)
PICTURE = RNG.standard_normal((1, 3, 13, 11)).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def convolution(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A convolution of 3x3 with a border of one zero."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight)


W = RNG.standard_normal((65, 33)).astype(np.float32)
FILTER = RNG.standard_normal((5, 3, 3, 3)).astype(np.float32)

#: text, feeds, the result of operands in float64
GRAPHS = {
    "elementwise": ("(float[37,65] x) => (float[n,m] y) { t = Mul(x, x) u = Add(t, x) y = Relu(u) }", (X,), None),
    "product": ("(float[37,65] x, float[65,33] w) => (float[n,m] y) { y = MatMul(x, w) }", (X, W), np.matmul),
    "softmax": ("(float[37,65] x) => (float[n,m] y) { y = Softmax(x) }", (X,), softmax),
    "convolution": (
        "(float[1,3,13,11] x, float[5,3,3,3] w) => (float[a,b,c,d] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }",
        (PICTURE, FILTER),
        convolution,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_kernel_of_each_kind(name: str, opengl_device) -> None:
    text, operands, function = GRAPHS[name]
    feeds = dict(zip(("x", "w"), operands))
    with shaderloom.InferenceSession(parse("g " + text), device=opengl_device, cache=False) as session:
        (result,) = session.run(None, feeds)
        assert session.stats.calls == 1
    exact = [each.astype(np.float64) for each in operands]
    expected = function(*exact) if function else np.maximum(exact[0] ** 2 + exact[0], 0)
    assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_model(opengl_device) -> None:
    path, feeds = filled_model("squeezenet1_1"), {"input": photograph(224)}
    results, report = run_session(path, feeds, opengl_device)
    assert_all_on_device(report)
    assert_model_close(results, path, feeds)


def test_it_is_the_last_choice(opengl_device) -> None:
    found = list_adapters()
    backends = [adapter.backend for adapter in found]
    first = backends.index(OPENGL)
    assert set(backends[first:]) == {OPENGL}
    assert len({adapter.identity for adapter in found}) == len(found)  # two of one driver have different names
    assert open_device(first) is opengl_device is open_device(opengl_device.name)
    if first:  # the name of the driver alone names its adapter for Vulkan
        assert open_device().is_opengl is False
        assert not any(open_device(adapter.name).is_opengl for adapter in found[:first])


def test_what_must_have_bounds_checks_is_refused(opengl_device, tmp_path) -> None:
    model = parse("g " + GRAPHS["softmax"][0])
    with (
        shaderloom.InferenceSession(model, device=opengl_device, cache=False, bounds_checks=True) as session,
        pytest.raises(DeviceError, match=r"must have bounds checks, and wgpu compiles none for OpenGL.*trust=True"),
    ):
        session.run(None, {"x": X})
    bundle = tmp_path / "model.shaderbundle"
    compile_bundle(model, bundle, software=True)
    with (
        shaderloom.load_bundle(bundle, device=opengl_device) as session,
        pytest.raises(DeviceError, match="must have bounds checks"),
    ):
        session.run(None, {"x": X})
    with shaderloom.load_bundle(bundle, device=opengl_device, trust=True) as session:
        (result,) = session.run(None, {"x": X})
    assert np.abs(result - softmax(X.astype(np.float64))).max() < 1e-6


#: wgpu ends a process in which a thread waits for the context for a second; the work takes several on any machine
THREADS = """
import threading
from shaderloom.runtime.device.opening import open_device

device = open_device("OpenGL")
module = device.create_module('''
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var a = id.x;
  for (var i = 0u; i < 60000u; i++) { a = a * 1664525u + 1013904223u; a = (a >> 3u) ^ a; }
  y[id.x & 1023u] = a;
}''', checked=False, label="long", max_bytes=1 << 20)
buffer = device.create_buffer(4096, 0x80, "y")
pipeline = device.gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
entry = {"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 4096}}
group = device.gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=[entry])
encoder = device.gpu.create_command_encoder()
compute_pass = encoder.begin_compute_pass()
compute_pass.set_pipeline(pipeline)
compute_pass.set_bind_group(0, group)
compute_pass.dispatch_workgroups(2000)
compute_pass.end()
commands = encoder.finish()

def compute():
    device.submit([commands], "computing")
    device.wait()

thread = threading.Thread(target=compute)
thread.start()
while thread.is_alive():
    device.create_buffer(4096, 0x80, "other").destroy()
print("alive")
"""


def test_threads_take_turns(opengl_device) -> None:
    ended = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr[-2000:]
