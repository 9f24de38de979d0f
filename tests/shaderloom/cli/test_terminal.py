"""Names come from files: none acts on the terminal, whatever command prints it."""

from __future__ import annotations

import io
import json
import re
import sys
import warnings
from pathlib import Path

import onnx.parser
import pytest
from typer.testing import CliRunner

import shaderloom.cli
from shaderloom.cli import app, terminal
from shaderloom.notices import notify

from ...support.plans import two_call_plan

#: Clears the screen, sets the title, writes from right to left, goes back; and markup of rich
HOSTILE = "\x1b[2J\x1b]0;title\x07\u202e\x9b1m\b[red]"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@pytest.fixture
def path(tmp_path) -> Path:
    """A model whose input, output, nodes and graph have hostile names."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { z = Exp(x) y = Log(z) }'
    )
    graph = model.graph
    graph.name = HOSTILE
    for node in graph.node:
        node.name = f"node{HOSTILE}"
        for names in (node.input, node.output):
            names[:] = [name + HOSTILE for name in names]
    for port in (*graph.input, *graph.output):
        port.name += HOSTILE
    target = tmp_path / "model.onnx"
    target.write_bytes(model.SerializeToString())
    return target


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "--shape", "q=1"],
        ["run", "--json"],
        ["check", "--per-node"],
        ["profile"],
        ["inspect"],
        *(["inspect", "--show", view] for view in ("graph", "fused", "plan", "wgsl", "placement")),
    ],
    ids=" ".join,
)
def test_commands_print_no_control_characters(device, cache_folder, monkeypatch, path, arguments):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    command, *options = arguments
    result = CliRunner().invoke(app, [command, str(path), *options])
    assert result.output
    assert not ACTING.search(result.output), result.output
    if "--json" in options:
        assert [row["name"] for row in json.loads(result.output)["outputs"]] == ["y" + HOSTILE]


def test_bundles_errors_and_progress_print_none(tmp_path, path, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.progress() as report:
        report(f"reading {HOSTILE}", 1, 2)
    assert "\x1b[2J" not in screen.getvalue() and "reading \\x1b[2J" in screen.getvalue()
    assert "1/2" in screen.getvalue()
    result = CliRunner().invoke(app, ["compile", str(path), "-o", str(tmp_path / f"b{HOSTILE[:4]}")])
    assert result.exit_code == 0
    assert not ACTING.search(result.output), result.output


def test_texts_of_the_library_print_none():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notify(f"the option {HOSTILE} has no effect")
    assert not ACTING.search(str(caught[0].message))
    plan = two_call_plan()
    object.__setattr__(plan.calls[0], "origins", (HOSTILE,))
    assert "\\x1b[2J" in str(plan) and not ACTING.search(str(plan))


def test_no_other_module_of_the_commands_prints():
    for path in Path(shaderloom.cli.__file__).parent.glob("*.py"):
        found = re.findall(r"typer\.s?echo|\bConsole\(|\bprint\(|print_exc\(|std(?:out|err)\.write", path.read_text())
        assert not found or path.name == "terminal.py", (path.name, found)
