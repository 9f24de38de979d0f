"""Functions of the product fit on a screen."""

from __future__ import annotations

import ast

from .support.sources import PRODUCT, sources

#: Lines from ``def`` to the end, without the docstring and decorators
LIMIT = 60


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{source.path}:{node.lineno} {node.name}: {lines} lines"
        for source in sources(*PRODUCT)
        for node in source.functions
        if (lines := length(node)) > LIMIT
    ]
    assert long == []


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def test_docstrings_and_decorators_do_not_count() -> None:
    text = '@decorated\n@twice\ndef f(\n    x,\n):\n    """One.\n\n    Two.\n    """\n    return x\n'
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef) and length(function) == 4
