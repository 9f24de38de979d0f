"""Damaged models through loader and compiler: a plan or an own error, each in little time and memory.

Covers: compiler/frontend, shaderloom/model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from shaderloom.runtime.plan.errors import InternalError

from ..support.effort import SOAK
from ..support.patience import PATIENCE
from .damage import damaged
from .model_seeds import seeds

#: Models and seconds: of the slow tier, and of a soak, which draws from another seed
COUNT, SECONDS = (10_256, 300) if SOAK else (2_000, 20)


def test_damage_repeats_and_differs_from_its_seed():
    files = seeds()
    first, second = (list(islice(damaged(files, 3), 400)) for _ in range(2))
    assert first == second
    assert all(content != files[name] for name, content in first)
    assert {name for name, _ in first} == files.keys()
    assert any(len(content) < len(files[name]) for name, content in first)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the worker bounds memory by setrlimit")
@pytest.mark.parametrize("error", [ValueError("x"), RecursionError(), MemoryError(), InternalError("x")])
def test_any_other_error_is_a_fault(monkeypatch, error):
    from . import model_worker

    def fail(_: Path) -> None:
        raise error

    monkeypatch.setattr(model_worker, "compile_model", fail)
    fault = model_worker.fault_of(Path("model.onnx"))
    assert fault is not None
    assert fault["error"].startswith(type(error).__name__)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is bounded by setrlimit")
def test_damaged_models_end_in_own_errors():
    """At most 5 s and 2 GiB each; a fault prints the bytes."""
    command = [sys.executable, "-m", "tests.fuzz.model_worker", "1" if SOAK else "0", str(COUNT), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE + SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    *faults, last = map(json.loads, done.stdout.splitlines())
    assert not faults, faults[:5]
    assert last["tried"] >= 100
