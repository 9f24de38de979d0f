"""The Python files of the product and of its tools, each read and parsed once in a process."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]

#: The folders that are imported as one package: in ``shaderloom/`` links lead to the others
PRODUCT = ("compiler", "runtime", "templates", "shaderloom")

NodeT = TypeVar("NodeT", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """A file; its path starts at the root of the repository."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse((ROOT / self.path).read_text(encoding="utf-8"))

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        by_kind = defaultdict(list)
        for node in ast.walk(self.tree):
            by_kind[type(node)].append(node)
        return by_kind

    def nodes(self, *kinds: type[NodeT]) -> list[NodeT]:
        """Return the nodes of ``kinds``, which have no subclasses."""
        return [node for kind in kinds for node in self._by_kind.get(kind, ())]

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return self.nodes(ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def _below(folder: str) -> tuple[Source, ...]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    own = (path for path in paths if not any(parent.is_symlink() for parent in path.parents))
    return tuple(Source(path.relative_to(ROOT)) for path in own)


def sources(*folders: str) -> list[Source]:
    """Return the files below ``folders`` of the repository."""
    return [source for folder in folders for source in _below(folder)]
