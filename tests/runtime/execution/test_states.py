"""Outputs that begin as inputs: caches of which a run writes its own rows, wherever the caller has them.

Covers: runtime/execution/attachment, runtime/execution/executor, compiler/planning/states, compiler/kernels/row_update.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom import InferenceSession, Tensor

from ...support.bundles import CACHE, cache_bundle, cache_feeds
from ...support.running import compile_for
from .test_tensor_runs import Counter

#: The cache with a second one beside it, and a result of both
PAIR = """
<ir_version: 13, opset_import: ["" : 24]>
pair (float[2, 6, 4] k, float[2, 6, 4] v, float[2, 1, 4] row, int64[2] place)
    => (float[2, 6, 4] new_k, float[2, 6, 4] new_v, float[2, 6, 4] y) {
    double = Add(row, row)
    new_k = TensorScatter<axis = 1>(k, row, place)
    new_v = TensorScatter<axis = 1>(v, double, place)
    y = Sub(new_k, new_v)
}
"""
FEEDS, PRESENT = cache_feeds()


@pytest.fixture(scope="module")
def session(device) -> Iterator[InferenceSession]:
    with InferenceSession(onnx.parser.parse_model(CACHE), device=device, cache=False) as made:
        yield made


@pytest.fixture(scope="module")
def pair(device) -> Iterator[InferenceSession]:
    with InferenceSession(onnx.parser.parse_model(PAIR), device=device, cache=False) as made:
        yield made


def pair_feeds() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    k, v = FEEDS["past"], np.random.default_rng(1).standard_normal((2, 6, 4)).astype(np.float32)
    new = {"new_k": PRESENT, "new_v": v.copy()}
    new["new_v"][0, 5], new["new_v"][1, 2] = 2 * FEEDS["row"][:, 0]
    return {"k": k, "v": v, "row": FEEDS["row"], "place": FEEDS["place"]}, new | {"y": new["new_k"] - new["new_v"]}


def test_a_run_writes_its_own_rows_alone():
    """What is fed is bound by no call: an update of one row in six touches a sixth of the cache."""
    plan = compile_for(onnx.parser.parse_model(CACHE), FEEDS)
    assert [(state.output, state.input) for state in plan.states] == [("present", "past")]
    assert all(item.buffer != "input:past" for call in plan.calls for item in call.ranges)
    assert plan.calls[0].grid == (1, 1, 1)


def test_one_tensor_in_and_out(session, device, monkeypatch):
    """Nothing is copied, and what the run does not write stays, whatever it is."""
    past = FEEDS["past"].copy()
    past[1, 5] = np.nan
    cache = Tensor.from_numpy(past, device)
    y = Tensor.empty((2, 6, 4), "float32", device)
    feeds = {name: Tensor.from_numpy(array, device) for name, array in FEEDS.items()} | {"past": cache}
    session.run(None, feeds, outputs={"present": cache, "y": y})
    counter = Counter(monkeypatch)
    session.run(None, feeds, outputs={"present": cache, "y": y})
    assert (counter.copies, counter.writes) == (0, 0)
    monkeypatch.undo()
    expected = PRESENT.copy()
    expected[1, 5] = np.nan
    np.testing.assert_array_equal(cache.numpy(), expected)
    np.testing.assert_allclose(y.numpy(), np.tanh(expected), rtol=1e-5)


def test_another_tensor_out_leaves_the_input(session, device):
    past, present = Tensor.from_numpy(FEEDS["past"], device), Tensor.empty((2, 6, 4), "float32", device)
    session.run(["present"], FEEDS | {"past": past}, outputs={"present": present})
    np.testing.assert_array_equal(present.numpy(), PRESENT)
    np.testing.assert_array_equal(past.numpy(), FEEDS["past"])


@pytest.mark.parametrize("on_device", [False, True])
def test_arrays_and_new_tensors(session, device, on_device):
    past = Tensor.from_numpy(FEEDS["past"], device) if on_device else FEEDS["past"]
    for _ in range(2):
        present, y = session.run(None, FEEDS | {"past": past})
        np.testing.assert_array_equal(present, PRESENT)
        np.testing.assert_allclose(y, np.tanh(PRESENT), rtol=1e-5)
        (alone,) = session.run(["y"], FEEDS | {"past": past})
        np.testing.assert_array_equal(alone, y)


def test_outputs_fed_back(device):
    with InferenceSession(
        onnx.parser.parse_model(CACHE), device=device, cache=False, preferred_output_location={"present": "gpu-buffer"}
    ) as session:
        cache, expected = Tensor.from_numpy(FEEDS["past"], device), FEEDS["past"].copy()
        for place in range(6):
            feeds = {"row": FEEDS["row"] + place, "place": np.array([place, 5 - place])}
            expected[0, place], expected[1, 5 - place] = feeds["row"][:, 0]
            cache, y = session.run(["present", "y"], feeds | {"past": cache})
            np.testing.assert_allclose(y, np.tanh(expected), rtol=1e-5)
        np.testing.assert_array_equal(cache.numpy(), expected)


def test_two_caches_in_place(pair, device):
    feeds, expected = pair_feeds()
    k, v = (Tensor.from_numpy(feeds[name], device) for name in "kv")
    y = pair.run(None, feeds | {"k": k, "v": v}, outputs={"new_k": k, "new_v": v})[-1]
    for name, found in (("new_k", k.numpy()), ("new_v", v.numpy()), ("y", y)):
        np.testing.assert_array_equal(found, expected[name])


def test_tensors_that_change_places(pair, device):
    """Each output goes where the other's input is: all inputs are read before one is written."""
    feeds, expected = pair_feeds()
    k, v = (Tensor.from_numpy(feeds[name], device) for name in "kv")
    pair.run(None, feeds | {"k": k, "v": v}, outputs={"new_k": v, "new_v": k})
    np.testing.assert_array_equal(v.numpy(), expected["new_k"])
    np.testing.assert_array_equal(k.numpy(), expected["new_v"])


def test_one_tensor_for_both_inputs(pair, device):
    feeds, _ = pair_feeds()
    both = Tensor.from_numpy(feeds["k"], device)
    new_v = Tensor.empty((2, 6, 4), "float32", device)
    pair.run(["new_k", "new_v"], feeds | {"k": both, "v": both}, outputs={"new_k": both, "new_v": new_v})
    expected = feeds["k"].copy()
    expected[0, 5], expected[1, 2] = 2 * feeds["row"][:, 0]
    np.testing.assert_array_equal(both.numpy(), PRESENT)
    np.testing.assert_array_equal(new_v.numpy(), expected)


def test_rows_outside_are_dropped(session):
    present, _ = session.run(None, FEEDS | {"place": np.array([6, -1])})
    np.testing.assert_array_equal(present, FEEDS["past"])


def test_profiles_and_bundles(session, device, tmp_path):
    past = Tensor.from_numpy(FEEDS["past"], device)
    assert session.profile(FEEDS | {"past": past}).calls
    with shaderloom.load_bundle(cache_bundle(tmp_path / "b"), device=device) as loaded:
        np.testing.assert_array_equal(loaded.run(["present"], FEEDS)[0], PRESENT)
        loaded.run(["present"], FEEDS | {"past": past}, outputs={"present": past})
        np.testing.assert_array_equal(past.numpy(), PRESENT)


#: Graphs that need the old cache too, or give it another form
OTHERS = {
    "read elsewhere": ("", "z = Neg(past)", "float[2, 6, 4] z"),
    "an output itself": ("", "z = Identity(past)", "float[2, 6, 4] z"),
    "three elements a row": (", 3]", "z = Neg(row)", "float[2, 1, 3] z"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_caches_are_written_whole(device, name):
    size, node, output = OTHERS[name]
    text = CACHE.replace("batch", "2").replace("y) {", f"y, {output}) {{ {node}").replace(", 4]", size or ", 4]")
    width = 3 if size else 4
    feeds = {key: value[..., :width] if value.ndim == 3 else value for key, value in FEEDS.items()}
    model = onnx.parser.parse_model(text)
    assert compile_for(model, feeds).states == ()
    with InferenceSession(model, device=device, cache=False) as other:
        past = Tensor.from_numpy(feeds["past"], device)
        present = other.run(["present"], feeds | {"past": past}, outputs={"present": past})[0]
        np.testing.assert_array_equal(present.numpy(), PRESENT[..., :width])
