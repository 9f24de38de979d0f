"""Weights in parts, and windows of inputs and outputs, in a page.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from shaderloom.bundles.compile import compile_bundle

from ..support.comparison import reference, relative_error
from ..support.large_weights import (
    OPEN_SIZES,
    declared_windows,
    open_windows,
    packed,
    staged_windows,
    tied,
    windows,
)
from .chromium import Page

LIMIT = 1 << 14

RUN = """async (name, numbers, dims) => {
  const [type, convert] = name === "i" ? ["BigInt64Array", BigInt] : ["Float32Array", Number];
  const { load } = await import("/shaderloom.js");
  const session = globalThis.session ??= await load("/bundle/");
  const { y } = await session.run({ [name]: { data: globalThis[type].from(numbers, convert), dims } });
  return { dims: y.dims, data: Array.from(y.data) };
}"""

#: Of which ``i`` are integers
RUN_ALL = """async (feeds) => {
  const { load } = await import("/shaderloom.js");
  const session = globalThis.session ??= await load("/bundle/");
  const fed = Object.entries(feeds).map(([name, { data, dims }]) =>
    [name, { data: name === "i" ? BigInt64Array.from(data, BigInt) : new Float32Array(data), dims }]);
  const outputs = await session.run(Object.fromEntries(fed));
  return Object.values(outputs).map(({ dims, data }) => ({ dims, data: Array.from(data) }));
}"""


@pytest.mark.parametrize("build", [tied, packed], ids=["floats", "codes"])
def test_weights_are_read_in_parts(open_bundle, tmp_path, build):
    model, feeds = build(1003, 1)
    limits = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": LIMIT}
    manifest = compile_bundle(model, tmp_path / "b", shapes=[{"i": feeds["i"].shape}], limits=limits)
    weights = [part.length for parts in manifest.weights.values() for part in parts]
    assert build is not tied or sum(weights) == 1004 * 38 * 4  # one tensor serves both ends
    assert error_of(open_bundle(tmp_path / "b"), model, feeds) <= 2e-5


def test_windows_of_inputs_and_outputs_are_bound(open_bundle, tmp_path):
    model, feeds = windows()
    limits = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": 1 << 17}
    compile_bundle(model, tmp_path / "b", limits=limits)
    assert error_of(open_bundle(tmp_path / "b"), model, feeds) <= 2e-5


def test_windows_of_declared_sizes_are_bound(open_bundle, tmp_path):
    model, feeds = declared_windows()
    limits = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": 1 << 17}
    compile_bundle(model, tmp_path / "b", dynamic={"n": (0, 301)}, limits=limits)
    page = open_bundle(tmp_path / "b")
    for rows in (64, 301, 65, 0, 48, 49):
        assert error_of(page, model, {"x": feeds["x"][:rows]}) <= 2e-5


def test_windows_are_joined_and_selected_from(open_bundle, tmp_path):
    model, _ = open_windows(301, 150)
    limits = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": 1 << 17}
    compile_bundle(model, tmp_path / "b", dynamic=OPEN_SIZES, limits=limits)
    page = open_bundle(tmp_path / "b")
    for n, m in ((301, 150), (64, 65), (65, 0), (1, 150)):
        compare_all(page, model, open_windows(n, m)[1])


def test_stages_hand_on_what_is_bound_in_windows(open_bundle, tmp_path):
    model, _ = staged_windows(taken=True)
    limits = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": 1 << 17}
    compile_bundle(model, tmp_path / "b", limits=limits)
    page = open_bundle(tmp_path / "b")
    for taken in (True, False):
        _, feeds = staged_windows(taken=taken)
        compare_all(page, model, feeds)


def compare_all(page: Page, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """Run a bundle of several inputs and outputs in a page, and compare with onnxruntime."""
    fed = {name: {"data": array.ravel().tolist(), "dims": list(array.shape)} for name, array in feeds.items()}
    for output, expected in zip(page.call(RUN_ALL, fed), reference(model, feeds), strict=True):
        found = np.array(output["data"], np.float32).reshape(output["dims"])
        assert found.shape == expected.shape
        assert relative_error(found, expected) <= 2e-5


def error_of(page: Page, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """Run a bundle in a page, and compare with onnxruntime."""
    ((name, array),) = feeds.items()
    y = page.call(RUN, name, array.ravel().tolist(), list(array.shape))
    found, (expected,) = np.array(y["data"], np.float32).reshape(y["dims"]), reference(model, feeds)
    assert found.shape == expected.shape
    return relative_error(found, expected) if found.size else 0.0
