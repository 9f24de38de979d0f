"""Bundles of models in several stages in half precision: what halves must hold is measured on the host.

Covers: shaderloom/bundles/program_calibration, shaderloom/bundles/compile, shaderloom/bundles/program_loop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle

from ...support.bundles import GROWING, LOOPS, growing_feeds, half_program, half_program_feeds, loops_feeds
from ...support.programs import parse

#: What a side that no input takes reaches beyond the range of float16
BEYOND = """g (bool c, float[2, 8] x) => (float[2, 8] y) <float[8, 8] w = {WEIGHT}, float many = {70000}> {
    y = If (c) < then_branch = a () => (float[2, 8] t) { p = MatMul(x, w) q = MatMul(p, w) t = MatMul(q, w) },
                 else_branch = b () => (float[2, 8] e) {
                     p = MatMul(x, w) s = Mul(p, many) q = MatMul(s, w) e = MatMul(q, w) } > }"""

#: Halves that overflow in one stage, and whose sum another stage brings back
DECLARED = """g (float16[6, 8] x, float16 low) => (int64[2, n] places, float16[6, 8] y, float16[k] z)
    <float scale32 = {300}, float back32 = {0.001}> {
    scale = Cast<to = 10>(scale32)  back = Cast<to = 10>(back32)
    big = Mul(x, scale)  huge = Mul(big, scale)  above = Greater(x, low)  places = NonZero(above)
    turned = Transpose(places)  some = GatherND(huge, turned)  z = Mul(some, back)  y = Mul(huge, back) }"""


def precise_and_half(path, model, shapes, feeds, device, **options):
    """Return the sessions of a bundle in half precision and of the model in full precision."""
    model = parse(model) if isinstance(model, str) else model
    compile_bundle(model, path, shapes=[shapes], precision="float16", sample_inputs=feeds, **options)
    dynamic = options.get("dynamic")
    return (
        shaderloom.load_bundle(path, device=device),
        shaderloom.InferenceSession(model, device=device, cache=False, dynamic=dynamic),
    )


def assert_close(sessions, feeds: Mapping[str, np.ndarray], tolerance: float = 5e-3) -> None:
    """Compare results: integers agree exactly, floats but for the rounding of halves."""
    for actual, expected in zip(sessions[0].run(None, feeds), sessions[1].run(None, feeds), strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        largest = np.abs(expected).max(initial=1) if expected.dtype.kind == "f" else 0
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * largest)


def measured_of(path) -> set[str]:
    """Return the nodes of a bundle's stages whose results are halves."""
    plans = [json.loads(file.read_text()) for file in path.glob("plan-*.json")]
    return {node for plan in plans for node in (plan["facts"]["precision"] or {"measured": []})["measured"]}


def test_stages_branches_and_loops_store_halves(tmp_path, device):
    """Products in the first stage, on both sides of a branch of which the inputs take one, and in the body of a loop
    that carries halves from product to product; sizes and conditions are those of full precision.
    """
    model, options = half_program()
    path = tmp_path / "b"
    sessions = precise_and_half(path, model, options.pop("shapes"), half_program_feeds(0, 3), device, **options)
    for seed, trips, taken in ((0, 3, True), (1, 1, False), (2, 9, True)):
        assert_close(sessions, half_program_feeds(seed, trips, taken=taken))
    stored = measured_of(path)
    for place in ("main node", "then_branch", "else_branch", "body"):
        assert any(place in node for node in stored), f"no halves in {place}: {stored}"
    for session in sessions:
        session.close()


@pytest.mark.slow
def test_a_bundle_of_halves_has_the_weights_once_and_half_as_large(tmp_path):
    model, options = half_program()
    shapes, sizes = [options.pop("shapes")], {}
    for precision in ("float32", "float16"):
        manifest = compile_bundle(model, tmp_path / precision, precision=precision, shapes=shapes, **options)
        sizes[precision] = sum(part.length for parts in manifest.weights.values() for part in parts)
    assert sizes["float16"] < 0.6 * sizes["float32"], sizes


@pytest.mark.slow
@pytest.mark.parametrize("taken", [True, False])
def test_what_the_other_side_reaches_is_tried(tmp_path, device, taken):
    weight = ", ".join(map(str, np.random.default_rng(0).uniform(-1, 1, 64).astype(np.float32)))
    x = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    feeds = {"c": np.array(taken), "x": x}
    path = tmp_path / "b"
    sessions = precise_and_half(path, BEYOND.replace("WEIGHT", weight), {"c": (), "x": (2, 8)}, feeds, device)
    for condition in (True, False):
        assert_close(sessions, {"c": np.array(condition), "x": x})
    stored = measured_of(path)
    assert {node.split(".")[1][:4] for node in stored} == {"then"}, "the first on the other side reach 70,000"
    assert len(stored) == 2
    for session in sessions:
        session.close()


@pytest.mark.slow
def test_bodies_that_no_iteration_has_reached_stay_in_full_precision(tmp_path, device):
    model, options = half_program()
    path = tmp_path / "b"
    with pytest.warns(UserWarning, match="no run of the given inputs reaches some stages"):
        sessions = precise_and_half(path, model, options.pop("shapes"), half_program_feeds(0, 0), device, **options)
    assert not any("body" in node for node in measured_of(path))
    assert_close(sessions, half_program_feeds(3, 5))
    for session in sessions:
        session.close()


@pytest.mark.slow
def test_loops_that_grow_and_end_by_conditions(tmp_path, device):
    """Conditions on sums are exact: as many iterations as in full precision."""
    loops = {"shapes": {"x": (3,), "limit": (), "k": ()}, "dynamic": {"n": (1, 9)}}
    ranges = {"k": (0, 40), "iterations of y": (0, 30)}
    model = onnx.parser.parse_model(LOOPS)
    first = loops_feeds(3, 100, 7)
    sessions = precise_and_half(
        tmp_path / "l", model, loops["shapes"], first, device, dynamic=loops["dynamic"], ranges=ranges
    )
    for feeds in (first, loops_feeds(9, 1e7, 40)):
        assert_close(sessions, feeds)
    ranges = {"k": (0, 9), "size of y": (0, 14), "size of rows": (0, 55), "iterations of rows": (0, 12)}
    shapes = {"x": (3, 3), "k": (), "limit": ()}
    first = growing_feeds(3, 4, 30)
    model = onnx.parser.parse_model(GROWING)
    sessions += precise_and_half(tmp_path / "g", model, shapes, first, device, dynamic={"n": (1, 5)}, ranges=ranges)
    for feeds in (first, growing_feeds(5, 9, 55)):
        assert_close(sessions[2:], feeds)
    for session in sessions:
        session.close()


def test_inputs_outside_of_ranges_cannot_be_measured(tmp_path):
    model = onnx.parser.parse_model(LOOPS)
    shapes = [{"x": (3,), "limit": (), "k": ()}]
    with pytest.raises(shaderloom.InputError, match="'k' is 41 in this run"):
        compile_bundle(
            model,
            tmp_path / "b",
            shapes=shapes,
            dynamic={"n": (1, 9)},
            ranges={"k": (0, 40)},
            precision="float16",
            sample_inputs=loops_feeds(3, 1, 41),
        )


@pytest.mark.slow
def test_declared_halves_that_overflow_are_wide_between_stages(tmp_path, device):
    model = parse(DECLARED)
    x = np.random.default_rng(0).uniform(0.5, 2, (6, 8)).astype(np.float16)
    feeds = {"x": x, "low": np.array(1, np.float16)}
    compile_bundle(
        model, tmp_path / "b", shapes=[{"x": (6, 8), "low": ()}], sample=True, sample_inputs=feeds, device=device
    )
    with shaderloom.load_bundle(tmp_path / "b", device=device) as bundle:
        places, y, z = bundle.run(None, feeds)
    expected = x.astype(np.float64) * 90
    np.testing.assert_array_equal(places, np.nonzero(x > 1))
    np.testing.assert_allclose(y, expected, rtol=4e-3)
    np.testing.assert_allclose(z, expected[np.nonzero(x > 1)], rtol=4e-3)
