"""The command line in this process, and a small model."""

from __future__ import annotations

import pytest

from ...support.command_line import run_command
from ...support.plans import replace_compiler, two_call_model


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.onnx"
    target.write_bytes(two_call_model().SerializeToString())
    return target


@pytest.fixture
def compiling(device, cache_folder, monkeypatch):
    """Runs the command in this process; gives its result."""
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    monkeypatch.setenv("COLUMNS", "200")
    return run_command


@pytest.fixture
def shaderloom(compiling, monkeypatch):
    """Runs the command as ``compiling`` does, with plans written by hand."""
    replace_compiler(monkeypatch)
    return compiling
