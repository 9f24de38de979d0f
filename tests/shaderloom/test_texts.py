"""What texts of the product point at exists: pages, options and commands, attributes, extras and variables.

Covers: shaderloom, runtime, compiler.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import typer.main

import shaderloom
from shaderloom.cli import app

from ..support.sources import ROOT, sources

COMMAND = typer.main.get_command(app)


def _texts() -> list[tuple[str, str]]:
    """The strings that are no docstrings, each with its file and line."""
    texts = []
    for source in sources("compiler", "runtime", "shaderloom"):
        documented = source.nodes(ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
        texts += [
            (f"{source.path}:{node.lineno}", node.value)
            for node in source.nodes(ast.Constant)
            if isinstance(node.value, str) and id(node) not in docstrings
        ]
    return texts


def _options(command: Any) -> Iterator[str]:
    yield "--help"
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for inner in getattr(command, "commands", {}).values():
        yield from _options(inner)


def _is_public(name: str) -> bool:
    return hasattr(shaderloom, name) or find_spec(f"shaderloom.{name}") is not None


OPTIONS = {*_options(COMMAND)}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

#: For each kind of reference how it is written in a text, whether its target exists, and one that texts have
KINDS = {
    "page": (r"[\w/.-]+\.md\b", lambda name: (ROOT / "docs" / name).is_file(), "guide/onnxruntime-api.md"),
    "option": (r"(?<![\w-])--[a-z][a-z-]+", OPTIONS.__contains__, "--providers"),
    "command": (
        r"(?:^|['`(\[] ?|: )shaderloom ([a-z-]+)\b",
        lambda name: name in COMMAND.commands,
        "inspect",
    ),
    "public name": (r"(?<=[\s:;(])shaderloom\.([A-Za-z]\w+)", _is_public, "register_operator"),
    "session's attribute": (
        r"(?<![\w.])session\.([a-z]\w+)\(",
        lambda name: hasattr(shaderloom.InferenceSession, name),
        "placement",
    ),
    "option of a session": (
        r"\bSessionOptions\.([a-z]\w+)",
        lambda name: hasattr(shaderloom.SessionOptions(), name),
        "precision",
    ),
    "cap": (r"(?<![\w.])caps\.([a-z]\w+)", lambda name: hasattr(shaderloom.Caps(), name), "device_memory"),
    "extra": (r"shaderloom\[(\w+)\]", EXTRAS.__contains__, "cpu"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_text_points_at_exists(kind: str) -> None:
    pattern, exists, example = KINDS[kind]
    references = [(name, place) for place, text in _texts() for name in re.findall(pattern, text)]
    assert example in {name for name, _ in references}
    assert [f"{place}: {name}" for name, place in references if not exists(name)] == []


def test_texts_name_pages_by_one_function() -> None:
    """A wheel does not hold ``docs``: :func:`manual_page` says where its user finds a page."""
    assert [place for place, text in _texts() if "docs/" in text and not place.startswith("runtime/plan/manual")] == []
