"""Model-local functions: calls are replaced by the bodies before anything else looks at the nodes."""

from __future__ import annotations

import onnx
import onnx.inliner

from ...runtime.plan.errors import ModelError


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without calls of its own functions.  Origins of nodes count positions in the inlined graph."""
    if not proto.functions:
        return proto
    _refuse_recursion(proto)
    try:
        return onnx.inliner.inline_local_functions(proto, convert_version=False)
    except Exception as error:  # the inliner's own exception types are not exported
        raise ModelError(f"the functions of the model cannot be inlined: {error}") from None


def _refuse_recursion(proto: onnx.ModelProto) -> None:
    """Raise :class:`ModelError` for a function that calls itself, directly or not.

    Such a call never ends: ONNX forbids it, and the inliner does not check.
    """
    import networkx  # slow to import, and few models have functions

    calls = networkx.DiGraph(
        ((function.domain, function.name), called)
        for function in proto.functions
        for node in function.node
        for called in _calls_of(node)
    )
    if not networkx.is_directed_acyclic_graph(calls):
        (domain, name), _ = networkx.find_cycle(calls)[0]
        raise ModelError(f"the function '{name}' of domain '{domain}' calls itself")


def _calls_of(node: onnx.NodeProto) -> set[tuple[str, str]]:
    found = {(node.domain, node.op_type)}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                found |= _calls_of(inner)
    return found
