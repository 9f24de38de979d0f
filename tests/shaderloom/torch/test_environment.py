"""The tests of this folder in an environment with PyTorch, which the tests' own does not have.

Covers: shaderloom/torch.
"""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

from ...support.environments import TIMEOUT, installed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="this environment has PyTorch: its tests run here"
)


@pytest.fixture(scope="module")
def python() -> Path:
    return installed("torch", HERE / "requirements.txt")


@pytest.mark.parametrize(
    "tier", [pytest.param("not soak", marks=pytest.mark.slow), pytest.param("soak", marks=pytest.mark.soak)]
)
def test_the_tests_of_pytorch_pass(python, device, tier):
    """Takes the fixture ``device`` so that the test is skipped where none of them could run."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", tier, HERE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.search(r"\d+ passed", done.stdout), done.stdout[-2000:]
