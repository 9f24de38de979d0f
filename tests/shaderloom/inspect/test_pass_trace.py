"""``inspect``: the listings of a compilation, one file or one text each, the same in every run."""

from __future__ import annotations

import json

import onnx.parser
import pytest
from typer.testing import CliRunner

from shaderloom.cli import app
from shaderloom.compiler.passes.pipeline import LOWERED, PIPELINE
from shaderloom.inspect.pass_trace import dump, trace_passes
from shaderloom.model.model import Model
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.errors import InputError

MODEL = """<ir_version: 9, opset_import: ["" : 17]>
block (float[1,4,8,8] x) => (float[1,8,8,8] y)
<float[8,4,3,3] w, float[8] scale, float[8] shift, float[8] mean, float[8] variance> {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    n = BatchNormalization (c, scale, shift, mean, variance)
    r = Relu (n)
    i = Identity (r)
    y = Softmax <axis = 1> (i)
}"""


def block() -> onnx.ModelProto:
    """Convolution, batch normalisation, Relu and Softmax, with weights."""
    import numpy as np
    from onnx import numpy_helper

    model = onnx.parser.parse_model(MODEL)
    generator = np.random.default_rng(5)
    del model.graph.initializer[:]
    shapes = {"w": (8, 4, 3, 3), "scale": (8,), "shift": (8,), "mean": (8,), "variance": (8,)}
    for name, shape in shapes.items():
        array = generator.uniform(0.5, 1.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.onnx"
    target.write_bytes(block().SerializeToString())
    return target


@pytest.fixture
def inspect(path, cache_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object, status: int = 0):
        result = CliRunner().invoke(app, ["inspect", str(path), "--web", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    return run


def test_the_listings_differ_as_they_should(inspect):
    graph = inspect("--show", "graph").output
    canonical = inspect("--show", "canonical").output
    layout = inspect("--show", "layout").output
    assert "BatchNormalization" in graph and "Softmax" in graph
    assert "BatchNormalization" not in canonical and "Conv" in canonical
    assert "NHWC" in layout and "NHWC" not in canonical


def test_after_a_pass(inspect):
    expanded = inspect("--after", "expand").output
    assert "Softmax" not in expanded and "Exp" in expanded
    scaled = inspect("--after", "scales").output
    assert scaled != expanded
    error = inspect("--after", "nothing", status=1).stderr
    assert "there is no pass 'nothing'" in error and "scales" in error
    disabled = inspect("--after", "scales", "--option", 'disabled_passes=["scales"]', status=1).stderr
    assert "the pass 'scales' did not run" in disabled


def test_what_the_passes_did(inspect):
    rows = json.loads(inspect("--show", "passes", "--json", "--option", 'disabled_passes=["views"]').stdout)
    assert [row["name"] for row in rows] == [name for name in PIPELINE.names if name != "views"]
    assert tuple(row["name"] for row in rows if row["optional"]) == tuple(
        name for name in PIPELINE.optional if name != "views"
    )
    assert all(row["milliseconds"] >= 0 and row["nodes"] > 0 for row in rows)
    lines = inspect("--show", "passes").output.splitlines()
    assert len(lines) == 1 + len(PIPELINE.names)
    assert sum("may be disabled" in line for line in lines) == len(PIPELINE.optional)


@pytest.mark.parametrize("name", PIPELINE.names)
def test_after_every_pass(inspect, name):
    assert json.loads(inspect("--after", name, "--json").stdout)["after"] == name


@pytest.mark.parametrize("listing", ["graph", "canonical", "layout", "fused", "plan", "wgsl"])
def test_json_of_two_runs_is_the_same(inspect, listing):
    first = inspect("--show", listing, "--json", "--no-cache").stdout
    assert inspect("--show", listing, "--json", "--no-cache").stdout == first
    json.loads(first)
    inspect("--show", listing, "--json")  # fills the cache
    assert inspect("--show", listing, "--json").stdout == first


def test_dump_has_a_file_for_every_pass(inspect, tmp_path):
    inspect("--dump", tmp_path / "one")
    inspect("--dump", tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    steps = [name.partition("-")[2].removesuffix(".txt") for name in names if name.endswith(".txt")]
    assert tuple(steps) == PIPELINE.names
    assert any(name.endswith(".wgsl") for name in names)
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert "is not empty" in inspect("--dump", tmp_path / "one", status=1).stderr


def test_shaders_have_comments_for_people(inspect):
    text = inspect("--show", "wgsl", "--kernel", 0).output
    assert "// computes Conv (main node 0)" in text
    shader = json.loads(inspect("--show", "wgsl", "--kernel", 0, "--json").stdout)[0]["wgsl"]
    assert "Conv" not in shader


def test_options_reach_the_compiler(inspect):
    calls = json.loads(inspect("--json").stdout)["calls"]
    assert json.loads(inspect("--json", "--option", 'disabled_passes=["fuse"]').stdout)["calls"] > calls
    assert "unknown compiler option" in inspect("--option", "colour=red", status=1).stderr


def test_plans_tell_what_their_calls_bind(path):
    model = Model(path, cache=False)
    plan = trace_passes(model, {"x": (1, 4, 8, 8)}, WEB).plan
    facts, notes = plan.facts, plan.notes
    assert len(notes.calls) == len(plan.calls)
    for call, bound in zip(plan.calls, facts.calls, strict=True):
        assert len(bound.operands) == sum(item.buffer != "symbols" for item in call.ranges)
    first = notes.calls[0]
    assert (first.family, first.prologue) == ("conv", ())
    assert any("Conv" in origin for origin in first.anchor)
    assert any("Relu" in origin for origin in first.epilogue)
    source, weight, *_, result = (facts.tensors[number] for number in facts.calls[0].operands)
    assert (source.name, source.kind, source.layout.text) == ("x", "input", "NCHW")
    assert (weight.kind, weight.shape) == ("weight", (8, 4, 3, 3))
    assert (result.name, result.kind, result.layout.text) == ("r", "activation", "NHWC")
    assert facts.result(-1).kind == "output"


def test_rewrites_are_traced(path):
    trace = trace_passes(Model(path, cache=False), {"x": (1, 4, 8, 8)}, WEB, until=LOWERED)
    applied = [row for row in trace.rewrites if row["refused"] is None]
    assert any(any("BatchNormalization" in origin for origin in row["origins"]) for row in applied)


def test_dump_refuses_what_it_cannot_write(path, tmp_path):
    trace = trace_passes(Model(path, cache=False), {"x": (1, 4, 8, 8)}, WEB, until=LOWERED)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        dump(trace, tmp_path / "file" / "inside")


def test_overwritten_operands_are_recorded(path):
    plan = trace_passes(Model(path, cache=False, options={"disabled_passes": ["fuse"]}), {"x": (1, 4, 8, 8)}, WEB).plan
    tensors, writers = plan.facts.tensors, plan.facts.writers()
    overwriting = [call for call in plan.facts.calls if call.in_place is not None]
    assert len(overwriting) == plan.notes.memory.in_place > 0
    for call in overwriting:
        before, after = call.in_place, call.operands[-1]
        assert before in writers and before not in call.operands
        assert tensors[before].dtype == tensors[after].dtype
