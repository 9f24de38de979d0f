"""shaderloom.js by itself: its modules, what it exports, and the polynomials of dimensions.

Covers: runtime/web/shaderloom, runtime/web/shaderloom.js, tools/web_reference.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shaderloom.runtime.plan.dimension import evaluate
from tools.web_reference import PAGE, page

RUNNER = Path(__file__).resolve().parents[2] / "runtime" / "web" / "shaderloom.js"


def test_the_modules_are_small_and_import_each_other_alone():
    texts = {path: path.read_text(encoding="utf-8") for path in (RUNNER, *RUNNER.with_suffix("").glob("*.js"))}
    at_once = importers(texts, r'^(?:import|export) \{.*\} from "(.+)";$')
    later = importers(texts, r'await import\("(.+?)"\)')
    workers = importers(texts, r'new Worker\(new URL\("(.+?)", import.meta.url\)')
    assert set(at_once) | set(later) | set(workers) == set(texts) - {RUNNER}
    loaded, waiting = set(), [RUNNER]
    while waiting:
        loaded.add(path := waiting.pop())
        waiting += [other for other, by in at_once.items() if path in by and other not in loaded]
    assert sum(len(texts[path].encode()) for path in loaded) <= 160 * 1024
    assert sum(len(text.encode()) for text in texts.values()) <= 210 * 1024, "with programs, profiles, samples and keys"


def importers(texts: dict[Path, str], pattern: str) -> dict[Path, set[Path]]:
    """By module those that import it, in a form that the pattern describes."""
    by_module: dict[Path, set[Path]] = {}
    for path, text in texts.items():
        for name in re.findall(pattern, text, re.MULTILINE):
            assert name.startswith("./")
            by_module.setdefault(path.parent / name, set()).add(path)
    return by_module


def test_the_reference_is_that_of_the_types():
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "python -m tools.web_reference writes it"
    types = RUNNER.with_suffix(".d.ts").read_text(encoding="utf-8")
    for name in re.findall(r"^export (?:class|function) (\w+)", types, re.MULTILINE):
        assert f"\n### {name}\n" in text
    session = types.partition("interface Session {")[2].partition("\n}")[0]
    for member in re.findall(r"^  (?:readonly )?(\w+)[?(<:]", session, re.MULTILINE):
        assert re.search(rf"^\| `(?:readonly )?{member}\b.*` \| \S", text, re.MULTILINE), member


def test_the_module_exports_what_its_types_declare(blank):
    declared = re.findall(r"^export (?:class|function) (\w+)", RUNNER.with_suffix(".d.ts").read_text(), re.MULTILINE)
    assert sorted(declared) == blank.evaluate("import('/shaderloom.js').then((module) => Object.keys(module).sort())")


@pytest.mark.parametrize(
    "dimension", [7, "n", ["+", "n", 2, "m"], ["*", 3, "n", "m"], ["//", -7, 2], ["%", -7, 3], ["min", "n", 3],
                  ["max", ["//", ["+", ["*", "n", 12], 15], 16], 1]],
)  # fmt: skip
def test_dimensions_are_those_of_plans(blank, dimension):
    symbols = {"n": 5, "m": -2}
    found = blank.call(
        "async (dimension, symbols) => (await import('/shaderloom.js')).evaluate(dimension, symbols)",
        dimension,
        symbols,
    )
    assert found == evaluate(dimension, symbols)
