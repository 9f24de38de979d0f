"""Python environments of tests whose packages the tests' own environment does not have."""

from __future__ import annotations

import os
import site
import subprocess
import venv
from pathlib import Path
from typing import NoReturn

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"
#: Seconds for an installation, or for what runs in an environment
TIMEOUT = 1800


def absent(reason: str) -> NoReturn:
    """Skip the test, or fail if CI is true: there everything is to be installed."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


def installed(name: str, requirements: Path) -> Path:
    """Return the interpreter of ``build/name``, which sees the packages of this environment behind its own.

    Where ``requirements`` cannot be installed the test is skipped, and fails if CI is true.
    """
    folder = BUILD / name
    interpreter, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.is_file() and stamp.read_text() == requirements.read_text():
        return interpreter
    venv.create(folder, clear=True, with_pip=True)
    packages = subprocess.run(
        [interpreter, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (Path(packages) / "behind.pth").write_text("\n".join(site.getsitepackages()))
    command = [interpreter, "-m", "pip", "install", "--quiet", "--requirement", requirements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        absent(f"{requirements.parent.name} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    stamp.write_text(requirements.read_text())
    return interpreter
