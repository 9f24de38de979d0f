"""Sizes of which a run alone knows whether they agree, beside onnxruntime and sessions.

Covers: shaderloom/bundles/program_comparisons, shaderloom/bundles/program_compile, shaderloom/bundles/program_ranges,
compiler/ops/onnx/integers_ahead, compiler/symbolic/polynomial.
"""

from __future__ import annotations

import numpy as np
import pytest

import shaderloom
from shaderloom.bundles import program_comparisons
from shaderloom.bundles.compile import compile_bundle
from shaderloom.bundles.program_comparisons import Decided
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.dimensions import dimension
from shaderloom.runtime.bundle.program import CompareStep

from ...support.comparing import COMPARING
from ...support.comparison import reference
from ...support.deciding import ints
from ...support.programs import parse


def bundle_of(name: str, path):
    model = COMPARING[name]
    shapes = [{port: array.shape for port, array in model.feeds[0].items()}]
    return compile_bundle(parse(model.text), path, shapes=shapes, **model.options)


#: The case of the quick tier
QUICK = "one row or as many"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != QUICK)) for name in COMPARING])
def test_runs_compare_sizes(name, tmp_path, device):
    bundle_of(name, tmp_path / "b")
    model = parse(COMPARING[name].text)
    with (
        shaderloom.load_bundle(tmp_path / "b", device=device) as bundle,
        shaderloom.InferenceSession(model, device=device, providers=["wgpu"], cache=False) as session,
    ):
        for feeds in COMPARING[name].feeds:
            expected = reference(model, feeds)
            for results in (bundle.run(None, feeds), session.run(None, feeds)):
                for actual, wanted in zip(results, expected, strict=True):
                    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
                    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "feeds", "text"),
    [
        ("one row or as many", {"k": ints(3), "m": ints(4)}, r"\$k.* != 1, for which these shapes do not fit"),
        ("parts that are fed", {"split": ints(3, 5, 2)}, r"!= .*parts of sizes .* do not make up \$n"),
        ("shapes that are fed", {"shape": ints(5, 5)}, r"\(2, 12\) does not reshape to"),
        ("shapes that are fed", {"shape": ints(-1, -1)}, r"is -1 in this run"),
        ("shapes that are fed", {"shape": ints(5, -1)}, r"\(2, 12\) does not reshape to"),
        ("steps", {"step": ints(0, 1)}, "is -1 in this run"),
        ("pads of either sign", {"pads": ints(-4, 0, -3, 0)}, "<.*axis 0 of size .* is cut below zero"),
        ("steps", {"by": np.array(0)}, "is -1 in this run"),
        ("a fraction of what there is", {"share": np.array(2, np.float32)}, r"<.*for which these shapes do not fit"),
    ],
)
def test_sizes_that_do_not_agree_are_refused(name, feeds, text, tmp_path, device):
    """What a session refuses, a bundle does, with what differs."""
    model = COMPARING[name]
    feeds = {**model.feeds[0], **feeds}
    bundle_of(name, tmp_path / "b")
    with (
        shaderloom.load_bundle(tmp_path / "b", device=device) as bundle,
        shaderloom.InferenceSession(parse(model.text), device=device, providers=["wgpu"], cache=False) as session,
    ):
        with pytest.raises(shaderloom.ShaderloomError):
            session.run(None, feeds)
        with pytest.raises(shaderloom.InputError, match=text):
            bundle.run(None, feeds)


@pytest.mark.slow
def test_floats_that_no_integer_has_are_those_of_a_session(tmp_path, device):
    """Casts beyond the integers have any result; it is the same in both."""
    name = "bounds beyond any size"
    bundle_of(name, tmp_path / "b")
    model = parse(COMPARING[name].text)
    with (
        shaderloom.load_bundle(tmp_path / "b", device=device) as bundle,
        shaderloom.InferenceSession(model, device=device, providers=["wgpu"], cache=False) as session,
    ):
        for far in (1e30, -1e30, np.inf, -np.inf, np.nan):
            feeds = {**COMPARING[name].feeds[0], "far": np.array(far, np.float32)}
            for actual, wanted in zip(bundle.run(None, feeds), session.run(None, feeds), strict=True):
                np.testing.assert_array_equal(actual, wanted)


@pytest.mark.slow
def test_both_sides_are_measured_for_halves(tmp_path, device):
    """A bundle in half precision is calibrated on both sides of a comparison, with what is decided there."""
    model = parse(COMPARING["Expand to what is fed"].text)
    feeds = COMPARING["Expand to what is fed"].feeds
    options = {"dynamic": {"n": (1, 8)}, "precision": "float16", "sample_inputs": feeds[0]}
    shapes = [{port: array.shape for port, array in feeds[0].items()}]
    compile_bundle(model, tmp_path / "b", shapes=shapes, **options)
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for each in feeds:
            (actual,), (wanted,) = session.run(None, each), reference(model, each)
            assert actual.shape == wanted.shape
            np.testing.assert_allclose(actual, wanted, rtol=5e-3)


def test_comparisons_are_steps(tmp_path):
    """The first size of which the run alone knows that it is another's is compared, and no more is read for that."""
    manifest = bundle_of("masks of one size", tmp_path / "b")
    (program,) = manifest.programs
    *_, last = program.steps
    assert isinstance(last, CompareStep)
    assert (last.test, {last.left, last.right}) == ("equal", set(program.ranges))


def test_too_many_comparisons_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(program_comparisons, "MOST_COMPARISONS", 1)
    with pytest.raises(shaderloom.UnsupportedError, match="more than 1 comparisons") as caught:
        bundle_of("one row or as many", tmp_path / "b")
    assert "--range" in str(caught.value)


def test_models_without_comparisons_have_none(tmp_path):
    """A range without what does not fit goes first."""
    model = parse("g (float[20] x, int64[1] k) => (float[n] y, int64[n] i) { y, i = TopK(x, k) }")
    manifest = compile_bundle(model, tmp_path / "b", shapes=[{"x": (20,), "k": (1,)}])
    (program,) = manifest.programs
    assert program.ranges["k"].to_json() == [0, 20]
    assert not any(isinstance(step, CompareStep) for step in program.steps)


def test_equal_sizes_stand_for_each_other():
    n, k = dimension("n", 1, 8), dimension("k", 0, 4096)
    decided = Decided().after(("less", k, 3), holds=False).after(("equal", k, n), holds=True)
    assert ix.transform(ix.multiply(k, 2), decided.sizes.get) == ix.multiply(n, 2)
    assert decided.answers == {("less", n, 3): False}
    decided = decided.after(("equal", n, 5), holds=True)
    assert ix.transform(k, decided.sizes.get) == ix.transform(n, decided.sizes.get) == 5


def test_sizes_beyond_a_range_stand_for_none():
    """``8 - a`` may be negative, where it equals b it is not: nothing is replaced, and the answer is kept."""
    a, b = dimension("a", 0, 4096), dimension("b", 0, 4096)
    total = ix.add(a, b)
    decided = Decided().after(("equal", total, 8), holds=True)
    assert not decided.sizes
    with pytest.raises(ix.Undecidable):
        ix.equal(total, 8)
    with ix.assuming(decided.answers):
        assert ix.equal(total, 8) and ix.equal(8, total)
    with pytest.raises(ix.Undecidable):
        ix.equal(total, 8)
