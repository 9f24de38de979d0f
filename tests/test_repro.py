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

from .test_check import NETWORK, build


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
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(blocked.parent)},
    )


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


@pytest.mark.parametrize("sizes", ["1:64", "2:65:3"])
def test_dynamic_dimensions_and_integers(repro, tmp_path, sizes):
    text = "d (float[N,8] x) => (int64[N] y) { e = Exp (x) y = ArgMax <axis = 1, keepdims = 0> (e) }"
    script = repro(build(text), "--dynamic", f"N={sizes}", "--shape", "x=5x8", "--kernel", 0)
    assert "dynamic dimensions" in script.read_text()
    result = execute(script, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


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
