"""Docstrings of functions say what the function does, in the imperative."""

from __future__ import annotations

import ast

from .support.sources import PRODUCT, sources

#: First words of docstrings that name a thing, or ask about one, instead of saying what a function does
NO_VERBS = frozenset(
    "the a an whether what which where how when why of for as from to in on with without all every each any no one two "
    "both same only not it its this that these those there if because positions names elements numbers values shapes "
    "rows columns inputs outputs everything nothing something among into text cost minimum maximum remainder domain "
    "json wgsl n x".split()
)


def test_functions_are_described_in_the_imperative() -> None:
    """ "Return ...", "Fold ...": properties and special methods apart."""
    wrong = []
    for source in sources(*PRODUCT):
        for node in source.functions:
            text = (ast.get_docstring(node, clean=False) or "").strip()
            first = text.split(maxsplit=1)[0].strip(".,:;").lower() if text else ""
            if (first in NO_VERBS or first.startswith("`")) and not _is_property(node):
                wrong.append(f"{source.path}:{node.lineno} {node.name}: {text.splitlines()[0]}")
    assert wrong == []


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {getattr(decorator, "id", getattr(decorator, "attr", "")) for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})
