"""This package under onnxruntime's name, for programs that were written for onnxruntime and stay as they are.

    python -m shaderloom.as_onnxruntime program.py ARGUMENTS
    python -m shaderloom.as_onnxruntime -m package ARGUMENTS
    shaderloom as-onnxruntime -- COMMAND ARGUMENTS

and in a program, before anything imports onnxruntime, ``shaderloom.install_as_onnxruntime()``.

The folder ``stand_in`` holds a package ``onnxruntime``.  First on the path it is what ``import onnxruntime`` finds, in
this process and in those that it starts.  Its names are in :mod:`.names`, its sessions in :mod:`.session`, and
:mod:`.policy` decides which providers they get.  The real onnxruntime still serves the provider cpu, if it is installed
(:mod:`..api.real_onnxruntime`).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from ..api import real_onnxruntime
from ..notices import notify

#: The folder of the package ``onnxruntime``, for the path
STAND_IN = Path(__file__).resolve().parent / "stand_in"


def install_as_onnxruntime() -> None:
    """Make ``import onnxruntime`` give this package in this process, and in those that ``multiprocessing`` starts.

    Call it before anything imports onnxruntime: a module that has already done so keeps what it has, which a warning
    says.  Calling it again has no effect.
    """
    if str(STAND_IN) in sys.path and _is_stand_in():
        return
    if str(STAND_IN) not in sys.path:
        sys.path.insert(0, str(STAND_IN))
    if _is_stand_in():
        return
    if real_onnxruntime.move_aside():
        notify("onnxruntime was imported before: modules that hold it keep it; install first", once="moved aside")
    importlib.invalidate_caches()
    importlib.import_module(real_onnxruntime.NAME)


def _is_stand_in() -> bool:
    file = getattr(sys.modules.get(real_onnxruntime.NAME), "__file__", None)
    return file is not None and STAND_IN in Path(file).resolve().parents
