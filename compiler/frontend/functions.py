"""Model-local functions: calls are replaced by the bodies before anything else looks at the nodes."""

from __future__ import annotations

import onnx
import onnx.inliner

from ...runtime.plan.errors import ModelError

_Key = tuple[str, str]


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
    """A function that calls itself, directly or not, never ends: ONNX forbids it, and the inliner does not check."""
    calls: dict[_Key, set[_Key]] = {}
    for function in proto.functions:
        calls.setdefault((function.domain, function.name), set()).update(
            key for node in function.node for key in _calls_of(node)
        )
    done: set[_Key] = set()
    for start in calls:
        path: dict[_Key, None] = {}
        stack: list[tuple[_Key, bool]] = [(start, False)]
        while stack:
            key, leaving = stack.pop()
            if leaving:
                path.pop(key, None)
                done.add(key)
            elif key in path:
                raise ModelError(f"the function '{key[1]}' of domain '{key[0]}' calls itself")
            elif key in calls and key not in done:
                path[key] = None
                stack.append((key, True))
                stack.extend((called, False) for called in calls[key])


def _calls_of(node: onnx.NodeProto) -> set[_Key]:
    found = {(node.domain, node.op_type)}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                found |= _calls_of(inner)
    return found
