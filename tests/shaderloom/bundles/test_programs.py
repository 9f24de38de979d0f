"""Bundles of models in several stages, beside sessions of the models.

Covers: shaderloom/bundles/program_compile, shaderloom/bundles/program_loop, shaderloom/bundles/program_scan,
shaderloom/bundles/program_run, shaderloom/bundles/plans.
"""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.bundles.verify import verify_samples
from shaderloom.cli import app
from shaderloom.runtime.bundle.program import BranchStep, ReadStep, StageStep

from ...support.bundles import (
    GROWING,
    LOOPS,
    SCANS,
    growing_bundle,
    growing_feeds,
    loops_feeds,
    scans_bundle,
    scans_feeds,
    steps_bundle,
)
from ...support.comparison import reference
from ...support.model_inputs import speech
from ...support.models import trained_model
from ...support.programs import BRANCHES, numbers, parse, sparse

#: A count, and what is computed from it on the host: twice the sizes, and a range
COUNTED_SIZES = """g (float[5, 40] x) => (int64[2, m] y, float[k] z, int64[1] s, int64[r] order) <int64[1] two = {2}> {
    y = NonZero(x)  t = Transpose(y)  v = GatherND(x, t)  z = Concat<axis = 0>(v, v)
    whole = Shape(z)  s = Div(whole, two)
    n = Squeeze(whole)  first = Constant<value = int64 {0}>()  one = Constant<value = int64 {1}>()
    order = Range(first, n, one) }"""

#: Boxes that do not overlap, what they are, and the best of them
DETECTOR = """g (float[1, 60, 4] boxes, float[1, 3, 60] scores)
        => (int64[n, 3] selected, float[n, 4] chosen, float best)
    <int64 most = {7}, float overlap = {0.4}, float least = {0.2}, int64[1] zero = {0}, int64[1] one = {1}> {
    selected = NonMaxSuppression(boxes, scores, most, overlap, least)
    places = Gather<axis = 1>(selected, last)  flat = Squeeze(places, one)  all = Squeeze(boxes, zero)
    chosen = Gather<axis = 0>(all, flat)  best = ReduceMax<keepdims = 0>(scores)
    last = Constant<value = int64[1] {2}>() }"""

#: Boxes of a declared number, with a limit that more of them reach than not
DECLARED_BOXES = """g (float[1, n, 4] boxes, float[1, 3, n] scores) => (int64[k, 3] selected)
    <int64 most = {7}, float overlap = {0.4}, float least = {0.2}> {
    selected = NonMaxSuppression(boxes, scores, most, overlap LEAST) }"""

#: Durations of sounds to their frames: the length of the result is the sum of the durations
SPEECH = """g (int64[t] durations, float[t, 6] sounds) => (float[frames, 6] spoken)
    <int64 zero = {0}, int64 one = {1}, int64[1] axis0 = {0}, int64[1] axis1 = {1}> {
    total = ReduceSum<keepdims = 0>(durations)  steps = Range(zero, total, one)
    ends = CumSum(durations, zero)  column = Unsqueeze(ends, axis0)  row = Unsqueeze(steps, axis1)
    behind = GreaterOrEqual(row, column)  counts = Cast<to = 7>(behind)  index = ReduceSum<keepdims = 0>(counts, axis1)
    spoken = Gather<axis = 0>(sounds, index) }"""


#: A decoder in the merged form of exporters: with a cache of ``p`` positions, or for a prompt without one
MERGED = """g (int64[1, s] ids, float[1, 2, p, 8] past, bool[1] use_cache_branch)
    => (float[1, s, 40] logits, float[1, 2, t, 8] present)
    <int64[4] split = {1, -1, 2, 8}, int64[3] merge = {1, -1, 16}> {
    x = Gather<axis = 0>(table, ids)  q0 = MatMul(x, wq)  q1 = Reshape(q0, split)
    q = Transpose<perm = [0, 2, 1, 3]>(q1)
    k0 = MatMul(x, wk)  k1 = Reshape(k0, split)  k = Transpose<perm = [0, 2, 1, 3]>(k1)
    present = If (use_cache_branch) < then_branch = a () => (float[1, 2, u, 8] r) { r = Concat<axis = 2>(past, k) },
                                      else_branch = b () => (float[1, 2, v, 8] r) { r = Identity(k) } >
    turned = Transpose<perm = [0, 1, 3, 2]>(present)  scores = MatMul(q, turned)  weights = Softmax<axis = -1>(scores)
    c0 = MatMul(weights, present)  c1 = Transpose<perm = [0, 2, 1, 3]>(c0)  c = Reshape(c1, merge)
    logits = MatMul(c, head) }"""

#: Two sides that read one weight
SIDES = """g (bool c, float[3, 64] x) => (float[3, 64] y) <float[64, 64] w = {WEIGHT}> {
    y = If (c) < then_branch = a () => (float[3, 64] t) { t = MatMul(x, w) },
                 else_branch = b () => (float[3, 64] e) { r = Relu(x) e = MatMul(r, w) } > }"""


@pytest.fixture
def both(tmp_path, device):
    """``both(model, shapes, **options)``: the session of a bundle, and that of its model."""
    opened = []

    def open_both(model, shapes, **options):
        model = parse(model) if isinstance(model, str) else model
        dynamic = options.get("dynamic")
        shapes = shapes if isinstance(shapes, list) else [shapes] if shapes else []
        compile_bundle(model, tmp_path / "m.shaderbundle", shapes=shapes, **options)
        opened.append(shaderloom.load_bundle(tmp_path / "m.shaderbundle", device=device))
        opened.append(shaderloom.InferenceSession(model, device=device, cache=False, dynamic=dynamic))
        return tuple(opened[-2:])

    yield open_both
    for session in opened:
        session.close()


def assert_alike(sessions, feeds) -> list[np.ndarray]:
    bundle, session = sessions
    outputs = bundle.run(None, feeds)
    for actual, expected in zip(outputs, session.run(None, feeds), strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    return outputs


def boxes_of(seed: int, spread: float) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    corners = generator.random((1, 60, 2)) * spread
    boxes = np.concatenate([corners, corners + generator.random((1, 60, 2))], 2).astype(np.float32)
    return {"boxes": boxes, "scores": generator.random((1, 3, 60)).astype(np.float32)}


def program_of(session):
    (program,) = session.bundle.manifest.programs
    return program


def test_counts_are_read_and_sizes_follow_from_them(both):
    sessions = both(COUNTED_SIZES, {})
    program = program_of(sessions[0])
    assert [type(step) for step in program.steps] == [StageStep, ReadStep, StageStep]
    assert {name: sizes.to_json() for name, sizes in program.ranges.items()} == {"m": [0, 200]}
    for keep in (0.3, 1, 0.005, 0.9):
        assert_alike(sessions, {"x": sparse(5, 40, keep=keep)})
    assert_alike(sessions, {"x": np.zeros((5, 40), np.float32)})
    stats = sessions[0].stats
    assert (stats.steps, [crossing.bytes for crossing in stats.crossings]) == (["wgpu", "wgpu"], [4])


def test_conditions_go_either_way_with_shared_weights(both):
    sessions = both(BRANCHES, {"x": (7,)})
    program = program_of(sessions[0])
    assert [type(step) for step in program.steps] == [StageStep, BranchStep]
    positive = np.abs(numbers(7))
    assert assert_alike(sessions, {"x": positive})[0].shape == (7,)
    assert assert_alike(sessions, {"x": -positive})[0].shape == (14,)


def test_branches_share_their_weights(both):
    bundle, session = both(SIDES.replace("WEIGHT", ", ".join(map(str, numbers(64, 64).reshape(-1)))), {})
    keys = {stage.key for stage in program_of(bundle).stages}
    assert len(keys) == 2
    assert sum(part.length for parts in bundle.bundle.manifest.weights.values() for part in parts) == 64 * 64 * 4
    for taken in (True, False):
        assert_alike((bundle, session), {"c": np.array(taken), "x": numbers(3, 64)})


def test_suppression_behind_a_detector(both):
    sessions = both(DETECTOR, {})
    for seed, spread in enumerate((1, 4, 30)):
        assert_alike(sessions, boxes_of(seed, spread))
    none = {**boxes_of(3, 1), "scores": np.zeros((1, 3, 60), np.float32)}
    assert assert_alike(sessions, none)[0].shape == (0, 3)


def test_counts_over_declared_sizes(both):
    """NonZero and Compress of a tensor whose sizes are declared: positions are those of each run."""
    model = """g (float[n, 4, h] x) => (int64[3, m] y, float[c] w) <float zero = {0}, int64[1] flat = {-1}> {
        y = NonZero(x)  p = Greater(x, zero)  q = Reshape(p, flat)  w = Compress(x, q) }"""
    sessions = both(model, {"x": (5, 4, 3)}, dynamic={"n": (0, 90), "h": (0, 120)})
    for n, h, keep in ((5, 3, 0.3), (1, 1, 1), (90, 120, 0.5), (7, 0, 1), (33, 17, 0.01)):
        x = sparse(n, 4, h, keep=keep, seed=n)
        for session in sessions:
            places, positive = session.run(None, {"x": x})
            np.testing.assert_array_equal(places, np.array(np.nonzero(x)))
            np.testing.assert_array_equal(positive, x[x > 0])


@pytest.mark.parametrize("least", ["", ", least"])
def test_suppression_over_declared_boxes(tmp_path, device, least):
    """The session of the sizes at hand is the reference: onnxruntime's order of equal scores is its own."""
    model = parse(DECLARED_BOXES.replace("LEAST", least))
    compile_bundle(model, tmp_path / "b", shapes=[{"boxes": (1, 5, 4), "scores": (1, 3, 5)}], dynamic={"n": (0, 99)})
    with (
        shaderloom.load_bundle(tmp_path / "b", device=device) as bundle,
        shaderloom.InferenceSession(model, device=device, cache=False, dynamic={"n": (0, 99)}) as declared,
        shaderloom.InferenceSession(model, device=device, cache=False, dynamic="off") as session,
    ):
        for n in (5, 1, 99, 64, 65, 0):
            generator = np.random.default_rng(n)
            corners = generator.random((1, n, 2)) * 3
            boxes = np.concatenate([corners, corners + generator.random((1, n, 2))], 2).astype(np.float32)
            feeds = {"boxes": boxes, "scores": generator.random((1, 3, n)).astype(np.float32)}
            expected = assert_alike((declared, session), feeds)
            np.testing.assert_array_equal(bundle.run(None, feeds)[0], expected[0])


def test_the_length_of_speech(both):
    sessions = both(SPEECH, {"durations": (9,), "sounds": (9, 6)}, ranges={"frames": (0, 300)})
    for seed in range(3):
        durations = np.random.default_rng(seed).integers(0, 30, 9)
        assert_alike(sessions, {"durations": durations, "sounds": numbers(9, 6)})


def test_an_integer_in_two_shapes_is_one_integer(both):
    """What is read as a scalar and as a vector, or in another type, has one symbol, so that sizes of both agree."""
    sessions = both(
        """g (int64[t] d, float[1, 3] x) => (float[n, 3] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}> {
            total = ReduceSum<keepdims = 0>(d)  a = Unsqueeze(total, axis)  b = Squeeze(a)
            blank = ConstantOfShape<value = float[1] {1}>(a)  steps = Range(zero, b, one)  wave = Cast<to = 1>(steps)
            sum = Add(blank, wave)  column = Unsqueeze(sum, column1)  y = Mul(column, x)
            column1 = Constant<value = int64[1] {1}>() }""",
        {"d": (4,)},
        ranges={"total": (0, 60)},
    )
    program = program_of(sessions[0])
    assert [type(step) for step in program.steps] == [StageStep, ReadStep, StageStep]
    assert list(program.ranges) == ["total"]
    for high in (1, 4, 15):
        assert_alike(sessions, {"d": np.random.default_rng(high).integers(0, high, 4), "x": numbers(1, 3)})


def test_dynamic_dimensions_beside_what_is_read(both):
    sessions = both(SPEECH, {"durations": (9,), "sounds": (9, 6)}, dynamic={"t": (1, 40)})
    for size in (1, 9, 40):
        durations = np.random.default_rng(size).integers(1, 9, size)
        assert_alike(sessions, {"durations": durations, "sounds": numbers(size, 6)})


def test_a_merged_decoder_with_and_without_its_cache(both):
    model = parse(MERGED)
    for name, shape in {"table": (40, 16), "wq": (16, 16), "wk": (16, 16), "head": (16, 40)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers(*shape), name))
    shapes = {"ids": (1, 3), "past": (1, 2, 5, 8), "use_cache_branch": (1,)}
    sessions = both(model, shapes, dynamic={"s": (1, 16), "p": (1, 64)})
    past = np.zeros((1, 2, 1, 8), np.float32)
    for uses_cache, ids in ((False, [1, 2, 3]), (True, [4]), (True, [5, 6]), (False, [7])):
        feeds = {"ids": np.array([ids]), "past": past, "use_cache_branch": np.array([uses_cache])}
        _, past = assert_alike(sessions, feeds)
    assert past.shape == (1, 2, 1, 8)


def test_a_side_that_does_not_fit_the_shapes_is_refused_in_runs(both):
    sessions = both(
        """g (bool c, float[4] x, float[3] w) => (float[n] y) {
            y = If (c) < then_branch = a () => (float[p] t) { t = Add(x, w) },
                         else_branch = b () => (float[q] e) { e = Concat<axis = 0>(x, w) } > }""",
        {},
    )
    feeds = {"c": np.array(False), "x": numbers(4), "w": numbers(3)}
    assert_alike(sessions, feeds)
    with pytest.raises(shaderloom.InputError, match=r"'c' is true, for which these shapes do not fit: .*Add"):
        sessions[0].run(None, feeds | {"c": np.array(True)})


def test_two_sides_that_do_not_fit_are_refused(tmp_path):
    model = parse("""g (bool c, float[4] x, float[3] w) => (float[n] y) {
        y = If (c) < then_branch = a () => (float[p] t) { t = Add(x, w) },
                     else_branch = b () => (float[q] e) { e = Mul(x, w) } > }""")
    with pytest.raises(shaderloom.ShapeError):
        compile_bundle(model, tmp_path / "b")


@pytest.mark.slow
def test_silero_hears_at_both_rates(both):
    """One bundle for both rates, whose branches take sounds of their own lengths; the weights are stored once."""
    path = trained_model("silero_both")
    shapes = [{"input": (1, 36 * rate), "state": (2, 1, 128), "sr": ()} for rate in (16, 8)]
    sessions = both(path, shapes)
    manifest = sessions[0].bundle.manifest
    stored = sum(part.length for parts in manifest.weights.values() for part in parts)
    assert (len(manifest.programs), stored < 1.1 * path.stat().st_size) == (2, True)
    for rate in (16, 8, 16):
        sound = speech(36 * rate, rate=rate * 1000)[None]
        feeds = {"input": sound, "state": numbers(2, 1, 128), "sr": np.array(rate * 1000)}
        assert_alike(sessions, feeds)
    with pytest.raises(shaderloom.InputError, match="for which these shapes do not fit"):
        sessions[0].run(None, {**feeds, "sr": np.array(8000)})


# -- loops -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def loops(both):
    ranges = {"k": (0, 40), "iterations of y": (0, 30)}
    shapes = {"x": (3,), "limit": (), "k": ()}
    return both(onnx.parser.parse_model(LOOPS), shapes, dynamic={"n": (1, 9)}, ranges=ranges)


@pytest.mark.parametrize(("n", "limit", "k"), [(3, 100, 7), (9, 1, 40), (1, 1e6, 1)])
def test_loops_carry_tensors_and_stack_rows(loops, n, limit, k):
    outputs = assert_alike(loops, loops_feeds(n, limit, k))
    assert outputs[4].shape == (k, n)
    crossings = {crossing.tensor for crossing in loops[0].stats.crossings}
    assert crossings == {"Loop_0.body/on"}, "what is carried stays on the device"


def test_a_loop_without_iterations_gives_what_it_began_with(loops):
    feeds = loops_feeds(4, 1, 0)
    y, steps, sums, z, rows, order = loops[0].run(None, feeds)
    np.testing.assert_array_equal(z, feeds["x"])
    assert (rows.shape, order.shape, steps, sums.shape) == ((0, 4), (0,), 1, (1,))
    np.testing.assert_allclose(y, 2 * feeds["x"])


def test_loops_end_at_their_ranges(loops):
    with pytest.raises(shaderloom.InputError, match=r"'iterations of y' is 31 in this run, .* for 0 to 30"):
        loops[0].run(None, loops_feeds(3, 3e38, 2))
    with pytest.raises(shaderloom.InputError, match=r"'k' is 41 in this run, .* for 0 to 40"):
        loops[0].run(None, loops_feeds(3, 1, 41))
    assert_alike(loops, loops_feeds(3, 1e8, 40))


def test_loops_carry_more_and_more(tmp_path, device):
    """Sizes that change from iteration to iteration are symbols of ranges, 0 among them."""
    model = onnx.parser.parse_model(GROWING)
    with shaderloom.load_bundle(growing_bundle(tmp_path / "b"), device=device) as bundle:
        names = [port.name for port in bundle.get_outputs()]
        for n, k, limit in ((3, 4, 30), (1, 0, 0), (5, 9, 55), (2, 1, 8)):
            feeds = growing_feeds(n, k, limit)
            for name, actual, expected in zip(names, bundle.run(None, feeds), reference(model, feeds), strict=True):
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), name
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        with pytest.raises(shaderloom.InputError, match="'size of rows' is 60 in this run"):
            bundle.run(None, growing_feeds(5, 2, 1e6))


def test_rows_of_changing_shapes_are_refused(tmp_path):
    model = parse("""g (float[3] x, int64 k) => (float[m] y, float[k, q] rows) {
        y, rows = Loop (k, , x) < body = b (int64 i, bool go, float[p] v) => (bool on, float[r] w, float[p] o) {
            on = Identity(go)  w = Concat<axis = 0>(v, x)  o = Exp(v) } > }""")
    with pytest.raises(shaderloom.UnsupportedError, match=r"'Loop_0\.body/o' is no row"):
        compile_bundle(model, tmp_path / "b", shapes=[{"x": (3,), "k": ()}], ranges={"k": (0, 4)})


def test_scans_of_lengths_that_runs_decide(tmp_path, device):
    """Sequences along any axis and from either end; onnxruntime refuses those without elements."""
    model = onnx.parser.parse_model(SCANS)
    path = scans_bundle(tmp_path / "b")
    with (
        shaderloom.load_bundle(path, device=device) as bundle,
        shaderloom.InferenceSession(model, device=device, cache=False, dynamic={"n": (0, 9)}) as session,
    ):
        for n, k in ((5, 7), (1, 1), (9, 20)):
            outputs = assert_alike((bundle, session), scans_feeds(n, k))
            for actual, expected in zip(outputs, reference(model, scans_feeds(n, k)), strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        last, *rows = bundle.run(None, scans_feeds(0, 0))
        np.testing.assert_array_equal(last, scans_feeds(0, 0)["s"])
        assert [array.shape for array in rows] == [(3, 0), (0, 3), (), (0,)]


def test_loops_in_loops_with_branches(both):
    sessions = both(
        """g (float[4] x, int64 k, int64 m) => (float[4] y) {
            y = Loop (k, , x) < body = a (int64 i, bool go, float[4] v) => (bool on, float[4] w) {
                on = Identity(go)
                w = Loop (m, , v) < body = b (int64 j, bool go2, float[4] u) => (bool on2, float[4] r) {
                    on2 = Identity(go2)  c = Less(j, i)
                    r = If (c) < then_branch = s () => (float[4] t) { t = Add(u, x) },
                                 else_branch = f () => (float[4] t) { t = Mul(u, x) } > } > } > }""",
        {},
    )
    for k, m in ((3, 2), (1, 4), (2, 0)):
        assert_alike(sessions, {"x": numbers(4), "k": np.array(k), "m": np.array(m)})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "c = Constant<value = int64[1] {0}>() w = Unsqueeze(v, c)",
            "carries tensors of one type and rank: 'Loop_0.body/w' is not that of 'Loop_0.body/v'",
        ),
        ("w = Exp(v) a = Exp(x) s = SequenceConstruct(a)", "SequenceConstruct"),
    ],
)
def test_loops_that_are_refused(tmp_path, body, reason):
    model = parse("""g (float[n] x, int64 k) => (float[m] y) {
        y = Loop (k, , x) < body = b (int64 i, bool go, float[p] v) => (bool on, float[q] w) {
            on = Identity(go) %s } > }""".replace("%s", body))  # fmt: skip
    with pytest.raises(shaderloom.UnsupportedError, match=reason):
        compile_bundle(model, tmp_path / "b", shapes=[{"x": (4,), "k": ()}])


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_run_outside_of_a_range_names_it(both):
    bundle, _ = both(COUNTED_SIZES, {}, ranges={"m": (1, 50)})
    with pytest.raises(shaderloom.InputError) as caught:
        bundle.run(None, {"x": np.ones((5, 40), np.float32)})
    assert str(caught.value) == (
        "input, tensor 'NonZero_0.2': 'm' is 200 in this run, and the bundle was compiled for 1 to 50 "
        "[compile it with --range 'm=LOW:HIGH']"
    )
    bundle.run(None, {"x": sparse(5, 40, keep=0.1)})


def test_ranges_of_what_no_run_reads_are_refused(tmp_path):
    with pytest.raises(shaderloom.InputError, match=r"no run reads 'n', .* are m"):
        compile_bundle(parse(COUNTED_SIZES), tmp_path / "b", ranges={"n": (1, 50)})
    with pytest.raises(shaderloom.InputError, match="the model reads no integers"):
        compile_bundle(parse("g (float[2] x) => (float[2] y) { y = Exp(x) }"), tmp_path / "b", ranges={"n": (1, 50)})


def test_several_conditions_for_one_node_are_refused(tmp_path):
    model = parse("g (float[3] x, bool[2] c) => (float[3] y) { y = Dropout(x, , c) }")
    with pytest.raises(shaderloom.UnsupportedError, match="2 elements of type bool in 'c'"):
        compile_bundle(model, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_nodes_that_need_the_cpu_are_listed(tmp_path):
    model = parse("""g (bool c, float[4] x) => (float[4] y, int64 n, bool b) {
        y = If (c) < then_branch = a () => (float[4] t) { t = Exp(x) },
                     else_branch = b () => (float[4] e) { e = Relu(x) } >
        q = SequenceConstruct(x, x)  n = SequenceLength(q)  s = Cast<to = 8>(x)  r = RegexFullMatch<pattern = "1">(s)
        b = ReduceMax<keepdims = 0>(r) }""")
    with pytest.raises(shaderloom.UnsupportedError) as caught:
        compile_bundle(model, tmp_path / "b")
    for name in ("SequenceConstruct (main node 1)", "SequenceLength (main node 2)", "RegexFullMatch (main node 4)"):
        assert name in str(caught.value)


def test_constant_outputs_and_inputs_that_are_outputs(both):
    sessions = both(
        """g (float[2, 3] x, bool c) => (float[2, 3] x2, float[2] k, float[n] y) <float[2] k = {1, 2}> {
            x2 = Identity(x)  i = If (c) < then_branch = a () => (float[2, 3] t) { t = Exp(x) },
                                           else_branch = b () => (float[2, 3] e) { e = Identity(x) } >
            flat = Constant<value = int64[1] {-1}>()  y = Reshape(i, flat) }""",
        {},
    )
    for taken in (True, False):
        assert_alike(sessions, {"x": numbers(2, 3), "c": np.array(taken)})


def test_samples_of_programs_are_verified(tmp_path, device):
    path = tmp_path / "b"
    compile_bundle(parse(COUNTED_SIZES), path, sample=True, sample_inputs={"x": sparse(5, 40)}, device=device)
    with shaderloom.load_bundle(path, device=device) as session:
        assert [comparison.reason for comparison in verify_samples(session)] == [None] * 4


def test_samples_keep_scalars(tmp_path, device):
    steps_bundle(tmp_path / "b", sample=True, device=device)
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        sample = session.bundle.sample(session.bundle.manifest.samples[0])
        assert sample.inputs["c"].shape == ()
        assert [comparison.reason for comparison in verify_samples(session)] == [None] * 4


def test_equal_input_gives_equal_bytes(tmp_path):
    for name in ("a", "b"):
        compile_bundle(parse(DETECTOR), tmp_path / name)
    first, second = ((tmp_path / name / "manifest.json").read_bytes() for name in ("a", "b"))
    assert first == second
    assert json.loads(first)["plans"] == []


def test_one_output_and_a_profile(both):
    bundle, session = both(COUNTED_SIZES, {})
    feeds = {"x": sparse(5, 40)}
    np.testing.assert_array_equal(bundle.run(["z"], feeds)[0], session.run(["z"], feeds)[0])
    assert [str(key) for key in bundle.shape_keys] == ["x=5x40"]
    assert len(bundle._engine.profile(feeds)) == 2


def test_the_command_takes_ranges_and_lists_them(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(parse(COUNTED_SIZES), path)
    command = ["compile", str(path), "-o", str(tmp_path / "b"), "--range", "m=0:64"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "1 program of" in result.output
    assert "  m: 0 to 64\n" in result.output
    program = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)["programs"]
    assert program == [{"shapes": {"x": [5, 40]}, "stages": 2, "ranges": {"m": [0, 64]}}]


def test_the_command_takes_ranges_below_zero(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(parse("g (float[9] x, int64[1] s) => (float[n] y) <int64[1] end = {9}> { y = Slice(x, s, end) }"), path)
    command = ["compile", str(path), "-o", str(tmp_path / "b"), "--range", "s=-9:8"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "  s: -9 to 8\n" in result.output
