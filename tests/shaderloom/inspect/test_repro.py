"""``repro``: the script runs on its own, agrees with the run that it was made from, and notices a change."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

from shaderloom.cli import app
from shaderloom.inspect.repro import make_script
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.source_files import SourceFiles
from shaderloom.runtime.plan.caps import MemoryAccount

from ...compiler.codegen.test_sharing import array, compiled
from ...compiler.codegen.test_sharing import model as chain
from ...support.patience import PATIENCE
from ..check.test_check import NETWORK, build
from ..check.test_run_check import BRANCH, LOOP, MODELS


@pytest.fixture
def repro(device, tmp_path, cache_folder, monkeypatch):
    """Writes the script of a model's kernel; gives its path."""
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)

    def run(model, *arguments: object, status: int = 0):
        path, target = tmp_path / "model.onnx", tmp_path / "kernel.py"
        path.write_bytes(model.SerializeToString())
        result = CliRunner().invoke(app, ["repro", str(path), "-o", str(target), *map(str, arguments)])
        assert result.exit_code == status, result.output
        return target if status == 0 else result.stderr

    return run


def execute(script, tmp_path) -> subprocess.CompletedProcess:
    """Run the script where this project cannot be imported."""
    blocked = tmp_path / "blocked" / "shaderloom"
    blocked.mkdir(parents=True, exist_ok=True)
    (blocked / "__init__.py").write_text("raise ImportError('the script must not need it')")
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(blocked.parent)},
    )


@pytest.mark.slow
@pytest.mark.parametrize("call", range(5))
def test_every_kernel_of_a_network(repro, tmp_path, call):
    script = repro(build(NETWORK), "--call", call)
    result = execute(script, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    error = float(re.search(r"largest error (\S+)", result.stdout)[1])
    assert error <= 1e-6, "the same kernel on the same device"
    assert "GFLOP/s" in result.stdout


def test_a_changed_shader_is_noticed(repro, tmp_path):
    script = repro(build(NETWORK), "--kernel", 0)
    text = script.read_text()
    assert "// computes Conv (main node 0)" in text and "# x: float32 1x4x8x8, NCHW, input" in text
    assert "var step = 0" in text
    script.write_text(text.replace("var step = 0", "var step = 1"))
    result = execute(script, tmp_path)
    assert result.returncode == 1
    assert float(re.search(r"largest error (\S+)", result.stdout)[1]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["1:64", "2:65:3"])
def test_dynamic_dimensions_and_integers(repro, tmp_path, sizes):
    text = "d (float[N,8] x) => (int64[N] y) { e = Exp (x) y = ArgMax <axis = 1, keepdims = 0> (e) }"
    script = repro(build(text), "--dynamic", f"N={sizes}", "--shape", "x=5x8", "--kernel", 0)
    assert "dynamic dimensions" in script.read_text()
    result = execute(script, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 2])
def test_a_call_of_a_shared_kernel_has_its_problem(device, tmp_path, number):
    proto, _ = chain()
    plan, x = compiled(proto, array()), array()
    pool = WeightPool(device, SourceFiles(None, proto.SerializeToString(), {}), MemoryAccount(1 << 30))
    try:
        text = make_script(device, plan, pool, {"x": x}, number, title="a chain")
    finally:
        pool.close()
    (problem,) = (item.buffer for item in plan.calls[number].ranges if item.buffer.startswith("problem:"))
    numbers = plan.problems[int(problem.partition(":")[2])]
    assert f"// {', '.join(f'n{place} = {value}' for place, value in enumerate(numbers))}" in text
    script = tmp_path / "kernel.py"
    script.write_text(text)
    result = execute(script, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert float(re.search(r"largest error (\S+)", result.stdout)[1]) <= 1e-6


def test_names_of_the_model_stay_in_comments(repro, tmp_path):
    model = build(NETWORK)
    evil = '"""\nraise SystemExit(7)\n\\'
    model.graph.node[0].name = evil
    for port in model.graph.input:
        port.name = evil
    model.graph.node[0].input[0] = evil
    script = repro(model, "--kernel", 0)
    assert not any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(script.read_text())))
    assert execute(script, tmp_path).returncode == 0


def test_refusals(repro):
    assert "which kernel?" in repro(build(NETWORK), status=1)
    assert "has no call 99" in repro(build(NETWORK), "--call", 99, status=1)
    assert "no call of a run has the kernel 'zz'" in repro(build(NETWORK), "--kernel", "zz", status=1)
    large = build("l (float[1,1] x) => (float[1,17000000] y) { y = Mul (x, w) }")
    large.graph.initializer.append(numpy_helper.from_array(np.ones((1, 17000000), np.float32), "w"))
    assert "more than the 67,108,864 that a script may hold" in repro(large, "--call", 0, status=1)


# -- models in stages --------------------------------------------------------------------------------------------------


@pytest.fixture
def limit(tmp_path):
    """The input of the loop that says when it ends."""
    np.save(tmp_path / "lim.npy", np.array(4, np.float32))
    return "--input", f"lim={tmp_path / 'lim.npy'}"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--call", "2.0"), ("--call", "2.1")])
def test_a_kernel_of_a_later_stage(repro, tmp_path, arguments):
    script = repro(build(MODELS["selection"][0]), *arguments)
    assert "stage 2" in script.read_text().partition("\n")[0]
    result = execute(script, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert float((re.search(r"largest error (\S+)", result.stdout) or ["", "0"])[1]) <= 1e-6


def test_a_kernel_by_its_node(repro, tmp_path):
    text = repro(build(MODELS["selection"][0]), "--node", "MatMul (main node 6)").read_text()
    assert "MatMul (main node 6)" in text
    model = build(NETWORK)
    model.graph.node[2].name = "pooling"
    script = repro(model, "--node", "pooling")
    assert "MaxPool 'pooling' (main node 2)" in script.read_text()
    assert execute(script, tmp_path).returncode == 0


@pytest.mark.slow
def test_a_kernel_in_an_iteration_of_a_loop(repro, tmp_path, limit):
    node = ("--node", "MatMul (main/Loop_1.body node 0)")
    scripts = [repro(build(LOOP), *limit, *node, "--iteration", number).read_text() for number in (0, 2)]
    assert "iteration 0" in scripts[0] and "iteration 2" in scripts[1]
    assert scripts[0] != scripts[1].replace("iteration 2", "iteration 0"), "it has the operands of its iteration"
    result = execute(repro(build(LOOP), *limit, *node, "--iteration", 2), tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_why_there_is_nothing_to_cut(repro, limit):
    selection, loop = build(MODELS["selection"][0]), build(LOOP)
    assert "name the stage as in --call 2.5" in repro(selection, "--call", 0, status=1)
    assert "name the stage as in --call 2.5" in repro(selection, "--kernel", 0, status=1)
    assert "has no stage 9" in repro(selection, "--call", "9.0", status=1)
    assert "has no call 99" in repro(selection, "--call", "1.99", status=1)
    assert "no stage has the kernel 'zz'" in repro(selection, "--kernel", "zz", status=1)
    assert "is not a call" in repro(selection, "--call", "a.b", status=1)
    assert "without stages" in repro(build(NETWORK), "--call", "1.0", status=1)
    assert "runs in iteration 77 of a loop" in repro(loop, *limit, "--call", "2.0", "--iteration", 77, status=1)
    assert "'Loop_1' has no kernel of its own" in repro(loop, *limit, "--node", "Loop_1", status=1)
    assert "'Exp_2' cannot be cut out as a kernel: it runs on the cpu" in repro(
        build(MODELS["cpu"][0]), "--node", "Exp_2", status=1
    )
    assert "no node that has run on these inputs has the name 'other'" in repro(
        build(BRANCH), "--node", "other", status=1
    )
