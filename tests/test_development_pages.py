"""The pages on adding an operator, a kernel and a fusion rule: what they say works, in a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from .support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "development"
#: A block of code with the file that it is, or the table in a file whose last entry it is
BLOCK = re.compile(r'^```\w+ title="([^"]+)"(?: after="(\w+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: A command of a page with the tests that it runs
COMMAND = re.compile(r"^\./dev test (.*)$", re.MULTILINE)


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the compiler and its tests need."""
    unneeded = shutil.ignore_patterns("__pycache__", "golden", "data", "web", "conformance")
    for name in ("compiler", "runtime", "shaderloom", "templates", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=unneeded)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def follow(page: str, checkout: Path) -> tuple[list[str], list[str]]:
    """Write the blocks of a page into ``checkout``; return the arguments that run their tests, and the other files.

    Tests are files of the page; a page with cases alone has a command that runs them.
    """
    text_of_page = (PAGES / page).read_text(encoding="utf-8")
    tests, sources = [], []
    for name, table, text in BLOCK.findall(text_of_page):
        path = checkout / name
        if path.name.startswith("test_"):
            tests.append(name)
        elif not name.startswith("tests/"):
            sources.append(name)
        if table:
            source = path.read_text(encoding="utf-8")
            start = source.index(f"\n{table}")
            end = source.index("\n)\n", start) + 1
            path.write_text(source[:end] + indent(text.rstrip() + ",\n", "    ") + source[end:], encoding="utf-8")
            continue
        assert not path.exists(), "the example of a page is something that the project does not have"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tests or shlex.split(COMMAND.findall(text_of_page)[0]), sources


@pytest.mark.slow
@pytest.mark.parametrize("page", ["adding-an-operator.md", "adding-a-kernel.md", "adding-a-fusion-rule.md"])
def test_a_page_works_as_it_says(page, checkout, device):
    """The files of a page, in a copy: its own tests pass there, and fail without the rest of the files."""
    tests, sources = follow(page, checkout)
    assert run(checkout, tests) == 0
    for name in sources:
        original = ROOT / name
        (checkout / name).write_bytes(original.read_bytes()) if original.exists() else (checkout / name).unlink()
    assert run(checkout, tests) == 1


def run(checkout: Path, arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    result = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    print(result.stdout, result.stderr)
    return result.returncode
