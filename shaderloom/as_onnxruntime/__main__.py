"""``python -m shaderloom.as_onnxruntime PROGRAM.py ARGUMENTS``: run a program that was written for onnxruntime."""

from __future__ import annotations

import subprocess
import sys

from ..interrupts import leave_on_interrupt

USAGE = "usage: python -m shaderloom.as_onnxruntime PROGRAM.py ARGUMENT...\n       ... or -m MODULE ARGUMENT..."

if __name__ == "__main__":
    leave_on_interrupt()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    if sys.flags.ignore_environment:
        print("shaderloom: python -E and -I ignore PYTHONPATH, by which a program finds this package", file=sys.stderr)
        sys.exit(2)
    from .launch import start

    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as for spawn
    start([sys.executable, *flags, *sys.argv[1:]])
