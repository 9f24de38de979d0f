"""Install a program in an environment of its own, and run its main job on onnxruntime and on this package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .comparing import TOLERANCE, difference

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FOLDER = ROOT / "build" / "programs"
#: Seconds for one program to install, and for its job to run on one of the two
PATIENCE = 900


class NotInstalled(Exception):
    """A package of a program cannot be installed: there is no network, or no such version for this Python."""


@dataclass(frozen=True)
class Program:
    """A program with its packages, of which nothing else is installed: what they import is pinned with them."""

    name: str
    task: str
    packages: tuple[str, ...]
    light: bool = False
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Result:
    """``fault`` is "" where a user sees the same; times are seconds of the first and of the second run of the job."""

    program: str
    fault: str
    theirs: tuple[float, float] = (0.0, 0.0)
    ours: tuple[float, float] = (0.0, 0.0)
    #: nodes that the device left to the cpu, over all sessions
    on_cpu: int = 0
    device: str = ""
    cores: int = 0
    date: str = ""
    #: of the machine while the program ran; None where it was not recorded
    load: float | None = None


def programs() -> list[Program]:
    """Return the programs of ``programs.toml``, in its order."""
    table = tomllib.loads((HERE / "programs.toml").read_text(encoding="utf-8"))
    return [Program(name, **{**row, "packages": tuple(row.get("packages", ()))}) for name, row in table.items()]


class Environment:
    """A virtual environment with the packages of a program before those of this interpreter; removed with ``with``.

    Raises :class:`NotInstalled`.
    """

    def __init__(self, program: Program) -> None:
        self._folder = FOLDER / program.name
        shutil.rmtree(self._folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self._folder], check=True, timeout=PATIENCE)
        paths = sysconfig.get_paths(vars={"base": str(self._folder), "platbase": str(self._folder)})
        self.python = Path(paths["scripts"]) / "python"
        Path(paths["purelib"], "base.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        install = [*"-m pip --disable-pip-version-check --quiet --python".split(), str(self.python)]
        result = subprocess.run(
            [sys.executable, *install, "install", "--no-deps", "--only-binary", ":all:", *program.packages],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        if result.returncode:
            self.remove()
            raise NotInstalled(result.stderr.strip().splitlines()[-1])

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def run(program: Program) -> Result:
    """Install a program, run its job on both, compare, and remove what was installed.  Raises :class:`NotInstalled`."""
    with Environment(program) as environment:
        theirs, errors = _run(environment, program.name, [])
        if theirs is None:
            return Result(program.name, f"onnxruntime fails: {errors}")
        ours, errors = _run(environment, program.name, ["-m", "shaderloom.as_onnxruntime"])
    times = (theirs["first"], theirs["again"])
    if ours is None:
        return Result(program.name, errors.strip().splitlines()[-1], times)
    fault = difference(theirs["result"], ours["result"], program.tolerance)
    if fault is None and " get wgpu (" not in errors:
        fault = "no session ran on the device"
    on_cpu = sum(int(count) for count in re.findall(r"provider 'wgpu' cannot run (\d+) node", errors))
    return Result(program.name, fault or "", times, (ours["first"], ours["again"]), on_cpu)


def _run(environment: Environment, name: str, start: list[str]) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON of the job, None if it failed, and what it wrote on standard error."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as folder:  # what a program keeps between runs is not for the other library
        result = subprocess.run(
            [environment.python, *start, HERE / "job.py", name],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={"XDG_RUNTIME_DIR": tempfile.gettempdir(), **os.environ, "PYTHONPATH": path},
            cwd=folder,
        )
    if result.returncode:
        return None, result.stderr or f"status {result.returncode}"
    return json.loads(result.stdout.splitlines()[-1]), result.stderr
