"""``inspect --diff``: nothing for a model and itself; after a change exactly what it changed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from shaderloom.cli import app
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.inspect.pass_trace import trace_passes
from shaderloom.model.model import Model
from shaderloom.plans.describe import describe_plan
from shaderloom.plans.diff import diff_plans
from shaderloom.runtime.plan.device_profile import WEB

from ..check.test_check import build
from ..inspect.test_pass_trace import block

PRODUCTS = """
products (float[64,32] x) => (float[64,48] y, float[64,7] z)
<float[32,48] a, float[48,48] b, float[48,7] c> {
    p = MatMul (x, a)
    r = Relu (p)
    q = MatMul (r, b)
    y = Relu (q)
    z = MatMul (y, c)
}"""


def describe(path, **options):
    plan = trace_passes(Model(path, cache=False, options=options), {"x": (64, 32)}, WEB).plan
    return describe_plan(plan, text=True)


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "products.onnx"
    target.write_bytes(build(PRODUCTS).SerializeToString())
    return target


def test_a_model_and_itself(path):
    assert diff_plans(describe(path), describe(path)).is_empty


def test_one_tile_configuration(path, monkeypatch):
    before = describe(path)
    ranked = gemm_tiles.ranked

    def other(problem, *rest, **more):
        tiles = ranked(problem, *rest, **more)
        return [gemm_tiles.RegisterTile(2, 1, 4, 2), *tiles] if (problem.n, problem.k) == (48, 48) else tiles

    monkeypatch.setattr(gemm_tiles, "ranked", other)
    difference = diff_plans(before, describe(path))
    assert not difference.added and not difference.removed
    (changed,) = difference.changed
    assert changed.is_kernel_changed
    assert changed.origins == ("MatMul (main node 2)", "Relu (main node 3)")
    assert "config" in changed.fields
    assert any(line.startswith("+") and "workgroup_size" in line for line in changed.text)


def test_fusion_off_adds_calls(path):
    difference = diff_plans(describe(path), describe(path, disabled_passes=["fuse"]))
    added = {call["origins"][0] for _, call in difference.added}
    removed = [tuple(call["origins"]) for _, call in difference.removed]
    assert {"MatMul (main node 0)", "Relu (main node 1)", "Relu (main node 3)"} <= added
    assert ("MatMul (main node 0)", "Relu (main node 1)") in removed
    backwards = diff_plans(describe(path, disabled_passes=["fuse"]), describe(path))
    assert [call for _, call in backwards.added] == [call for _, call in difference.removed]


def test_calls_of_the_same_nodes_are_told_apart():
    call = {
        "kernel": "k",
        "label": "",
        "grid": [1, 1, 1],
        "iterations": 1,
        "origins": ["A"],
        "flops": 0,
        "bytes": 0,
        "ranges": [],
    }
    kernel = dict.fromkeys(("template", "config", "workgroup", "workgroup_bytes", "bindings", "features"), "")
    kernel |= {"id": "k", "key": "k", "wgsl": ""}
    one = {"call_list": [call, call], "kernels": [kernel]}
    two = {"call_list": [call, call, call], "kernels": [kernel]}
    difference = diff_plans(one, two)
    assert [position for position, _ in difference.added] == [2]
    assert difference.changed == []


@pytest.fixture
def inspect(tmp_path, cache_folder):
    target = tmp_path / "block.onnx"
    target.write_bytes(block().SerializeToString())

    def run(*arguments: object, status: int = 0):
        result = CliRunner().invoke(app, ["inspect", str(target), "--web", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    run.path = target
    return run


def test_command(inspect, tmp_path):
    assert inspect("--diff", inspect.path).output == ""
    empty = json.loads(inspect("--diff", inspect.path, "--json").stdout)
    assert empty == {"added": [], "removed": [], "changed": [], "facts": {}}
    text = inspect("--diff", inspect.path, "--diff-option", 'disabled_passes=["layout"]').output
    assert "~ call 0" in text and "@@" in text
    (tmp_path / "old.json").write_text(inspect("--json").stdout)
    assert inspect("--diff", tmp_path / "old.json").output == ""
    (tmp_path / "wrong.json").write_text("[]")
    assert "not the description of a plan" in inspect("--diff", tmp_path / "wrong.json", status=1).stderr
    assert "--diff-option" in inspect("--diff-option", "verify=true", status=1).stderr


def test_bundles_are_inspected(inspect, tmp_path):
    bundle = tmp_path / "block.shaderbundle"
    result = CliRunner().invoke(app, ["compile", str(inspect.path), "-o", str(bundle)])
    assert result.exit_code == 0, result.output
    facts = json.loads(CliRunner().invoke(app, ["inspect", str(bundle), "--json"]).stdout)
    assert facts["subject"]["kind"] == "bundle"
    assert facts["call_records"][0]["anchor"] == ["Conv (main node 0)", "BatchNormalization (main node 1)"]
    assert "fn main" in CliRunner().invoke(app, ["inspect", str(bundle), "--show", "wgsl"]).output
    refused = CliRunner().invoke(app, ["inspect", str(bundle), "--show", "graph"])
    assert refused.exit_code == 1 and "no graph" in refused.stderr
    wrong = CliRunner().invoke(app, ["inspect", str(bundle), "--shape", "x=1x4x9x9"])
    assert wrong.exit_code == 1 and "it has x=1x4x8x8" in wrong.stderr
