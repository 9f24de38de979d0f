"""Names say what a thing is: no fillers, local variables included, and no class with the name of another."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from .support.sources import ROOT, sources

FOLDERS = ("compiler", "runtime", "shaderloom", "tools", "bench", "examples")

#: Participles and adverbs that fit any thing, so that they say nothing about it
FILLERS = frozenset("found where kept made given known told".split())
#: Those that are refused as parts of names, too: ``where`` is an operator, and what is known while compiling is a term
PARTS = FILLERS - {"where", "known"}
#: Methods whose names are those of a base class of Python's
INHERITED = frozenset({"connection_made"})

#: What declares names in JavaScript: variables, destructured ones included, and the parameters of functions
DECLARATION = re.compile(
    r"\b(?:const|let|var|function|class)\s+(?P<names>\w+|[\[{][^=;]*?[\]}])|\((?P<parameters>[^()]*)\)\s*(?:=>|\{)|"
    r"\b(?P<parameter>\w+)\s*=>"
)
COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*|(?<=[;{,)])\s*//[^\n]*", re.DOTALL | re.MULTILINE)


def _declared(node: ast.AST) -> list[str]:
    """Return the names that a node of the syntax tree gives, variables of loops and comprehensions included."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return [node.name or ""]
    if isinstance(node, ast.alias):
        return [node.asname or ""]
    return []


def _is_filler(name: str) -> bool:
    plain = name.strip("_").lower()
    return plain in FILLERS or (name not in INHERITED and not PARTS.isdisjoint(plain.split("_")))


def _javascript_names(text: str) -> Iterator[str]:
    """Yield what JavaScript declares, in lower case with underscores."""
    for match in DECLARATION.finditer(COMMENT.sub("", text)):
        for name in re.findall(r"[A-Za-z_]\w*", " ".join(filter(None, match.groups()))):
            yield re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def test_no_fillers() -> None:
    """No thing is called by a filler, local variables, parameters of lambdas and nested functions included."""
    wrong = [
        f"{source.path}:{getattr(node, 'lineno', 0)}: {name}"
        for source in sources(*FOLDERS)
        for node in ast.walk(source.tree)
        for name in _declared(node)
        if _is_filler(name)
    ]
    wrong += [str(source.path) for source in sources(*FOLDERS) if _is_filler(source.path.stem)]
    assert wrong == []


def test_no_fillers_in_javascript() -> None:
    """The same for the modules of the browser and of the pages; names of properties are not looked at."""
    paths = [path for folder in ("runtime/web", "shaderloom", "examples") for path in (ROOT / folder).rglob("*.js")]
    own = [path for path in paths if "node_modules" not in path.parts]
    assert len(own) > 40
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in own
        for name in _javascript_names(path.read_text(encoding="utf-8"))
        if _is_filler(name)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        "def f(found): pass",
        "def f():\n    def kept(): pass",
        "for made, _ in x: pass",
        "[told for told in x]",
        "lambda known: 0",
        "with x as given: pass",
        "try: pass\nexcept E as found: pass",
        "a.kept = 1",
        "names_found = 1",
        "import x as where",
    ],
)
def test_fillers_are_seen(code: str) -> None:
    assert any(_is_filler(name) for node in ast.walk(ast.parse(code)) for name in _declared(node))


@pytest.mark.parametrize(
    "code",
    [
        "const found = 1;",
        "for (const [kept, b] of x) {}",
        "let { a, made } = x;",
        "function f(given) {}",
        "x.map((known, i) => i);",
        "x.map(told => told);",
        "const valuesFound = 1; // a",
    ],
)
def test_fillers_are_seen_in_javascript(code: str) -> None:
    assert any(map(_is_filler, _javascript_names(code)))


def test_classes_have_names_of_their_own() -> None:
    """A name that two folders give to two things has two meanings for a reader."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources(*(folder for folder in FOLDERS if folder != "examples")):
        for node in source.nodes(ast.ClassDef):
            if not node.name.startswith("_"):
                homes[node.name].append(str(source.path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
