"""Backward slice from control decisions: values that determine shapes, selected elements, or the nodes that run.

In half precision a program must take the decisions of the float32 one, so neither what decides is rounded nor anything
that it is computed from (:mod:`.float16_storage`).  The analysis works on names, because nodes may not be imported yet:
nested graphs are read in the form of the file.  It is conservative: an undetermined value counts as deciding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import onnx

from ...runtime.plan.dtypes import from_onnx
from ..frontend.topology import names_read
from ..ops.onnx.cast import CastAttributes
from ..ops.registry import OpDef, registry
from .program_graph import PendingNode, SplitNodes

#: what they give depends on sizes alone, which are known when a stage is compiled
_OF_SIZES = ("Shape", "Size")


def deciding_names(nodes: Sequence[PendingNode], deciding: Collection[str]) -> set[str]:
    """Return the backward slice of qualified names from the decisions of ``nodes`` and from the names ``deciding``.

    ``nodes`` are in topological order.
    """
    names = set(deciding)
    for item in reversed(nodes):
        names |= _of_node(item, names)
    return names


def names_behind_integers(nodes: Sequence[PendingNode]) -> set[str]:
    """Return the names of values that ``nodes`` turn into integers of at least 32 bits by elementwise arithmetic."""
    names: set[str] = set()
    for item in reversed(nodes):
        definition, attributes = item.node.definition, item.node.attributes
        becomes = False
        if isinstance(attributes, CastAttributes):
            dtype = from_onnx(attributes.to)
            becomes = dtype.is_integer and dtype.bits >= 32
        is_map = definition is not None and definition.is_map
        if becomes or (is_map and names.intersection(item.outputs)):
            names.update(item.reads)
    return names


def names_added(nodes: Sequence[PendingNode]) -> set[str]:
    """Return the names of values that ``nodes`` may read as operands of elementwise arithmetic, or move to where it is.

    Weights of products are none.  What a nested graph, or a node that the compiler cannot read, does with a
    value is not looked at: it counts.
    """
    names: set[str] = set()
    for item in reversed(nodes):
        definition = item.node.definition
        computes = definition is None or definition.is_elementwise or definition.expand or definition.split
        moves = definition is not None and definition.gather and names.intersection(item.outputs)
        if computes or moves:
            names.update(item.reads)
    return names


def _of_node(item: PendingNode, deciding: Collection[str]) -> set[str]:
    node = item.node
    if node.op in _OF_SIZES:
        return set()
    if any(name in deciding for name in item.outputs if name):
        return set(item.reads)
    if node.definition is None:
        if node.proto is None or not (item.is_branch or item.is_loop):
            return set(item.reads)
        inner = _of_proto(node.proto, ())
        return {qualified for qualified in map(item.scope.find, inner) if qualified is not None}
    if item.synthetic and node.domain == "loom":  # a part of an operator that was split
        return set(item.reads)
    if node.definition.split is not None:
        parts = SplitNodes(item)
        node.definition.split(parts, item.inputs, item.outputs, node.attributes)
        return deciding_names(parts.nodes, ())
    return set(_static(node.definition, item.inputs))


def _static(definition: OpDef, inputs: Sequence[str]) -> list[str]:
    return [inputs[position] for position in definition.static_inputs if position < len(inputs) and inputs[position]]


# -- graphs as the file has them -------------------------------------------------------------------------------------


def _of_proto(node: onnx.NodeProto, deciding: Collection[str]) -> set[str]:
    """Return the file's names that a node's decisions depend on: all it reads if one of its outputs is ``deciding``."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if not domain and node.op_type in (*_OF_SIZES, "Constant"):
        return set()
    if any(name in deciding for name in node.output if name):
        return set(names_read(node))
    if not domain and node.op_type in ("If", "Loop", "Scan"):
        graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
        if node.op_type == "If":
            return {node.input[0]}.union(*(_inside(graph.node, ()) for graph in graphs.values()))
        return _of_loop(node, graphs["body"]) if "body" in graphs else set(names_read(node))
    definition = registry.find(node.op_type, domain)
    if definition is None or definition.split is not None:
        return set(names_read(node))
    return set(_static(definition, node.input))


def _inside(nodes: Iterable[onnx.NodeProto], deciding: Collection[str]) -> set[str]:
    names = set(deciding)
    for node in reversed(list(nodes)):
        names |= _of_proto(node, names)
    return names


def _of_loop(node: onnx.NodeProto, body: onnx.GraphProto) -> set[str]:
    """Return the names that decisions in a loop body depend on, propagated through loop-carried values."""
    is_loop = node.op_type == "Loop"
    inputs, outputs = [port.name for port in body.input], [port.name for port in body.output]
    first = 2 if is_loop else 0  #: position of the first carried value among the inputs of node and body
    carried = outputs[1:] if is_loop else outputs
    dependencies = _carried(
        lambda deciding: _inside(body.node, deciding), outputs[:1] if is_loop else [], inputs[first:], carried
    )
    outside = {operand for name, operand in zip(inputs, node.input) if name in dependencies and operand}
    return outside | (dependencies - set(inputs)) | (set(node.input[:2]) if is_loop else set())


def deciding_results(
    nodes: Sequence[PendingNode], inputs: Sequence[str], outputs: Sequence[str], deciding: Collection[str]
) -> frozenset[str]:
    """Return the outputs of a loop body that influence decisions.

    These are ``deciding``, and the loop-carried outputs whose ``inputs`` do so in a later iteration.  ``outputs`` are
    the loop-carried outputs, in the order of ``inputs``.
    """
    dependencies = _carried(lambda names: deciding_names(nodes, names), deciding, inputs, outputs)
    return frozenset(deciding).union(carried for name, carried in zip(inputs, outputs) if name in dependencies)


def _carried(
    body: Callable[[Collection[str]], set[str]], deciding: Iterable[str], inputs: Sequence[str], outputs: Sequence[str]
) -> set[str]:
    """Iterate ``body`` (results to the names they depend on) over the loop-carried values up to its fixed point."""
    results = set(deciding)
    while True:
        dependencies = body(results)
        more = {carried for name, carried in zip(inputs, outputs) if name in dependencies} - results
        if not more:
            return dependencies
        results |= more
