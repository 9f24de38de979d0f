"""Ctrl-C at any moment of the command line program is a line and the status 130, or comes after all is done.

Covers: shaderloom/interrupts, shaderloom/__main__.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx.parser
import pytest

from shaderloom.interrupts import leave, noted_interrupts, raised_interrupts

from ..support.effort import quick_first
from ..support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { y = Exp(x) }'

#: Runs the module in argv[1] as the main one, and waits at a place for a byte that says that the signal was sent: as
#: the import of a module begins (argv[2]), or as the process ends, before or after all that the program does then
_HELD = """
import atexit, os, runpy, sys

def hold():
    os.write(1, b"held\\n")
    os.read(0, 1)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == place:
            sys.meta_path.remove(self)
            hold()
        elif name == "shaderloom.cli" and place == "end":
            atexit.register(hold)

module, place, *arguments = sys.argv[1:]
if place == "last":
    atexit.register(hold)
sys.meta_path.insert(0, Finder())
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return str(path)


def _started(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
    )


def _ended(process: subprocess.Popen[bytes], given: bytes) -> tuple[int, str, str]:
    """Return the status of a process and what it wrote."""
    out, err = process.communicate(given, timeout=PATIENCE)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("module", "place"),
    quick_first(
        [
            ("shaderloom", "numpy"),
            ("shaderloom", "shaderloom.cli"),
            ("shaderloom", "typer"),
            ("shaderloom", "onnx"),
            ("shaderloom", "wgpu"),
            ("shaderloom", "end"),
            ("shaderloom.as_onnxruntime", "shaderloom.as_onnxruntime.launch"),
        ]
    ),
)
def test_an_interrupt_is_a_line_and_a_status(device, monkeypatch, interrupts, model, module, place):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    process = _started("-c", _HELD, module, place, *(["run", model] if module == "shaderloom" else ["program.py"]))
    for line in process.stdout:
        if line == b"held\n":
            break
    process.send_signal(signal.SIGINT)
    status, _, err = _ended(process, b".")
    assert (status, err) == (130, "error: interrupted\n")


def test_little_is_imported_before_interrupts_are_answered():
    """What comes before is Python's own, which answers by a traceback."""
    script = "import sys; before = set(sys.modules); import shaderloom.interrupts; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "shaderloom.interrupts" in done.stdout.split()
    assert not {"typing", "re", "inspect", "pathlib", "shaderloom.runtime"} & set(done.stdout.split())


def test_an_interrupt_in_a_finaliser_is_raised_behind_it(interrupts):
    class Finalised:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def run() -> None:
        Finalised()
        time.sleep(PATIENCE)

    signal.signal(signal.SIGINT, leave)
    begun = time.monotonic()
    with raised_interrupts(), pytest.raises(KeyboardInterrupt):
        run()
    assert time.monotonic() - begun < PATIENCE  # it ends what waits
    assert signal.getsignal(signal.SIGINT) is leave


def test_a_first_interrupt_is_noted_and_a_second_one_raised(interrupts):
    with noted_interrupts() as is_interrupted:
        assert not is_interrupted()
        signal.raise_signal(signal.SIGINT)
        assert is_interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with noted_interrupts() as is_interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not is_interrupted()


def test_an_interrupt_after_all_is_done_changes_nothing(interrupts):
    process = _started("-c", _HELD, "shaderloom", "last", "--version")
    version, held = process.stdout.readline(), process.stdout.readline()
    assert version.startswith(b"shaderloom ") and held == b"held\n"
    process.send_signal(signal.SIGINT)
    assert _ended(process, b".") == (0, "", "")


def test_a_signal_that_was_ignored_stays_so(interrupts):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what runs in the background
    process = _started("-c", _HELD, "shaderloom", "typer", "--version")
    assert process.stdout.readline() == b"held\n"
    process.send_signal(signal.SIGINT)
    status, out, err = _ended(process, b".")
    assert (status, err) == (0, "") and out.startswith("shaderloom ")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05 * step for step in range(1, 11)] + [0.7, 1.0, 1.5, 2.0])
def test_an_interrupt_at_any_moment(device, monkeypatch, interrupts, model, seconds):
    """Counted from the first import of the program's own, as an interpreter that starts answers in its own way."""
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    process = _started("-c", _HELD, "shaderloom", "shaderloom.cli", "run", model)
    assert process.stdout.readline() == b"held\n"
    process.stdin.write(b".")
    process.stdin.flush()
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    status, out, err = _ended(process, b"")
    if status:
        assert (status, err) == (130, "error: interrupted\n")
    else:
        assert "y" in out and "interrupted" not in err
