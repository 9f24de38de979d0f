"""shaderloom.js by itself: its modules, what it exports, and the polynomials of dimensions.

Covers: runtime/web/shaderloom, runtime/web/shaderloom.js.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shaderloom.runtime.plan.dimension import evaluate

RUNNER = Path(__file__).resolve().parents[2] / "runtime" / "web" / "shaderloom.js"


def test_the_modules_are_small_and_import_each_other_alone():
    texts = {path: path.read_text(encoding="utf-8") for path in (RUNNER, *RUNNER.with_suffix("").glob("*.js"))}
    assert sum(len(text.encode()) for text in texts.values()) <= 130 * 1024
    imported = set()
    for path, text in texts.items():
        for name in re.findall(r'^(?:import|export) \{.*\} from "(.+)";$', text, re.MULTILINE):
            assert name.startswith("./")
            imported.add(path.parent / name)
    assert imported == set(texts) - {RUNNER}


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
