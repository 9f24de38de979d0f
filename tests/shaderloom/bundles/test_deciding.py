"""Integers and conditions that decide shapes, axes and nodes of bundles, beside onnxruntime.

Covers: compiler/ops/internal/fixed_point, compiler/ops/onnx/mel_weights, shaderloom/bundles/program_choices,
shaderloom/bundles/program_equality, shaderloom/bundles/program_compile, shaderloom/bundles/program_ranges,
shaderloom/bundles/program_sizes, compiler/ops/math/quotients, compiler/ops/onnx/fourier,
compiler/ops/onnx/generators, compiler/ops/onnx/resize_by_floats.
"""

from __future__ import annotations

import numpy as np
import pytest

import shaderloom
from shaderloom.bundles import program_sizes
from shaderloom.bundles.compile import compile_bundle
from shaderloom.compiler.ops.internal.symbolic import MAX_DIMENSIONS
from shaderloom.compiler.ops.onnx.mel_weights import mel_matrix
from shaderloom.runtime.bundle.structure import schema

from ...support.comparison import reference
from ...support.deciding import DECIDING, floats, ints, number
from ...support.programs import parse


def bundle_of(name: str, path):
    model = DECIDING[name]
    shapes = [{port: array.shape for port, array in model.feeds[0].items()}]
    return compile_bundle(parse(model.text), path, shapes=shapes, **model.options)


#: The cases of the quick tier
QUICK = frozenset({"two selections by one mask", "an axis"})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in DECIDING]
)
def test_what_decides_is_data(name, tmp_path, device):
    bundle_of(name, tmp_path / "b")
    model = parse(DECIDING[name].text)
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for feeds in DECIDING[name].feeds:
            for actual, expected in zip(session.run(None, feeds), reference(model, feeds), strict=True):
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
                np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_lengths_of_ranges_of_floats_are_exact(tmp_path, device):
    """As many elements as the exact quotient says, rounded up once: devices round quotients wrongly."""
    bundle_of("a Range of floats", tmp_path / "b")
    draw = np.random.default_rng(0)
    tenths = (np.arange(-30, 31) / 10).astype(np.float32)
    ends = [draw.choice(tenths[tenths != 0], 3) for _ in range(60)]
    ends += [np.array(each, np.float32) for each in ((0, 1e-40, 3e-41), (7, 7, 0.1), (0, 5, np.inf), (0, 4096, 1))]
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for start, limit, delta in ends:
            count = max(int(np.ceil(np.float64(limit - start) / np.float64(delta))), 0)
            (steps,) = session.run(None, {"a": start, "b": limit, "d": delta})
            assert steps.shape == (count,), (start, limit, delta)
            np.testing.assert_allclose(steps, start + np.arange(count) * np.float32(delta if count else 0), atol=1e-5)
        for start, limit, delta in ((0, np.nan, 1), (0, np.inf, 1), (0, 1, 0), (np.nan, 1, 1), (0, 1, np.nan)):
            feeds = {"a": np.float32(start), "b": np.float32(limit), "d": np.float32(delta)}
            with pytest.raises(shaderloom.InputError, match=r"'n' is -1 in this run, .* compiled for 0"):
                session.run(None, feeds)


def test_sizes_that_keep_aspect_ratios_are_exact(tmp_path, device):
    """As float32 has them: halves often lie at the end of a product with a rounded quotient."""
    model = parse("""g (float[n, m] x, int64[2] sizes) => (float[a, b] y, float[c, d] z) {
        y = Resize<keep_aspect_ratio_policy = "not_larger">(x, , , sizes)
        z = Resize<keep_aspect_ratio_policy = "not_smaller">(x, , , sizes) }""")
    ranges = dict.fromkeys("abcd", (0, 2000))
    dynamic = {"n": (1, 60), "m": (1, 60)}
    compile_bundle(model, tmp_path / "b", shapes=[{"x": (1, 1), "sizes": (2,)}], dynamic=dynamic, ranges=ranges)
    draw = np.random.default_rng(0)
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for case in range(80):
            before = draw.integers(1, 61, 2)
            after = before * draw.integers(1, 40) // 2 if case % 2 else draw.integers(0, 33, 2)
            ratios = after.astype(np.float32) / before.astype(np.float32)
            feeds = {"x": np.ones(before, np.float32), "sizes": after}
            for result, ratio in zip(session.run(None, feeds), (ratios.min(), ratios.max()), strict=True):
                sizes = np.floor((ratio * before.astype(np.float32)).astype(np.float64) + 0.5)
                assert result.shape == tuple(sizes), (before, after)
        with pytest.raises(shaderloom.InputError, match=r"'a' is -1 in this run, .* compiled for 0"):
            session.run(None, {"x": np.ones((2, 2), np.float32), "sizes": ints(-1, 2)})


def test_scales_that_are_none_are_refused(tmp_path, device):
    model = DECIDING["scales that floats decide"]
    bundle_of("scales that floats decide", tmp_path / "b")
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for scale in (0, -1, np.nan, np.inf, 1e20):
            with pytest.raises(shaderloom.InputError, match=r"'h' is -1 in this run, .* compiled for 0"):
                session.run(None, {**model.feeds[0], "s": np.array([scale, 1], np.float32)})


def test_steps_of_frames_that_are_none_are_refused(tmp_path, device):
    """As are frames that are longer than the signal, of which no step makes one."""
    model = parse("""g (float[1, n] s, int64 step, int64 length) => (float[1, f, c, 2] y) {
        y = STFT(s, step, , length) }""")
    compile_bundle(model, tmp_path / "b", shapes=[{"s": (1, 30)}])
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        feeds = {"s": floats(1, 30), "step": number(8), "length": number(30)}
        assert session.run(None, feeds)[0].shape == (1, 1, 16, 2)
        for wrong in ({"step": number(0)}, {"step": number(-1)}, {"length": number(31)}):
            with pytest.raises(shaderloom.InputError, match=r"'STFT_0.0' is -1 in this run, .* compiled for 0"):
                session.run(None, {**feeds, **wrong})


@pytest.mark.slow
def test_a_shape_that_does_not_fit_is_refused_in_runs(tmp_path, device):
    bundle_of("shapes of which few fit", tmp_path / "b")
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        with pytest.raises(shaderloom.InputError, match=r"!= 12, for which these shapes do not fit"):
            session.run(None, {"x": floats(12), "shape": ints(4, 4)})
        with pytest.raises(shaderloom.InputError, match=r"'shape\[1\]' is 12 in this run, .* compiled for 3 to 6"):
            session.run(None, {"x": floats(12), "shape": ints(3, 12)})


def test_more_values_than_branches_are_refused(tmp_path):
    model = parse(
        "g (float[2, 3, 4, 5, 6] x, int64[2] axes) => (float[a, b, c] y) { y = ReduceSum<keepdims = 0>(x, axes) }"
    )
    with pytest.raises(shaderloom.ShapeError, match=r"for axes\[0\] from 0 to 4, axes\[1\] from 0 to 4: .*--range"):
        compile_bundle(model, tmp_path / "b", shapes=[{"axes": (2,)}], ranges={"axes[0]": (0, 4), "axes[1]": (0, 4)})


def test_filters_are_those_of_float64(tmp_path, device):
    """Of numbers that runs decide: whatever they are, no filter begins or ends at another row."""
    model = parse("""g (int64 bins, int64 size, int32 rate, float low, float high) => (float[n, m] y) {
        wide = Cast<to = 7>(rate)  y = MelWeightMatrix(bins, size, wide, low, high) }""")
    compile_bundle(model, tmp_path / "b")
    draw = np.random.default_rng(0)
    names = ("bins", "size", "rate", "low", "high")
    cases = [(5, 8, 8000, 2100.0, 3500.0), (1, 16, 8, 0.0, 2**-20), (9, 4096, 2**31 - 1, 1e5, 1e9)]
    while len(cases) < 80:
        bins, size, rate = (int(draw.integers(1, most)) for most in (129, 2049, 99999))
        high = draw.uniform(0, (size // 2 + 1) * rate / (size + 1))
        cases.append((bins, size, rate, draw.choice([0, high * draw.uniform(0, 0.9)]), high * 0.99))
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:

        def run(numbers) -> np.ndarray:
            dtypes = (np.int64, np.int64, np.int32, np.float32, np.float32)
            return session.run(None, {name: kind(each) for name, kind, each in zip(names, dtypes, numbers)})[0]

        for *integers, low, high in cases:
            expected = mel_matrix(*integers, float(np.float32(low)), float(np.float32(high)))
            np.testing.assert_allclose(run((*integers, low, high)), expected, rtol=1e-6, atol=0)
        bins, size, rate, low, high = cases[0]
        assert run((bins, size, rate, low, high)).any()
        for wrong in (
            (0, size, rate, low, high), (bins, size, 0, low, high), (bins, -1, rate, low, high),
            (bins, size, rate, -1.0, high), (bins, size, rate, high, high), (bins, size, rate, low, 4500.0),
            (bins, size, rate, low, np.nan), (bins, size, rate, np.nan, high), (bins, size, rate, low, np.inf),
        ):  # fmt: skip
            with pytest.raises(shaderloom.InputError, match=r"'size' is -1 in this run, .* compiled for 0"):
                run(wrong)


def test_more_integers_than_a_step_reads_are_refused(tmp_path):
    """A step reads as many as the compiler knows as symbols."""
    assert schema()["reads"] == MAX_DIMENSIONS
    model = parse("g (int64[257] shape, float[1] x) => (float[n] y) { all = ReduceProd(shape)  y = Reshape(x, shape) }")
    with pytest.raises(shaderloom.UnsupportedError, match=r"Reshape .*on 257 integers in .* reads 256 at most"):
        compile_bundle(model, tmp_path / "b")


def test_more_sizes_than_a_plan_has_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(program_sizes, "most_of", lambda kind, field: 1)
    model = parse("g (float[1] x, int64[2] shape) => (float[a, b] y) { y = Expand(x, shape) }")
    with pytest.raises(shaderloom.UnsupportedError, match=r"Expand .*a stage depends on 2 sizes .* 1 at most"):
        compile_bundle(model, tmp_path / "b", ranges={"shape[0]": (2, 4), "shape[1]": (2, 4)})


def test_integers_below_zero_have_ranges(tmp_path, device):
    """By default where an operator takes them, elsewhere where they are declared."""
    model = parse("""g (float[9] x, int64[1] s, int64[2] p) => (float[n] y, float[m] z)
        <int64[1] end = {9}> { y = Slice(x, s, end)  z = Pad(x, p) }""")
    manifest = compile_bundle(
        model, tmp_path / "b", shapes=[{"x": (9,), "s": (1,), "p": (2,)}], ranges={"p[0]": (-4, 3), "p[1]": (-5, -1, 2)}
    )
    (program,) = manifest.programs
    ranges = {name: sizes.to_json() for name, sizes in program.ranges.items()}
    assert ranges == {"p[0]": [-4, 3], "p[1]": [-5, -1, 2], "s": [-10, 10]}
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for s, *pads in ((4, 0, -1), (-3, -4, -5), (-99, 3, -3), (12, -1, -1), (-5000, 0, -1)):
            feeds = {"x": floats(9), "s": ints(s), "p": ints(*pads)}
            for actual, expected in zip(session.run(None, feeds), reference(model, feeds), strict=True):
                np.testing.assert_array_equal(actual, expected)
        with pytest.raises(shaderloom.InputError, match=r"'p\[1\]' is -2"):
            session.run(None, {"x": floats(9), "s": ints(0), "p": ints(0, -2)})


@pytest.mark.slow
def test_windows_that_do_not_fit_are_refused_in_runs(tmp_path, device):
    model = DECIDING["windows of what runs decide"]
    bundle_of("windows of what runs decide", tmp_path / "b")
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for feeds, text in (
            ({"low": np.array(9, np.float32)}, r"< 0, .* a window of 5 is larger than"),
            ({"image": ints(2, 22)}, r"< 0, .* a window of 3 is larger than"),
            ({"image": ints(5, 7)}, r"!= .* columns of shape"),
        ):
            with pytest.raises(shaderloom.InputError, match=text):
                session.run(None, {**model.feeds[0], **feeds})


@pytest.mark.slow
def test_axes_that_are_none_are_refused_in_runs(tmp_path, device):
    model = DECIDING["axes from either end"]
    manifest = bundle_of("axes from either end", tmp_path / "b")
    (program,) = manifest.programs
    assert program.ranges["axes[0]"].to_json() == [-3, 2]
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        with pytest.raises(shaderloom.InputError, match=r"'axes\[1\]' is 3 in this run, .* compiled for -3 to 2"):
            session.run(None, {**model.feeds[0], "axes": ints(0, 3)})
        with pytest.raises(shaderloom.InputError, match="'axes' is 1 1, for which these shapes do not fit"):
            session.run(None, {**model.feeds[0], "axes": ints(1, -2)})


@pytest.mark.slow
def test_both_sides_of_a_branch_have_one_range(tmp_path, device):
    """What the first side has is too much for the second."""
    model = parse("""g (bool c, int64 k) => (float[n, m] y) <int64 none = {0}, int64 one = {1}, int64[1] row = {0}> {
        y = If(c) < then_branch = t () => (float[a, b] p) {
                        r = Range(none, k, one)  f = Cast<to = 1>(r)  u = Unsqueeze(f, row)  p = Exp(u) },
                    else_branch = e () => (float[d, e] q) {
                        r2 = Range(none, k, one)  f2 = Cast<to = 1>(r2)  wide = Unsqueeze(f2, row)
                        tall = Transpose(wide)  q = MatMul(tall, wide) } > }""")
    limits = {"maxStorageBufferBindingSize": 5 << 20, "maxBufferSize": 5 << 20}
    manifest = compile_bundle(model, tmp_path / "b", shapes=[{"c": (), "k": ()}], limits=limits)
    (program,) = manifest.programs
    assert [sizes.high for sizes in program.ranges.values()] == [1024]
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        for taken in (True, False):
            feeds = {"c": np.array(taken), "k": np.array(9)}
            np.testing.assert_allclose(session.run(None, feeds)[0], reference(model, feeds)[0], rtol=1e-5)
