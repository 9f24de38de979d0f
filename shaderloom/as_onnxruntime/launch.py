"""Start a command whose Python processes find this package under onnxruntime's name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..interrupts import raised_interrupts
from ..runtime.plan.errors import InputError
from . import STAND_IN


def environment() -> dict[str, str]:
    """Return the variables of this process, with the stand-in first on the path of Python."""
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", str(STAND_IN))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(STAND_IN), *path])}


def start(command: Sequence[str]) -> NoReturn:
    """Become the command; where a process cannot, run it and exit with its status.

    Raises :class:`InputError` if there is no such command.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if os.name == "posix":
            os.execvpe(command[0], list(command), environment())
        with raised_interrupts():
            sys.exit(subprocess.run(command, env=environment(), check=False).returncode)
    except OSError as error:
        raise InputError(
            f"cannot start '{command[0]}': {error.strerror or error}", hint="name a program that is on the path"
        ) from None
