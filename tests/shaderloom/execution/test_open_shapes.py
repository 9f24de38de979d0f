"""Inputs whose sizes keep changing: one plan for a range of them from the third on, with the results of onnxruntime."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import shaderloom
from shaderloom.cli.inspect_output import summary
from shaderloom.runtime.plan.errors import InputError, ShaderloomError

from ...support.models import filled_model
from ...support.programs import BRANCHES, Pair, numbers, parse
from ...support.sessions import engine_of

#: What is computed of x, n rows of 4
BODIES = {
    "softmax": "y = Softmax<axis = 0>(x)",
    "flattened": "y = Reshape(x, flat)",
    "joined": "t = Tanh(x)  y = Concat<axis = 0>(t, x, t)",
    "padded": "y = Pad(x, pads)",
    "sums": "s = ReduceSum(x, first)  y = Div(x, s)",
    "products": "t = Transpose<perm = [1, 0]>(x)  m = MatMul(x, t)  y = Softmax<axis = -1>(m)",
    "its own shape": "n = Shape(x)  h = Slice(n, first, one)  r = ConstantOfShape(h)  s = ReduceSum(x, one)  "
    "q = Squeeze(s, one)  y = Add(q, r)",
    "positions": "n = Shape(x)  c = Gather(n, zero)  p = Range(zero, c, unit)  f = Cast<to = 1>(p)  "
    "u = Unsqueeze(f, one)  y = Mul(u, x)",
    "running sums": "y = CumSum(x, zero)",
    "halves": "y = Slice(x, first, far, first, two)",
}
CONSTANTS = """int64[1] flat = {-1}, int64[4] pads = {2, 0, 1, 0}, int64[1] first = {0}, int64[1] one = {1},
    int64 zero = {0}, int64 unit = {1}, int64[1] far = {1000000}, int64[1] two = {2}"""
SIZES = (5, 9, 7, 33, 1, 0, 64, 2, 100, 12)

TANH = "g (float[n, 4] x) => (float[n, 4] y) { y = Tanh(x) }"


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_graphs_over_an_open_axis(name: str, each_device) -> None:
    """Four sizes have plans of their own: the first two, 0 and 1.

    The others share a wide range, and where no tile of a product depends on the size one range of few rows; products
    have one for each that has a tile of its own.
    """
    model = parse(f"g (float[n, 4] x) => (float[a] y) <{CONSTANTS}> {{ {BODIES[name]} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    pair = Pair(model, each_device)
    for size in SIZES:
        if size or name not in ("sums", "its own shape"):  # onnxruntime refuses some of no rows
            pair.check(x=numbers(size, 4))
    assert pair.session.stats.misses <= (10 if name == "products" else 7)
    assert engine_of(pair.session).last.compiled.plan.symbols
    assert not pair.session.stats.refused_ranges


def test_the_first_two_sizes_and_those_of_one_are_points(device) -> None:
    pair = Pair(parse(TANH), device)
    keys = []
    for size in (5, 9, 5, 7, 30, 9, 1, 64, 300, 7):
        pair.check(x=numbers(size, 4))
        keys.append(pair.session.stats.last_key)
    own = ["x=5x4", "x=9x4", "x=1x4"]
    few, many, more = (f"x=nx4 (n {sizes})" for sizes in ("5 to 8", "9 to 256", "257 to 1024"))
    assert keys == [own[0], own[1], own[0], few, many, own[1], own[2], many, more, few]
    assert list(pair.session.stats.keys) == [own[0], own[1], few, many, own[2], more]
    report = pair.session.report()
    assert report["symbols"] == {"n": [5, 8]} and report["dynamic"] == {
        "mode": "auto",
        "ranges": ["n 257 to 1024", "n 9 to 256", "n 5 to 8"],
        "points": ["x=5x4", "x=9x4", "x=1x4"],
        "refused": {},
    }


def test_a_fixed_size_and_off_and_declared_ranges(device) -> None:
    for dynamic, keys in (
        ("auto", ["x=5x4"]),
        ("off", ["x=5x4", "x=6x4", "x=7x4", "x=8x4"]),
        ({"n": (2, 9)}, ["x=nx4"]),
        ({}, ["x=5x4", "x=6x4", "x=7x4", "x=8x4"]),
    ):
        pair = Pair(parse(TANH), device, dynamic=dynamic)
        for size in (5, 5, 5) if dynamic == "auto" else (5, 6, 7, 8):
            pair.check(x=numbers(size, 4))
        assert list(pair.session.stats.keys) == keys
    with pytest.raises(InputError, match="dynamic is 'auto', 'off' or a mapping"):
        Pair(parse(TANH), device, dynamic="sometimes")


def test_sizes_that_differ_by_a_number(device) -> None:
    """A mask that is one longer than the past, as decoders have it, and a batch that varies besides."""
    pair = Pair(
        parse("""g (float[b, p, 4] past, float[b, 1, 4] now, float[b, t] mask) => (float[b, t, 4] y)
        <int64[1] last = {-1}> { k = Concat<axis = 1>(past, now)  m = Unsqueeze(mask, last)  y = Mul(k, m) }"""),
        device,
    )
    for batch, past in ((1, 5), (1, 6), (1, 7), (1, 50), (3, 8), (3, 33), (2, 9), (4, 60)):
        pair.check(past=numbers(batch, past, 4), now=numbers(batch, 1, 4), mask=numbers(batch, past + 1))
    assert pair.session.stats.misses == 6, "two, few and many rows with a batch of 1, and with all others"
    assert pair.session.stats.last_key == ("past=bxpx4, now=bx1x4, mask=bxp + 1 (b 2 to 8, p 9 to 256)")


def test_sizes_that_fit_in_steps(device) -> None:
    """Halves that are joined to the whole again: multiples of what was met share a plan, others are the same error."""
    pair = Pair(
        parse("""g (float[1, 1, h] x) => (float[1, 1, a] y) <float[3] scales = {1.0, 1.0, 2.0}, float[0] none = {}> {
        p = MaxPool<kernel_shape = [2], strides = [2]>(x)  r = Resize<mode = "nearest">(p, none, scales)
        y = Add(x, r) }"""),
        device,
    )
    for size in (8, 12, 20, 64, 40, 28):
        pair.check(x=numbers(1, 1, size))
    assert pair.session.stats.misses == 3
    (refused,) = pair.session.stats.refused_ranges
    assert refused == "h 17 to 24"
    pair.check(x=numbers(1, 1, 6))
    with pytest.raises(ShaderloomError):
        pair.session.run(None, {"x": numbers(1, 1, 7)})


def test_what_no_range_serves_is_said_once(device, caplog) -> None:
    """A loop that is written out for each size."""
    model = parse("""g (float[n, 2] x) => (float[2] last, float[n, 2] y) <float[2] zero = {0, 0}> {
        last, y = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] r) => (float[2] t, float[2] u) {
            t = Add(s, r)  u = Identity(t) }>(zero, x) }""")
    pair = Pair(model, device)
    with caplog.at_level(logging.INFO, "shaderloom.compile"):
        for size in (3, 5, 4, 6, 7):
            pair.check(x=numbers(size, 2))
    assert pair.session.stats.misses == 5
    refused = pair.session.stats.refused_ranges
    assert next(iter(refused)) == "n 3 to 4" and "trip count of Scan" in refused["n 3 to 4"]
    assert sum("no plan for n 3 to 4" in record.message for record in caplog.records) == 1
    assert pair.session.report()["dynamic"]["refused"] == refused


def test_a_second_session_starts_with_the_range(device, tmp_path) -> None:
    keys = []
    for sizes in ((5, 9, 17), (5, 9, 20, 17)):
        with shaderloom.InferenceSession(parse(TANH), device=device, cache=tmp_path) as session:
            for size in sizes:
                x = numbers(size, 4)
                np.testing.assert_allclose(session.run(None, {"x": x})[0], np.tanh(x), rtol=1e-5, atol=1e-6)
                keys.append(session.stats.last_key)
            assert session.stats.disk_hits == (0 if len(keys) == 3 else session.stats.misses)
    narrow = "x=nx4 (n 17 to 24)"
    assert keys == ["x=5x4", "x=9x4", narrow, "x=5x4", "x=9x4", narrow, narrow]


def test_what_other_modes_compiled_is_not_listed(device, tmp_path) -> None:
    described = []
    for dynamic in ("auto", "off", {"n": (2, 64)}):
        with shaderloom.InferenceSession(parse(TANH), device=device, cache=tmp_path, dynamic=dynamic) as session:
            for size in (5, 9, 17):
                session.run(None, {"x": numbers(size, 4)})
            described.append(session.report()["dynamic"])
    assert described == [
        {"mode": "auto", "ranges": ["n 17 to 24"], "points": ["x=5x4", "x=9x4"], "refused": {}},
        {"mode": "off", "ranges": [], "points": [], "refused": {}},
        {"mode": "declared", "ranges": ["n 2 to 64"], "points": [], "refused": {}},
    ]


def test_inspect_lists_ranges_and_points(device, tmp_path) -> None:
    """Those that sessions of earlier processes had, and why others have no plan."""
    from shaderloom.inspect.inspected_plan import inspect_model
    from shaderloom.model.model import Model

    body = """s = Size(x)  h = Shape(x)  y = Reshape(x, pairs)"""
    model = parse(f"g (float[n, 1] x) => (float[a, 2] y) <int64[2] pairs = {{-1, 2}}> {{ {body} }}")
    with shaderloom.InferenceSession(model, device=device, cache=tmp_path) as session:
        for size in (12, 20, 28):
            session.run(None, {"x": numbers(size, 1)})
    inspected = inspect_model(Model(model, cache=tmp_path), {"x": (12, 1)}, device.profile)
    found = inspected.facts["dynamic"]
    assert found["mode"] == "auto" and found["points"] == ["x=12x1", "x=20x1"]
    assert found["ranges"] == ["n 12 to 64 in steps of 4"] and list(found["refused"]) == ["n 25 to 32"]
    lines = summary(inspected.describe())
    assert any("n 12 to 64 in steps of 4" in line for line in lines)
    assert any(line.startswith("no plan for n 25 to 32: ") for line in lines)


def test_a_second_program_starts_with_its_ranges(device, tmp_path) -> None:
    """Both stages of a model whose condition is computed."""
    for number in range(2):
        with shaderloom.InferenceSession(parse(BRANCHES), providers=["wgpu"], device=device, cache=tmp_path) as session:
            for size in (5, 9, 17, 33) if number == 0 else (40, 12):
                x = np.abs(numbers(size))
                np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x) + x.sum(), rtol=1e-5)
            assert session.stats.misses == (6 if number == 0 else 2)
            assert session.stats.disk_hits == (0 if number == 0 else 2)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_stages_around_nodes_of_the_cpu(device, precision: str) -> None:
    """Statistics have a row for the plan of each stage, with its range and its runs."""
    model = parse("""g (float[n, 4] x) => (float[n, 4] y) { t = Tanh(x)  d = Cast<to = 11>(t)  e = Sin(d)
        f = Cast<to = 1>(e)  y = Softmax(f) }""")
    options = shaderloom.SessionOptions()
    options.precision = precision
    sizes = (5, 9, 30, 100, 64, 33, 12, 250)
    with shaderloom.InferenceSession(model, options, ["wgpu", "cpu"], device=device, cache=False) as session:
        for size in sizes:
            x = numbers(size, 4)
            powers = np.exp(np.sin(np.tanh(x.astype(np.float64))))
            tolerance = 2e-6 if precision == "float32" else 1e-3
            np.testing.assert_allclose(
                session.run(None, {"x": x})[0], powers / powers.sum(1, keepdims=True), rtol=tolerance
            )
        stats = session.stats
        assert session.stats.steps == ["wgpu", "cpu", "wgpu"]
        assert stats.ranges == [
            "Tanh (main node 0): x=x[0]x4 (x[0] 9 to 256)",
            "Softmax (main node 4): f=f[0]x4 (f[0] 9 to 256)",
        ]
        assert stats.points[:2] == ["Tanh (main node 0): x=5x4", "Softmax (main node 4): f=5x4"]
        assert len(stats.keys) == stats.misses
        runs = [row.runs for row in stats.keys.values()]
        assert sum(runs) == 2 * len(sizes) and min(stats.keys[key].runs for key in stats.ranges) >= len(sizes) - 2


def test_half_precision(device) -> None:
    pair = Pair(
        parse("""g (float[n, 4] x) => (float[n, n] y) { t = Transpose<perm = [1, 0]>(x)  s = MatMul(x, t)
        m = Softmax<axis = -1>(s)  y = Sqrt(m) }"""),
        device,
        options={"precision": "float16"},
    )
    for size in (5, 9, 7, 33, 40, 41, 48, 70, 12):
        x = numbers(size, 4)
        (wanted,) = pair.reference.run(None, {"x": x})
        np.testing.assert_allclose(pair.session.run(None, {"x": x})[0], wanted, rtol=4e-3, atol=2e-3)
    assert pair.session.stats.last_key == "x=nx4 (n 9 to 16)"
    assert pair.session.stats.misses == 7


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
def test_bert_of_many_lengths(half: bool, each_device) -> None:
    """The first two lengths, and ranges across their borders: results of a plan for each; weights are held once."""
    path = filled_model("bert_small_dynamic")
    options = {"options": {"precision": "float16"}} if half else {}
    with (
        shaderloom.InferenceSession(path, device=each_device, cache=False, **options) as session,
        shaderloom.InferenceSession(path, device=each_device, cache=False, dynamic="off", **options) as plain,
    ):
        for length in (17, 30, 2, 3, 4, 5, 8, 9, 16, 18, 24, 25, 32, 33, 40, 41, 48, 49, 64, 65, 72, 73, 100):
            ids = np.random.default_rng(length).integers(0, 1000, (1, length))
            feeds = {"input_ids": ids, "attention_mask": (ids < 900).astype(np.int64)}
            for found, wanted in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=2e-2 if half else 1e-4, atol=3e-2 if half else 1e-5)
            if length == 3:  # the first range; a plan for one length has a slice of the table of positions besides
                weights = engine_of(session).resources.pool.bytes
        assert engine_of(session).resources.pool.bytes == weights
        assert (session.stats.misses, plain.stats.misses) == (13, 23)


@pytest.mark.slow
def test_pictures_in_steps(each_device) -> None:
    path = filled_model("unet_small")
    with (
        shaderloom.InferenceSession(path, device=each_device, cache=False) as session,
        shaderloom.InferenceSession(path, device=each_device, cache=False, dynamic="off") as plain,
    ):
        for height, width in ((32, 48), (48, 32), (64, 80), (80, 64), (40, 32)):
            feeds = {"input": numbers(1, 3, height, width)}
            for found, wanted in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
        assert session.stats.misses <= 4
        assert session.stats.refused_ranges
