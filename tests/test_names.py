"""Names say what a thing is: no fillers in signatures, fields and classes, and no class with the name of another."""

from __future__ import annotations

import ast
from collections import defaultdict

from .support.sources import sources

FOLDERS = ("compiler", "runtime", "shaderloom", "tools", "bench")

#: Participles and adverbs that fit any thing, so that they say nothing about it
FILLERS = frozenset("found where kept made given known told".split())
#: Those that are no names of variables either
LOCAL_FILLERS = frozenset({"found"})


def _declared(node: ast.AST) -> list[str]:
    """Return the names that a definition shows to its users: of the thing itself, of parameters and of fields."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
        return [node.name, *(item.arg for item in parameters)]
    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
        return [node.name.lower(), *(field.id for field in fields if isinstance(field, ast.Name))]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    return []


def test_no_fillers() -> None:
    wrong = [
        f"{source.path}:{node.lineno}: {text}"
        for source in sources(*FOLDERS)
        for node in [*source.functions, *source.nodes(ast.ClassDef), *source.nodes(ast.Attribute)]
        for text in _declared(node)
        if text.strip("_") in FILLERS
    ]
    wrong += [
        f"{source.path}:{node.lineno}: {node.id}"
        for source in sources(*FOLDERS)
        for node in source.nodes(ast.Name)
        if node.id in LOCAL_FILLERS and isinstance(node.ctx, ast.Store)
    ]
    wrong += [str(source.path) for source in sources(*FOLDERS) if source.path.stem.strip("_") in FILLERS]
    assert wrong == []


def test_classes_have_names_of_their_own() -> None:
    """A name that two folders give to two things has two meanings for a reader."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources(*FOLDERS):
        for node in source.nodes(ast.ClassDef):
            if not node.name.startswith("_"):
                homes[node.name].append(str(source.path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
