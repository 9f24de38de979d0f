"""Bundles of weights beyond a binding or a buffer, and what they ask for.

Covers: shaderloom/bundles/compile.py, shaderloom/cli/compile.py.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.format import MANIFEST
from shaderloom.runtime.device.opening import open_device
from shaderloom.runtime.plan.device_profile import WEB_LIMITS

from ...support.command_line import run_command
from ...support.comparison import reference, relative_error
from ...support.large_weights import (
    OPEN_SIZES,
    declared_windows,
    floats,
    made,
    node,
    open_windows,
    packed,
    staged_windows,
    tied,
    windows,
)
from ...support.patience import PATIENCE
from ...support.programs import parse

LIMIT = 1 << 14
LIMITS = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": LIMIT}


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("build", [tied, packed], ids=["floats", "codes"])
def test_a_bundle_has_the_parts_of_its_weights(each_device, tmp_path, build, precision):
    model, feeds = build(1003, 1)
    shapes = [{name: array.shape for name, array in feeds.items()}]
    manifest = compile_bundle(model, tmp_path / "b", shapes=shapes, limits=LIMITS, precision=precision)
    weights = [sum(part.length for part in parts) for parts in manifest.weights.values()]
    assert max(weights) <= LIMIT
    assert build is not tied or sum(weights) == 1004 * 38 * (4 if precision == "float32" else 2)
    assert manifest.limits["max-storage-buffer-binding-size"] <= LIMIT
    assert manifest.limits["max-buffer-size"] <= LIMIT
    with shaderloom.load_bundle(tmp_path / "b", device=each_device) as session:
        (found,) = session.run(None, feeds)
    (expected,) = reference(model, feeds)
    assert relative_error(found, expected) <= (2e-5 if precision == "float32" else 2e-3)


def test_a_bundle_binds_windows_of_inputs_and_outputs(each_device, tmp_path):
    model, feeds = windows()
    limits = {**LIMITS, "maxBufferSize": 1 << 17}
    manifest = compile_bundle(model, tmp_path / "b", limits=limits)
    assert manifest.limits["max-storage-buffer-binding-size"] <= LIMIT
    assert manifest.limits["max-buffer-size"] == 301 * 80 * 4
    with shaderloom.load_bundle(tmp_path / "b", device=each_device) as session:
        for _ in range(2):
            (found,) = session.run(None, feeds)
            assert relative_error(found, reference(model, feeds)[0]) <= 2e-5


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_windows_of_declared_sizes(each_device, tmp_path, precision):
    """A window has 64 rows of the input, and fewer of the output; those of one bundle serve all numbers of rows."""
    model, feeds = declared_windows()
    manifest = compile_bundle(
        model,
        tmp_path / "b",
        dynamic={"n": (0, 301)},
        limits={**LIMITS, "maxBufferSize": 1 << 17},
        precision=precision,
        sample_inputs=feeds if precision == "float16" else None,
    )
    assert manifest.limits["max-storage-buffer-binding-size"] <= LIMIT
    with shaderloom.load_bundle(tmp_path / "b", device=each_device) as session:
        for rows in (3, 64, 301, 65, 0, 48, 49, 300):
            fed = {"x": feeds["x"][:rows]}
            (found,) = session.run(None, fed)
            (expected,) = reference(model, fed)
            assert found.shape == expected.shape
            assert not rows or relative_error(found, expected) <= (2e-5 if precision == "float32" else 2e-3)


def test_windows_are_joined_and_selected_from(each_device, tmp_path):
    model, feeds = open_windows(301, 150)
    limits = {**LIMITS, "maxBufferSize": 1 << 17}
    manifest = compile_bundle(model, tmp_path / "b", dynamic=OPEN_SIZES, limits=limits)
    assert manifest.limits["max-storage-buffer-binding-size"] <= LIMIT
    with shaderloom.load_bundle(tmp_path / "b", device=each_device) as session:
        for n, m in ((301, 150), (64, 65), (65, 0), (1, 150), (200, 63)):
            _, feeds = open_windows(n, m)
            for found, expected in zip(session.run(None, feeds), reference(model, feeds), strict=True):
                assert found.shape == expected.shape
                assert relative_error(found, expected) <= 2e-5


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_stages_hand_on_what_is_bound_in_windows(each_device, tmp_path, precision):
    model, feeds = staged_windows(taken=True)
    limits = {**LIMITS, "maxBufferSize": 1 << 17}
    manifest = compile_bundle(
        model, tmp_path / "b", limits=limits, precision=precision, sample_inputs=feeds, sample=True
    )
    assert manifest.limits["max-storage-buffer-binding-size"] <= LIMIT
    assert len({stage.key for stage in manifest.programs[0].stages}) == 3
    with shaderloom.load_bundle(tmp_path / "b", device=each_device) as session:
        for taken in (True, False):
            model, feeds = staged_windows(taken=taken)
            for found, expected in zip(session.run(None, feeds), reference(model, feeds), strict=True):
                assert relative_error(found, expected) <= (2e-5 if precision == "float32" else 2e-3)


def test_windows_of_halves_are_measured(device, tmp_path):
    model, feeds = windows()
    limits = {**LIMITS, "maxBufferSize": 1 << 17}
    compile_bundle(model, tmp_path / "b", limits=limits, precision="float16", sample_inputs=feeds)
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        assert relative_error(session.run(None, feeds)[0], reference(model, feeds)[0]) <= 2e-3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("g (float[n, 64] x) => (float[n, 64] y) { first = Constant<value_int = 0>()  y = CumSum(x, first) }",
         r"'input:x' in kernel .* of 102,400; .* have 16,384"),
        ("""g (float[n, 64] x) => (float[n, 64] y) { first = Constant<value_int = 0>()  p = CumSum(x, first)
            y = Softmax<axis = 1>(p) }""", r"tensor 'p'.* takes 102,400 bytes; .* is 16,384"),
        ("g (float[n, 63, 3] x) => (float[n, 63, 3] y) { y = Exp(x) }",
         r"'input:x' in kernel .* of 302,400; .* have 16,384"),
    ],
    ids=["input", "activation", "beyond a buffer"],
)  # fmt: skip
def test_sizes_whose_largest_is_beyond_a_binding_are_refused(tmp_path, text, told):
    with pytest.raises(shaderloom.LimitError, match=rf"{told}.*smaller shapes, or for devices that allow more"):
        compile_bundle(
            parse(text),
            tmp_path / "b",
            dynamic={"n": (1, 400)},
            limits={**LIMITS, "maxBufferSize": 1 << 17},
        )


@pytest.mark.slow
def test_a_bundle_asks_for_what_it_needs(device, tmp_path):
    """The target allows 1 MiB more than its devices surely have, of which the weight needs a part."""
    model, _ = made([node("MatMul", ["x", "w"], ["y"])], {"x": floats(1, 4100)}, w=floats(4100, 8200))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    needed = 4100 * 8200 * 4
    raised = WEB_LIMITS["max-storage-buffer-binding-size"] + (1 << 20)
    given = ["--limits", f"maxStorageBufferBindingSize={raised}"]
    said = run_command("compile", tmp_path / "model.onnx", "-o", tmp_path / "b", "--no-software", *given)
    assert f"asks for maxStorageBufferBindingSize of {needed:,}" in " ".join(said.output.split())
    assert json.loads((tmp_path / "b" / MANIFEST).read_bytes())["limits"]["maxStorageBufferBindingSize"] == needed
    small = device.gpu.adapter.request_device_sync(required_limits={"max-storage-buffer-binding-size": 128 << 20})
    with pytest.raises(shaderloom.LimitError, match=rf"max-storage-buffer-binding-size of at least {needed:,}"):
        shaderloom.load_bundle(tmp_path / "b", device=small)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("maxMoons=1", "'maxMoons' is no limit of a device"),
        ("minStorageBufferOffsetAlignment=4", "is no limit of a device"),
        ("maxBufferSize=much", "--limits wants a size, not 'much'"),
        ("maxBufferSize=0", "maxBufferSize cannot be 0"),
    ],
)
def test_other_limits_are_refused(tmp_path, text, told):
    model, _ = tied(8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    said = run_command("compile", tmp_path / "model.onnx", "-o", tmp_path / "b", "--limits", text, status=1)
    assert told in " ".join(said.output.split())


def test_what_cannot_be_within_the_limits_says_how_to_raise_them(tmp_path):
    nodes = [node("CumSum", ["w", "a"], ["c"]), node("MatMul", ["x", "c"], ["y"])]
    model, _ = made(nodes, {"x": floats(2, 800)}, w=floats(800, 33), a=floats(1)[0] * 0)
    with pytest.raises(shaderloom.LimitError, match=r"takes 1\d\d,\d\d\d bytes.*is 16,384.*limits=\{\.\.\.\}"):
        compile_bundle(model, tmp_path / "b", limits=LIMITS)


ROWS, SIZE = 151_936, 896

#: Runs a model of that size from a session and from a bundle, and prints the errors and the peak of memory in bytes
REAL_SIZE = """
import sys
import numpy as np
import shaderloom
from pathlib import Path
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.device.opening import open_device

folder, rows, size, index = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), np.array([0, -1, 70_000, 149_796])
device = open_device("", web_limits=True, features=False)
table = np.memmap(folder / "w.bin", np.float32, "r", shape=(rows, size))
columns = np.r_[0:rows:4001, rows - 1]
expected = table[index].astype(np.float64) @ table[columns].astype(np.float64).T

def error(session):
    (y,) = session.run(None, {"i": index})
    assert y.shape == (4, rows) and np.isfinite(y).all()
    return np.abs(y[:, columns] - expected).max() / np.abs(expected).max()

with shaderloom.InferenceSession(folder / "m.onnx", device=device, cache=False) as session:
    errors = [error(session)]
compile_bundle(folder / "m.onnx", folder / "b", shapes=[{"i": (4,)}], target="web-software")
with shaderloom.load_bundle(folder / "b", device=device) as session:
    errors.append(error(session))
# of this program alone: getrusage counts what its parent had before it began
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(*errors, int(peak.split()[1]) << 10)
"""


@pytest.mark.slow
def test_windows_of_a_quarter_of_a_gigabyte(tmp_path):
    """WebGPU's default limits: two windows of 128 MiB, of which the second one is empty for few rows."""
    model = parse("g (float[n, 1024] x) => (float[n, 1024] y) { p = Softmax<axis = 1>(x)  y = Mul(p, x) }")
    manifest = compile_bundle(model, tmp_path / "b", dynamic={"n": (1, 65_536)}, target="web-software")
    assert manifest.limits["max-storage-buffer-binding-size"] == 128 << 20
    device = open_device("", web_limits=True, features=False)
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for rows in (100, 40_000, 32_768, 32_769):
            x = np.random.default_rng(rows).standard_normal((rows, 1024), np.float32)
            (y,) = session.run(None, {"x": x})
            assert y.shape == x.shape and np.isfinite(y).all()
            chosen = np.r_[0:rows:997, rows - 1]
            powers = np.exp(x[chosen].astype(np.float64))
            expected = powers / powers.sum(1, keepdims=True) * x[chosen]
            assert relative_error(y[chosen], expected.astype(np.float32)) <= 2e-5


@pytest.mark.slow
def test_a_tied_embedding_of_half_a_gigabyte(tmp_path):
    """It is over both of WebGPU's default limits.  In a process of its own, whose memory is measured."""
    with (tmp_path / "w.bin").open("wb") as file:
        for start in range(0, ROWS, 8192):
            file.write(floats(min(8192, ROWS - start), SIZE).tobytes())
    model, _ = tied(8)
    initializer = model.graph.initializer[0]
    initializer.Clear()
    initializer.name, initializer.data_type, initializer.data_location = "w", onnx.TensorProto.FLOAT, 1
    initializer.dims.extend([ROWS, SIZE])
    for key, value in {"location": "w.bin", "offset": "0", "length": str(ROWS * SIZE * 4)}.items():
        initializer.external_data.add(key=key, value=value)
    model.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["n"]))
    onnx.save(model, tmp_path / "m.onnx")
    command = [sys.executable, "-c", REAL_SIZE, str(tmp_path), str(ROWS), str(SIZE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    of_session, of_bundle, peak = map(float, done.stdout.split())
    assert max(of_session, of_bundle) <= 2e-5
    assert peak < 4 << 30
