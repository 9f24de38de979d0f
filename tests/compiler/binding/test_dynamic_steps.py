"""Declared dimensions with a step: one plan for ``low``, ``low + step``, ... where not every size would do.

Covers: compiler/binding, compiler/symbolic/dimensions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from typer.testing import CliRunner

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.cli import app
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_unit, model_unit
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.passes.pipeline import LOWERED
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.dimensions import dimension, serialise
from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.dimension import evaluate
from shaderloom.runtime.plan.errors import BundleError, InputError, ShapeError
from shaderloom.runtime.plan.size_range import SizeRange
from shaderloom.tuner.kernel_benchmark import KernelBenchmark
from shaderloom.tuner.tasks import KernelBuilder, shortlist

from ...support.bundles import change_manifest, feeds, seal, small_bundle
from ...support.cases import difference, run_onnxruntime
from ...support.kernels import make_model
from ...support.running import compile_for, run_plan

# -- ranges ----------------------------------------------------------------------------------------------------------


def test_ranges() -> None:
    assert SizeRange.of((1, 9)) == (1, 9, 1)
    assert SizeRange.of([64, 511, 4]) == (64, 508, 4), "the upper bound becomes a size"
    assert [size for size in range(30) if SizeRange(5, 21, 8).allows(size)] == [5, 13, 21]
    assert str(SizeRange(5, 21, 8)) == "5 to 21 in steps of 8"
    assert SizeRange(64, 128, 4).refusal(66) == "the nearest are 64 and 68"
    assert SizeRange(64, 128, 4).refusal(3) == "the least is 64"
    assert SizeRange(64, 128, 4).refusal(129) == "the largest is 128"
    for wrong in (5, "12", (1,), (1, 2, 3, 4), (5, 4), (-1, 4), (1, 4, 0), (1.5, 4), None):
        with pytest.raises(ValueError, match=r"is not|has no"):
            SizeRange.of(wrong)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 20), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3))
def test_what_a_plan_says_of_sizes(low: int, step: int, count: int, divisor: int, factor: int) -> None:
    """The JSON form of any arithmetic on a dimension has its value for every size, and the dimension its bare name."""
    high = low + step * count
    size = dimension("a/4", low, high, step)
    other = dimension("a", 1, 8)
    assert serialise(size) == "a/4" and ix.bounds(size) == (low, high)
    product = ix.multiply(ix.add(ix.multiply(size, factor), 3), other)
    numbers = [
        (ix.floordiv(size, divisor), lambda a, b: a // divisor),
        (ix.modulo(size, divisor), lambda a, b: a % divisor),
        (product, lambda a, b: (a * factor + 3) * b),
        (ix.floordiv(product, step), lambda a, b: (a * factor + 3) * b // step),
        (ix.multiply(size, size), lambda a, b: a * a),
    ]
    for value, expected in numbers:
        text = serialise(value)
        for a in range(low, high + 1, step):
            for b in (1, 5):
                assert evaluate(text, {"a/4": a, "a": b}) == expected(a, b)


def test_divisions_of_multiples_are_exact() -> None:
    height = dimension("H", 64, 512, 4)
    half = ix.floordiv(ix.add(height, -1), 2) + 1  # a convolution of stride 2
    assert half == ix.floordiv(height, 2) and ix.multiply(half, 2) == height
    odd = dimension("H", 17, 513, 16)
    assert ix.floordiv(odd, 16) * 16 + 1 == odd
    assert dimension("H", 8, 8, 4) == 8


# -- networks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Level:
    """How a level of a network halves a picture, doubles it again, and joins it with what it had before."""

    down: str
    up: str
    join: str


DOWN = {
    "convolution": lambda x, y: helper.make_node(
        "Conv", [x, "w"], [y], strides=[2, 2], pads=[1] * 4, kernel_shape=[3, 3]
    ),
    "even convolution": lambda x, y: helper.make_node("Conv", [x, "e"], [y], strides=[2, 2], kernel_shape=[2, 2]),
    "maximum": lambda x, y: helper.make_node("MaxPool", [x], [y], strides=[2, 2], kernel_shape=[2, 2]),
    "average": lambda x, y: helper.make_node(
        "AveragePool", [x], [y], strides=[2, 2], kernel_shape=[3, 3], pads=[1] * 4
    ),
}
UP = {
    "nearest": lambda x, y: helper.make_node("Resize", [x, "", "twice"], [y], mode="nearest"),
    "linear": lambda x, y: helper.make_node("Resize", [x, "", "twice"], [y], mode="linear"),
    "transposed": lambda x, y: helper.make_node("ConvTranspose", [x, "e"], [y], strides=[2, 2], kernel_shape=[2, 2]),
}
LEVELS = st.builds(Level, *map(st.sampled_from, (list(DOWN), list(UP), ["Concat", "Add"])))


def network(levels: list[Level]) -> onnx.ModelProto:
    """A U-net of 2 channels whose levels join with what they had at the same size."""
    draw = np.random.default_rng(3)
    constants = {
        "w": draw.standard_normal((2, 2, 3, 3)).astype(np.float32) / 3,
        "e": draw.standard_normal((2, 2, 2, 2)).astype(np.float32),
        "twice": np.array([1, 1, 2, 2], np.float32),
        "mix": draw.standard_normal((2, 4, 1, 1)).astype(np.float32),
    }
    nodes = []
    for number, level in enumerate(levels):
        nodes.append(DOWN[level.down](f"x{number}", f"x{number + 1}"))
    value = f"x{len(levels)}"
    for number, level in reversed(list(enumerate(levels))):
        nodes.append(UP[level.up](value, f"u{number}"))
        if level.join == "Add":
            nodes.append(helper.make_node("Add", [f"u{number}", f"x{number}"], [f"j{number}"]))
        else:
            nodes.append(helper.make_node("Concat", [f"u{number}", f"x{number}"], [f"c{number}"], axis=1))
            nodes.append(helper.make_node("Conv", [f"c{number}", "mix"], [f"j{number}"]))
        value = f"j{number}"
    shape = {"x0": np.zeros((1, 2, 8, 8), np.float32)}
    return make_model(nodes, shape, [value], constants=constants, dims={"x0": ("N", 2, "H", "W")})


def picture(*shape: int) -> dict[str, np.ndarray]:
    return {"x0": np.random.default_rng(shape).standard_normal(shape).astype(np.float32)}


def test_networks_of_levels(device) -> None:
    """Every U-net compiles in steps of two to the depth, runs at all sizes, and says so where no step was declared."""

    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(LEVELS, min_size=1, max_size=3))
    def check(levels: list[Level]) -> None:
        model, step = network(levels), 2 ** len(levels)
        dynamic = {"N": (1, 4), "H": (step, 96, step), "W": (step, 96, step)}
        several = [picture(2, 2, step, 3 * step), picture(1, 2, 40, 72), picture(3, 2, 5 * step, step)]
        plan = compile_for(model, several[0], device.profile, dynamic=dynamic)
        for each, (found,) in zip(several, run_plan(device, plan, model, several), strict=True):
            assert difference(found, run_onnxruntime(model, each)[0]) <= 2e-5
        with pytest.raises(
            InputError, match=rf"'H' is {3 * step - 1}; it was declared {step} to .* in steps of {step}"
        ):
            run_plan(device, plan, model, picture(1, 2, 3 * step - 1, step))
        with pytest.raises(ShapeError) as caught:
            compile_for(model, several[1], device.profile, dynamic={"N": (1, 4), "H": (8, 97), "W": (9, 96)})
        low = -(-9 // step) * step
        assert f'"H": (8, 96, {step}), "W": ({low}, 96, {step})}}' in caught.value.hint
        assert f"--dynamic H=8:96:{step} --dynamic W={low}:96:{step}" in caught.value.hint
        assert '"N"' not in caught.value.hint

    check()


PATCHES = """<ir_version: 8, opset_import: ["" : 17]>
patches (float[N, 3, H, W] x, float[48, 8] w) => (float[N, T, 8] y, float[N, 3, H, W] back)
<int64[1] four = {4}, int64[1] first = {0}, int64[1] three = {3}, int64[1] minus = {-1}, int64[1] flat = {48}> {
    h = Shape <start = 2, end = 3> (x)
    v = Shape <start = 3, end = 4> (x)
    n = Shape <start = 0, end = 1> (x)
    rows = Div(h, four)
    columns = Div(v, four)
    split = Concat <axis = 0> (n, three, rows, four, columns, four)
    parts = Reshape(x, split)
    sorted = Transpose <perm = [0, 2, 4, 1, 3, 5]> (parts)
    wanted = Concat <axis = 0> (n, minus, flat)
    tokens = Reshape(sorted, wanted)
    product = MatMul(tokens, w)
    y = Softmax <axis = 1> (product)
    again = Concat <axis = 0> (n, rows, columns, three, four, four)
    square = Reshape(tokens, again)
    turned = Transpose <perm = [0, 3, 1, 4, 2, 5]> (square)
    whole = Shape(x)
    joined = Reshape(turned, whole)
    back = Add(joined, x)
}"""


def test_splits_into_patches(each_device) -> None:
    """Reshapes by sizes that are computed from H and W, as in vision transformers."""
    model = onnx.parser.parse_model(PATCHES)
    draw = np.random.default_rng(0)

    def inputs(*shape: int) -> dict[str, np.ndarray]:
        return {
            "x": draw.standard_normal(shape).astype(np.float32),
            "w": draw.standard_normal((48, 8)).astype(np.float32),
        }

    several = [inputs(1, 3, 8, 12), inputs(2, 3, 36, 4), inputs(1, 3, 4, 4)]
    dynamic = {"N": (1, 2), "H": (4, 64, 4), "W": (4, 64, 4)}
    plan = compile_for(model, several[0], each_device.profile, dynamic=dynamic)
    for each, found in zip(several, run_plan(each_device, plan, model, several), strict=True):
        for result, expected in zip(found, run_onnxruntime(model, each), strict=True):
            assert difference(result, expected) <= 2e-5
    with pytest.raises(ShapeError, match=r'"H": \(4, 64, 4\), "W": \(4, 64, 4\)'):
        compile_for(model, several[0], dynamic={"H": (1, 64), "W": (2, 66, 2)})


def test_sizes_of_a_multiple_and_one(device) -> None:
    """The grid of 4n + 1 points that aligned corners want: its range does not start at a multiple of the step."""
    draw = np.random.default_rng(1)
    constants = {name: draw.standard_normal((2, 2, 5, 5)).astype(np.float32) / 5 for name in ("w", "v")}
    nodes = [
        helper.make_node("Conv", ["x0", "w"], ["c"], strides=[4, 4]),
        helper.make_node("ConvTranspose", ["c", "v"], ["t"], strides=[4, 4]),
        helper.make_node("Concat", ["t", "x0"], ["y"], axis=0),
    ]
    model = make_model(nodes, picture(1, 2, 9, 9), ["y"], constants=constants, dims={"x0": ("N", 2, "H", "W")})
    several = [picture(1, 2, 5, 33), picture(1, 2, 17, 9)]
    plan = compile_for(model, several[0], device.profile, dynamic={"N": (1, 3), "H": (5, 33, 4), "W": (5, 34, 4)})
    for each, (found,) in zip(several, run_plan(device, plan, model, several), strict=True):
        assert difference(found, run_onnxruntime(model, each)[0]) <= 2e-5
    with pytest.raises(
        InputError, match=r"'W' is 16; it was declared 5 to 33 in steps of 4 \[the nearest are 13 and 17"
    ):
        run_plan(device, plan, model, picture(1, 2, 5, 16))


def test_no_step_is_proposed_where_none_helps() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[H, 3] x, float[7, 3] w) => (float[H, 3] y) { y = Add(x, w) }'
    )
    shapes = {"x": np.zeros((7, 3), np.float32), "w": np.zeros((7, 3), np.float32)}
    with pytest.raises(ShapeError) as caught:
        compile_for(model, shapes, dynamic={"H": (2, 64)})
    assert "step" not in caught.value.hint and "narrower range" in caught.value.hint


# -- every way in ----------------------------------------------------------------------------------------------------


def test_one_session_serves_all_sizes(device) -> None:
    model = network([Level("convolution", "nearest", "Concat")] * 2)
    dynamic = {"H": (8, 90, 4), "W": (8, 64, 8)}
    with shaderloom.InferenceSession(model, device=device, cache=False, dynamic=dynamic) as session:
        for shape in ((1, 2, 8, 8), (1, 2, 88, 16), (1, 2, 12, 64)):
            (found,) = session.run(None, picture(*shape))
            assert difference(found, run_onnxruntime(model, picture(*shape))[0]) <= 2e-5
        assert session.stats.misses == 1
        for shape, message in (
            (
                (1, 2, 10, 8),
                r"dimension 2, 'H', is 10; it was declared dynamic from 8 to 88 in steps of 4 \[the nearest",
            ),
            ((1, 2, 8, 12), r"dimension 3, 'W', is 12; it was declared dynamic from 8 to 64 in steps of 8"),
            ((1, 2, 92, 8), r"'H', is 92; it was declared dynamic from 8 to 88 in steps of 4 \[the largest is 88\]"),
        ):
            with pytest.raises(InputError, match=message):
                session.run(None, picture(*shape))
    with pytest.raises(InputError, match=r"the range \(1, 8, 0\) of the dynamic dimension 'H' is not valid"):
        shaderloom.InferenceSession(model, device=device, dynamic={"H": (1, 8, 0)})


def test_the_command_line(tmp_path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network([Level("maximum", "transposed", "Add")]), path)

    def command(*arguments: object, status: int = 0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == status, result.output
        return result

    stepped, shape = ("--dynamic", "H=2:64:2", "--dynamic", "W=4:64:4"), ("--shape", "x0=1x2x10x8")
    command("run", path, *stepped, *shape, "--no-cache")
    shown = json.loads(command("inspect", path, *stepped, *shape, "--json", "--no-cache").stdout)
    assert shown["symbols"] == {"H": [2, 64, 2], "W": [4, 64, 4]}
    wrong = command("run", path, *stepped, "--shape", "x0=1x2x9x8", status=1)
    assert "'H', is 9; it was declared dynamic from 2 to 64 in steps of 2 [the nearest are 8 and 10]" in wrong.stderr
    assert "is not a range" in command("run", path, "--dynamic", "H=2:64:2:2", *shape, status=1).stderr
    refused = command("run", path, "--dynamic", "H=1:64", *shape, "--no-cache", status=1)
    assert "--dynamic H=2:64:2" in refused.stderr
    bundle = tmp_path / "net.shaderbundle"
    command("compile", path, "-o", bundle, *stepped, *shape, "--sample")
    command("verify", bundle)
    shown = json.loads(command("inspect", bundle, "--json").stdout)
    assert shown["symbols"] == {"H": [2, 64, 2], "W": [4, 64, 4]}
    assert "in steps of 2" in command("run", bundle, "--shape", "x0=1x2x9x8", status=1).stderr
    assert "no plan for these shapes" in command("inspect", bundle, "--shape", "x0=1x2x9x8", status=1).stderr


# -- bundles ---------------------------------------------------------------------------------------------------------


def test_a_bundle_checks_the_step(web_device, tmp_path) -> None:
    model, path = network([Level("average", "linear", "Concat")]), tmp_path / "b"
    shapes = [{"x0": (1, 2, 8, 8)}]
    compile_bundle(model, path, shapes=shapes, dynamic={"H": (4, 65, 2), "W": (3, 65)} | {"W": (2, 64, 2)})
    manifest = json.loads((path / "manifest.json").read_bytes())
    assert manifest["dynamic"]["H"] == {"low": 4, "high": 64, "step": 2}, "no list, so that older readers refuse it"
    with shaderloom.load_bundle(path, device=web_device) as session:
        for shape in ((1, 2, 4, 64), (1, 2, 34, 2)):
            (found,) = session.run(None, picture(*shape))
            assert difference(found, run_onnxruntime(model, picture(*shape))[0]) <= 2e-5
        assert session.stats.misses == 1
        with pytest.raises(InputError, match="'H', is 5; it was declared dynamic from 4 to 64 in steps of 2"):
            session.run(None, picture(1, 2, 5, 2))


def test_a_plan_of_another_range_is_refused(web_device, tmp_path) -> None:
    """Whichever of manifest and plan was changed; and a plan whose range does not end with a size."""
    path = small_bundle(tmp_path / "b", 3, dynamic={"n": (3, 63, 4)})
    for change in (
        {"n": {"low": 3, "high": 63, "step": 1}},
        {"n": {"low": 3, "high": 63, "step": 2}},
        {"n": {"low": 3, "high": 67, "step": 4}},
    ):
        change_manifest(path, dynamic=change)
        with (
            shaderloom.load_bundle(path, device=web_device) as session,
            pytest.raises(BundleError, match="has another range in the manifest"),
        ):
            session.run(None, feeds(3))
    for change in (
        {"n": {"low": 3, "high": 64, "step": 4}},
        {"n": {"low": 3, "high": 63, "step": 0}},
        {"n": {"low": 3}},
        {"n": [3, 63]},
    ):
        change_manifest(path, dynamic=change)
        with pytest.raises(BundleError, match=r"dynamic\.n"):
            shaderloom.load_bundle(path, device=web_device)
    change_manifest(path, dynamic={})
    with pytest.raises(BundleError, match="has the dimension 'n', whose range is not there"):
        shaderloom.load_bundle(path, device=web_device)
    change_manifest(path, dynamic={"n": {"low": 3, "high": 63, "step": 4}})
    for plan in path.glob("plan-*.json"):
        content = json.loads(plan.read_bytes())
        content["symbols"][0]["high"] = 64
        plan.write_text(json.dumps(content))
    seal(path)
    with (
        shaderloom.load_bundle(path, device=web_device) as session,
        pytest.raises(BundleError, match="is no range: it has no size, or does not end with one"),
    ):
        session.run(None, feeds(3))


# -- tuning ----------------------------------------------------------------------------------------------------------


def test_candidates_are_measured_with_the_sizes_of_the_run(device) -> None:
    """Kernels of one problem agree, with elements everywhere: a wrong uniform would leave some unwritten."""
    model = network([Level("convolution", "nearest", "Concat")])
    bound = bind_shapes(load_model(model), {"x0": (1, 2, 12, 20)}, {"H": (4, 64, 4), "W": (8, 64, 4)})
    compilation = Compilation(target_of(device.profile))
    lowered = compile_unit(model_unit(load_model(model), bound), compilation, until=LOWERED)
    builder = KernelBuilder(lowered, compilation, {symbol: bound.sizes[symbol.name] for symbol in bound.symbols})
    task = builder.tasks({})[0]
    built = [builder.with_choice(task, candidate) for candidate in shortlist(task.decision.candidates, 2)]
    benchmark = KernelBenchmark(device, built[0], builder.symbols)
    try:
        results = []
        for each in built:
            candidate = benchmark.candidate(each, checked=True)
            results.append(candidate.results(lambda dispatches: _submit(device, dispatches)))
            assert candidate.difference(results[-1], results[0]) is None
            assert not np.isnan(results[-1][0].view(np.float32)).any()
    finally:
        benchmark.close()


def _submit(device, dispatches) -> None:
    from shaderloom.tuner.timer import Timer

    Timer(device).once(dispatches)


@pytest.mark.parametrize("sizes", [(2, 64), (3, 63, 4)])
def test_a_range_in_which_a_window_does_not_fit_is_refused(sizes) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[1, 1, n] x) => (float[1, 1, m] y) <float[1, 1, 5] k = {1, 1, 1, 1, 1}> { y = Conv(x, k) }"""
    )
    bound = bind_shapes(load_model(model), {"x": (1, 1, 7)}, {"n": sizes})
    with pytest.raises(ShapeError, match=r"window of 5 is larger .* for some sizes"):
        specialise(load_model(model), bound.shapes)


def test_ranges_are_a_mapping() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": np.zeros((1, 3), np.float32)}, ["y"])
    with pytest.raises(InputError, match="mapping from names"):
        shaderloom.InferenceSession(model, dynamic=["n"])
