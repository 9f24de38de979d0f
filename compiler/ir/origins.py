"""Origins of nodes that stand for several nodes of a file, merged without copying.

A rewrite gives a node the origins of all that it matched, so a chain that folds into one node would copy, and sort,
what it gathered at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from ...runtime.plan.errors import Origin
from .graph import Node


class MergedOrigins(Sequence[Origin]):
    """The origins of several nodes, each once, in the order of the model; put together when they are looked at."""

    def __init__(self, parts: tuple[Sequence[Origin], ...]) -> None:
        self._parts = parts
        self._flat: tuple[Origin, ...] | None = None
        self._first = min((part[0] for part in parts if part), key=_order, default=None)

    def __bool__(self) -> bool:
        return self._first is not None

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, position: int) -> Origin: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[Origin]: ...

    def __getitem__(self, position: int | slice) -> Origin | Sequence[Origin]:
        if position == 0 and self._first is not None:
            return self._first
        return self._all()[position]

    def _all(self) -> tuple[Origin, ...]:
        if self._flat is None:
            distinct: set[Origin] = set()
            seen: set[int] = set()
            stack: list[Sequence[Origin]] = [self]
            while stack:
                part = stack.pop()
                if not isinstance(part, MergedOrigins):
                    distinct.update(part)
                elif part._flat is not None:
                    distinct.update(part._flat)
                elif id(part) not in seen:
                    seen.add(id(part))
                    stack += part._parts
            self._flat = tuple(sorted(distinct, key=_order))
            self._parts = ()
        return self._flat


def _order(origin: Origin) -> tuple[str, int, str, str]:
    return origin.graph, origin.index, origin.op, origin.name


def merge_origins(nodes: Iterable[Node]) -> Sequence[Origin]:
    """Return the origins of all ``nodes``, each once, in the order of the model."""
    parts = tuple({id(node.origins): node.origins for node in nodes}.values())
    return parts[0] if len(parts) == 1 and isinstance(parts[0], MergedOrigins) else MergedOrigins(parts)
