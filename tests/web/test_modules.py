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
GENERATION = RUNNER.with_name("generate.js")


def test_the_modules_are_small_and_import_each_other_alone():
    """What a page loads at once, what the runner may load, and what only generation does, which imports the runner."""
    entries = (RUNNER, GENERATION)
    texts = {path: path.read_text(encoding="utf-8") for path in (*entries, *RUNNER.with_suffix("").glob("*.js"))}
    at_once = imports(texts, r'^(?:import|export) \{[^}]*\} from "(.+)";$')
    later = imports(texts, r'await import\("(.+?)"\)')
    workers = imports(texts, r'new Worker\(new URL\("(.+?)", import.meta.url\)')
    assert reached(entries, at_once, later, workers) == set(texts)
    first, all_of_it = (
        sum(len(texts[path].encode()) for path in reached((RUNNER,), *graphs))
        for graphs in ((at_once,), (at_once, later, workers))
    )
    assert first <= 161 * 1024
    assert all_of_it <= 220 * 1024, "with programs, profiles, samples and keys"


Imports = dict[Path, set[Path]]


def imports(texts: dict[Path, str], pattern: str) -> Imports:
    """By module those that it imports in a form that the pattern describes."""
    by_module: Imports = {}
    for path, text in texts.items():
        names = re.findall(pattern, text, re.MULTILINE)
        assert all(re.match(r"\.\.?/", name) for name in names)
        by_module[path] = {(path.parent / name).resolve() for name in names}
    return by_module


def reached(entries: tuple[Path, ...], *graphs: Imports) -> set[Path]:
    """The modules that are imported from the entries on."""
    loaded: set[Path] = set()
    waiting = [*entries]
    while waiting:
        if (path := waiting.pop()) not in loaded:
            loaded.add(path)
            waiting += [other for graph in graphs for other in graph[path]]
    return loaded


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
