"""The tests of this folder in an environment with PyTorch, which the tests' own does not have.

Covers: shaderloom/torch.
"""

import importlib.util
import os
import re
import site
import subprocess
import venv
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
REQUIREMENTS = HERE / "requirements.txt"
#: Seconds for an installation, or for the tests
TIMEOUT = 1800

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="this environment has PyTorch: its tests run here"
)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The interpreter of build/torch, which sees the packages of this environment behind its own.

    Where the packages cannot be installed the test is skipped, and fails if CI is true.
    """
    folder = ROOT / "build" / "torch"
    interpreter = folder / "bin" / "python"
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text() == REQUIREMENTS.read_text():
        return interpreter
    venv.create(folder, clear=True, with_pip=True)
    packages = subprocess.run(
        [interpreter, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (Path(packages) / "behind.pth").write_text("\n".join(site.getsitepackages()))
    command = [interpreter, "-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        reason = f"PyTorch cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    stamp.write_text(REQUIREMENTS.read_text())
    return interpreter


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
