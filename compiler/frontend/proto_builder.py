"""Nodes and constants that are added to a graph of ONNX messages, under names that nothing in it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from onnx import helper, numpy_helper

from .messages import GraphProto, NodeProto


def nodes_within(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of those nested in it."""
    for node in graph.node:
        yield node
        for nested in _graphs_of(node):
            yield from nodes_within(nested)


def _graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)


class ProtoBuilder:
    """Appends to ``graph``; what it names begins with ``prefix``."""

    def __init__(self, graph: GraphProto, prefix: str) -> None:
        self.graph = graph
        self._prefix = prefix
        self._taken = {value.name for value in (*graph.input, *graph.initializer)}
        self._taken.update(name for node in nodes_within(graph) for name in (*node.input, *node.output))

    def rename(self, name: str, wanted: str) -> str:
        """Give the value ``name`` another name, as close to ``wanted`` as is free, and return that.

        Values of nested graphs that have the same name get it too: branches of an If may name theirs as its result.
        """
        renamed = self.unique(wanted)
        for node in nodes_within(self.graph):
            for names in (node.input, node.output):
                for place, other in enumerate(names):
                    if other == name:
                        names[place] = renamed
            for port in (port for nested in _graphs_of(node) for port in nested.output):
                if port.name == name:
                    port.name = renamed
        return renamed

    def unique(self, wanted: str) -> str:
        """Return ``wanted``, or with a number behind it if that is a name of the graph."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}{number}"
        self._taken.add(name)
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add an initializer."""
        name = self.unique(f"{self._prefix}/constant")
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *numbers: int) -> str:
        """Add an initializer of int64 numbers [n]."""
        return self.constant(np.array(numbers, np.int64))

    def size(self, name: str, axis: int) -> str:
        """Return the size [1] of an axis."""
        return self.op("Gather", self.op("Shape", name), self.integers(axis))

    def op(self, op: str, *inputs: str, **attributes: int) -> str:
        """Add a node of the standard with one output; return its name."""
        result = self.unique(f"{self._prefix}/{op}")
        self.node(op, inputs, result, **attributes)
        return result

    def node(self, op: str, inputs: Iterable[str], result: str, **attributes: int) -> None:
        """Add a node of the standard that computes ``result``."""
        node = helper.make_node(op, list(inputs), [result], self.unique(f"{self._prefix}/last_{op}"))
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self.graph.node.append(node)
