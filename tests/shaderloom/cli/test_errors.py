"""Errors, warnings, wrong usage and interrupts: one line, and the exit status.  Covers: shaderloom/cli."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
from typer.testing import CliRunner

from shaderloom.cli import app, main

from ...support.patience import PATIENCE
from ...support.plans import replace_compiler, two_call_model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "x=ax3"], "--shape x=ax3 is not a list of sizes"),
        (["--shape", "10"], "--shape wants NAME=VALUE"),
        (["--shape", "x=1", "--shape", "x=2"], "gives 'x' twice"),
        (["--shape", "q=1"], "no input 'q'"),
        (["--shape", "x=1x2"], "has rank 2"),
        (["--input", "x=missing.npy"], "cannot read 'missing.npy'"),
        (["--shape", "x=10", "--dynamic", "N=5"], "--dynamic N=5 is not a range"),
        (["--shape", "x=" + 5000 * "9"], "is not a list of sizes"),
        (["--shape", "x=10", "--dynamic", "N=1:" + 5000 * "9"], "is not a range"),
        (["--shape", "x=10", "--dynamic", "M=1:5"], "no input has a dimension 'M'"),
        (["--shape", "x=10", "--device", "abacus"], "no adapter matches 'abacus'"),
        (["--shape", "x=10", "--output", "/nowhere/out.npz"], "cannot write '/nowhere/out.npz'"),
    ],
)
def test_errors_are_one_line(shaderloom, path, arguments, message):
    result = shaderloom("run", path, *arguments, status=1)
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert result.stdout == ""


def test_debug_shows_the_traceback(shaderloom, tmp_path):
    missing = tmp_path / "none.onnx"
    plain = shaderloom("run", missing, status=1).stderr
    assert "Traceback" not in plain
    full = shaderloom("run", missing, "--debug", status=1).stderr
    assert "Traceback" in full
    assert full.strip().splitlines()[-1] == plain.strip()


def test_unexpected_errors_are_readable_too(shaderloom, path, monkeypatch):
    def fail(*arguments):
        raise ZeroDivisionError("oops")

    replace_compiler(monkeypatch, fail)
    (line,) = shaderloom("run", path, "--shape", "x=10", status=1).stderr.strip().splitlines()
    assert line.startswith("error: internal error: ZeroDivisionError: oops")


def test_warnings_are_one_line_once(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it
    monkeypatch.setattr("shaderloom.cli.app", lambda: [warn("there is\n  a faster way") for warn in two_places])
    two_places = [lambda text: warnings.warn(text, stacklevel=1), lambda text: warnings.warn(text, stacklevel=2)]
    main()
    assert capsys.readouterr().err == "warning: there is a faster way\n"


def test_wrong_usage_has_status_2(shaderloom, path):
    shaderloom("frobnicate", status=2)
    shaderloom("run", status=2)
    shaderloom("run", path, "--show", "plan", status=2)
    assert "Usage:" in shaderloom(status=2).output, "no command at all gets the help"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frobnicate"], "error: usage: no such command 'frobnicate' [shaderloom --help]"),
        (["run"], "error: usage: missing argument 'MODEL' [shaderloom run --help]"),
        (["run", "a", "--nope"], "error: usage: no such option: --nope"),
        (["run", "a", "--dynamic"], "error: usage: option '--dynamic' requires an argument [shaderloom run --help]"),
        (["repro", "a"], "error: usage: missing option '-o' / '--output' [shaderloom repro --help]"),
        (["inspect", "a", "--show", "x"], "error: usage: invalid value for '--show': 'x' is not one of 'passes', "),
        (["run", "a", "--repeat", "x"], "error: usage: invalid value for '--repeat': "),
    ],
)
def test_wrong_usage_is_one_line(arguments, line):
    result = CliRunner().invoke(app, arguments, prog_name="shaderloom")
    assert (result.exit_code, result.stdout) == (2, "")
    (found,) = result.stderr.splitlines()
    assert found.startswith(line) and found.endswith("--help]")


@pytest.mark.parametrize("command", [["devices"], ["cache", "info"]])
def test_an_interrupt_is_one_line(command, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("shaderloom.runtime.device.adapters.list_adapters", interrupt)
    monkeypatch.setattr("shaderloom.cache.open_cache", interrupt)
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (130, "", "error: interrupted")


def test_an_interrupt_leaves_without_waiting_for_a_driver():
    """One that compiles on a thread, here without an end; interrupted while the command line was still being read."""
    program = """
import threading
from shaderloom import cli

def interrupt():
    raise KeyboardInterrupt

cli.app = interrupt
threading.Thread(target=threading.Event().wait).start()
print("what was printed is kept", end="")
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "what was printed is kept", "error: interrupted\n")


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["devices"], ["inspect", "MODEL", "--shape", "x=10", "--web"]]
)
def test_a_full_device_is_one_line(path, words: list[str]) -> None:
    words = [str(path) if word == "MODEL" else word for word in words]
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "shaderloom", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
    assert (done.returncode, errors) == (
        1,
        ["error: system: No space left on device [the operating system refused it]"],
    )


def test_a_folder_that_is_gone_is_one_line(path, tmp_path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); from shaderloom.cli import main; main()"
    for words in (["compile", str(path), "-o", "here"], ["inspect", "model.onnx"]):
        gone.mkdir(exist_ok=True)
        command = [sys.executable, "-c", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=gone, timeout=PATIENCE)
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
        assert done.returncode == 1 and line.startswith("error: ") and "report" not in line


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_stream_may_be_closed(closed: str) -> None:
    script = f'exec "$@" {closed}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "shaderloom", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("shaderloom") == (closed != ">&-")


def test_a_reader_that_stops_is_no_error(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(two_call_model().SerializeToString())
    words = [sys.executable, "-m", "shaderloom", "inspect", path, "--shape", "x=10", "--web", "--show", "wgsl"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run", "none.onnx"], "error: model: there is no file 'none.onnx' [check the path]"),
        (["check", "none.onnx"], "error: model: there is no file 'none.onnx' [check the path]"),
        (["verify", "none"], "error: bundle: there is no bundle 'none' [check the path]"),
        (["verify", "MODEL"], "is no bundle, which is a folder or a zip [shaderloom compile makes one of a model]"),
        (["serve", "MODEL"], "is no bundle [--api kserve serves a model; shaderloom compile makes a bundle of it]"),
        (["run", "FOLDER"], "is no bundle: 'manifest.json' is missing [check the path]"),
        (["check", "FOLDER"], "as shader bundles are, and not a file of a model [name the ONNX file; "),
        (["repro", "FOLDER", "--kernel", 0, "-o", "FOLDER/k.py"], "and not a file of a model [name the ONNX file; "),
        (["compile", "FOLDER", "-o", "FOLDER/b"], "and not a file of a model [name the ONNX file; "),
        (["check", "TEXT"], "is not an ONNX file, or a damaged one"),
        (["inspect", "TEXT"], "not an ONNX file"),
        (["inspect", "MODEL", "--shape", "x=10", "--option", "verify=maybe"], "'verify' is true or false, not 'maybe'"),
        (["inspect", "MODEL", "--shape", "x=10", "--option", "disabled_passes=views"], "is a list of names of passes"),
        (["inspect", "MODEL", "--shape", "x=10", "--option", 'disabled_passes=["x"]'], "there is no pass 'x'"),
        (["inspect", "MODEL", "--shape", "x=10", "--html", "/nowhere/r.html"], "[name another file or folder]"),
    ],
)
def test_files_of_another_kind(device, cache_folder, path, tmp_path, command, message):
    text = tmp_path / "text.onnx"
    text.write_text("# Not a model, but a text\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    words = [str(word).replace("MODEL", str(path)).replace("TEXT", str(text)) for word in command]
    result = CliRunner().invoke(app, [word.replace("FOLDER", str(folder)) for word in words])
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.strip().splitlines()
    assert message in line
