"""The note on a software adapter: after the result, once, and not beside an error.

Covers: shaderloom/cli/__init__.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.slow

NOTE = "warning: the only adapter is"


def printed(path: Path, *words: str) -> tuple[int, list[str]]:
    """Return the status of ``shaderloom run`` and the lines of both streams in their order."""
    environment = {name: value for name, value in os.environ.items() if name != "SHADERLOOM_ADAPTER"}
    command = [sys.executable, "-m", "shaderloom", "run", str(path), "--repeat", "1", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    node = helper.make_node("Relu", ["x"], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, "n"]) for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:])), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.device
def test_the_note_follows_the_result(model: Path) -> None:
    status, lines = printed(model, "--shape", "x=2x3")
    assert status == 0
    assert lines[-1].startswith(NOTE) and "--providers cpu is faster" in lines[-1]
    assert sum(NOTE in line for line in lines) == 1


@pytest.mark.device
def test_an_error_stands_alone(model: Path) -> None:
    status, lines = printed(model, "--shape", "x=3x3")
    assert status == 1
    assert lines[-1].startswith("error: ") and not any(NOTE in line for line in lines)


def test_a_provider_of_onnxruntime_is_named_as_an_option(model: Path) -> None:
    _, lines = printed(model, "--shape", "x=2x3", "--providers", "CPUExecutionProvider")
    assert lines[0].startswith("warning: --providers CPUExecutionProvider runs on the cpu; ")
