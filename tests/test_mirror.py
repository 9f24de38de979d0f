"""Tests mirror the product: what a test file covers exists, and no folder of the product is without tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .test_imports import modules

ROOT = Path(__file__).resolve().parents[1]
MODULES = [source.path for name, source in modules().items() if name != "shaderloom"]
FOLDERS = sorted({path.parent for path in MODULES})
FILES = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]


@cache
def named(file: Path) -> list[Path]:
    """What the docstring of a test file says that it covers: files of the repository, and folders."""
    start, docstring, *_ = (ROOT / file).read_text(encoding="utf-8").split('"""', 2)
    found = re.search(r"Covers:\s+(.+?)\.(?=\s\s|\s*\n|$)", docstring, re.DOTALL) if not start else None
    return [Path(entry) for entry in re.split(r",\s+", found[1])] if found else []


def mirrored(file: Path) -> list[Path]:
    """The modules and folders, in the folder that a test's own folder mirrors, that have the name of the test."""
    folder = file.parent.relative_to("tests")
    name = file.stem.removeprefix("test_")
    return [path for path in (*MODULES, *FOLDERS) if path.stem == name and folder in path.parents]


def test_what_a_test_covers_exists() -> None:
    for file in FILES:
        missing = [
            str(path) for path in named(file) if not any((ROOT / f"{path}{end}").exists() for end in ("", ".py"))
        ]
        assert missing == [], file
        if file.parts[1] in ("compiler", "runtime", "shaderloom"):
            assert (ROOT / file.parent.relative_to("tests")).is_dir(), file
            assert named(file) or mirrored(file), (
                f"neither the name nor a line 'Covers: ' of {file} says what is tested"
            )


def test_every_folder_of_the_product_has_tests() -> None:
    covered = [path for file in FILES for path in (*named(file), *mirrored(file))]
    without = [
        str(folder) for folder in FOLDERS if not any(path == folder or folder in path.parents for path in covered)
    ]
    assert without == []
