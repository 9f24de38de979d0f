"""Traversals of directed graphs: pre-order, post-order, reachability; without recursion, in a deterministic order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from .graph import Value

Item = TypeVar("Item", bound=Hashable)


def post_order(roots: Iterable[Item], successors: Callable[[Item], Iterable[Item]]) -> list[Item]:
    """Return what ``roots`` lead to, themselves included, each item once and behind all its successors.

    The graph must be acyclic.  Successors are visited in the order in which they are given.
    """
    order: list[Item] = []
    seen: set[Item] = set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            item, is_left = stack.pop()
            if is_left:
                order.append(item)
            elif item not in seen:
                seen.add(item)
                stack.append((item, True))
                stack.extend((successor, False) for successor in reversed(list(successors(item))))
    return order


def preorder(roots: Iterable[Item], successors: Callable[[Item], Iterable[Item]]) -> Iterator[Item]:
    """Yield what ``roots`` lead to, themselves included, depth first, each item once and before its successors.

    Successors are asked for only when a further item is.
    """
    seen: set[Item] = set()
    stack = list(roots)[::-1]
    while stack:
        item = stack.pop()
        if item not in seen:
            seen.add(item)
            yield item
            stack.extend(reversed(list(successors(item))))


def reachable(roots: Iterable[Item], successors: Callable[[Item], Iterable[Item]]) -> set[Item]:
    """Return what ``roots`` lead to, themselves included."""
    return set(preorder(roots, successors))


def operands(value: Value) -> list[Value]:
    """Return the distinct values that the producer of ``value`` reads, in order; none without a producer."""
    node = value.producer
    return [] if node is None else list(dict.fromkeys(operand for operand in node.inputs if operand is not None))
