"""Traversals of graphs.  Covers: compiler/ir/dataflow.py."""

from __future__ import annotations

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaderloom.compiler.ir.dataflow import post_order, preorder, reachable

EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).filter(lambda edge: edge[0] != edge[1]))


@given(EDGES, st.lists(st.integers(0, 30), max_size=4))
def test_traversals_agree_with_networkx(edges: list[list[int]], roots: list[int]) -> None:
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(31))
    graph.add_edges_from(edges)
    expected = set(roots).union(*(networkx.descendants(graph, root) for root in roots))
    assert reachable(roots, graph.successors) == expected
    first = list(preorder(roots, graph.successors))
    assert first == list(dict.fromkeys(node for root in roots for node in networkx.dfs_preorder_nodes(graph, root)))
    order = post_order(roots, graph.successors)
    assert set(order) == expected and len(order) == len(expected)
    position = {item: number for number, item in enumerate(order)}
    assert all(position[successor] < position[item] for item in order for successor in graph.successors(item))


def test_successors_are_visited_in_order() -> None:
    successors = {"a": ["b", "c"], "b": [], "c": ["d"], "d": []}
    assert post_order(["a"], successors.__getitem__) == ["b", "d", "c", "a"]
    assert post_order([], successors.__getitem__) == []
    assert list(preorder(["a"], successors.__getitem__)) == ["a", "b", "c", "d"]


def test_successors_are_asked_for_when_they_are_needed() -> None:
    asked: list[int] = []

    def next_of(item: int) -> list[int]:
        asked.append(item)
        return [item + 1]

    assert next(item for item in preorder([0], next_of) if item == 3) == 3
    assert asked == [0, 1, 2]


@pytest.mark.parametrize("length", [100_000])
def test_long_chains_need_no_recursion(length: int) -> None:
    assert len(post_order([0], lambda item: [item + 1] if item < length else [])) == length + 1
