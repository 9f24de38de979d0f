"""Operators of WGSL that take no neighbours without parentheses: naga parses more than the grammar, Tint does not.

Covers: templates.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: Operators, the longest first; an ampersand in front of a name behind another operator is an address
_OPERATORS = re.compile(r"<<|>>|[<>=!]=|[-+*/%&|^<>]")
_BITWISE = {"&", "|", "^"}
_SHIFTS = {"<<", ">>"}
_RELATIONS = {"<", ">", "<=", ">=", "==", "!="}


def mixed(text: str) -> list[str]:
    """Return the expressions of a text in which a shift or a bitwise operator stands beside another operator."""
    text = re.sub(r"//[^\n]*|\{%.*?%\}|\{#.*?#\}", " ", text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "x", text, flags=re.DOTALL)
    text = text.replace("&&", " == ").replace("||", " == ")  # operators like relations, and no addresses
    found = []
    innermost = re.compile(r"\(([^()\[\]]*)\)|\[([^()\[\]]*)\]")
    while match := innermost.search(text):
        found += _mixed_in(match[1] if match[1] is not None else match[2])
        text = f"{text[: match.start()]}x{text[match.end() :]}"
    return [*found, *_mixed_in(text)]


def _mixed_in(text: str) -> list[str]:
    found = []
    for part in re.split(r"[,;{}\n]|(?<![=!<>])=(?!=)|\breturn\b|\?|:", text):
        part = re.sub(r"\b(?:array|vec[234]|ptr|atomic|bitcast|mat\dx\d)\s*<[^;=]*?>+", "x", part)
        used = set(_OPERATORS.findall(re.sub(r"(^|[-+*/%&|^<>=])\s*[-&*!~]", r"\1", part.strip())))
        bitwise, shifts = _BITWISE.intersection(used), _SHIFTS.intersection(used)
        others = used - bitwise - shifts
        if (bitwise and (len(bitwise) > 1 or shifts or others)) or (shifts and (others - _RELATIONS)):
            found.append(part.strip())
    return found


@pytest.mark.parametrize("text", ["a >> 3u & 1u", "a & b | c", "x = a + b << 2u", "if (a & b == c) {"])
def test_what_only_naga_parses(text):
    assert mixed(text)


@pytest.mark.parametrize(
    "text", ["(a >> 3u) & 1u", "a & b & c", "x = (a + b) << 2u", "f(&a, b >> 1u) < c << d", "a && !b"]
)
def test_what_the_grammar_has(text):
    assert mixed(text) == []


def test_templates_and_goldens_have_what_the_grammar_has():
    files = [*(ROOT / "templates").rglob("*.wgsl.j2"), *(ROOT / "tests" / "golden").rglob("*.wgsl")]
    assert len(files) > 50
    found = {path.relative_to(ROOT).as_posix(): mixed(path.read_text(encoding="utf-8")) for path in files}
    assert {name: expressions for name, expressions in found.items() if expressions} == {}
