"""Bundles of weights beyond a binding or a buffer, and what they ask for.

Covers: shaderloom/bundles/compile.py, shaderloom/cli/compile.py.
"""

from __future__ import annotations

import json

import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.format import MANIFEST
from shaderloom.runtime.plan.device_profile import WEB_LIMITS

from ...support.command_line import run_command
from ...support.comparison import reference, relative_error
from ...support.large_weights import floats, made, node, packed, tied, windows

LIMIT = 1 << 14
LIMITS = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": LIMIT}


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("build", [tied, packed], ids=["floats", "codes"])
def test_a_bundle_has_the_parts_of_its_weights(each_device, tmp_path, build, precision):
    model, feeds = build(1003, 1)
    shapes = [{name: array.shape for name, array in feeds.items()}]
    manifest = compile_bundle(model, tmp_path / "b", shapes=shapes, limits=LIMITS, precision=precision)
    assert max(sum(part.length for part in parts) for parts in manifest.weights.values()) <= LIMIT
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
