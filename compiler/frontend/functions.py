"""Model-local functions: calls are replaced by the bodies before anything else looks at the nodes.

onnx's inliner leaves calls of a function that imports another opset than the model.  Where all operators of the
function are the same at both, it is taken to import that of the model; others stay calls, which the provider cpu runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ...runtime.plan.errors import LimitError, ModelError
from .messages import ModelProto, NodeProto
from .schemas import canonical, same_at

Name = tuple[str, str]  #: domain and name of a function


def inline_functions(proto: ModelProto, max_nodes: int) -> ModelProto:
    """Inline the calls of the model's own functions; node origins count positions in the inlined graph.

    Raises :class:`LimitError` if the result would have more than ``max_nodes`` nodes.
    """
    if not proto.functions:
        return proto
    import onnx.inliner

    _check_size(proto, max_nodes)
    try:
        return onnx.inliner.inline_local_functions(_with_opsets_of_model(proto), convert_version=False)
    except Exception as error:  # the inliner's own exception types are not exported
        raise ModelError(f"the functions of the model cannot be inlined: {error}") from None


def _check_size(proto: ModelProto, max_nodes: int) -> None:
    """Raise :class:`LimitError` for too many nodes, and :class:`ModelError` for a function that calls itself.

    Functions that call the one below twice double with each; one that calls itself, directly or not, never ends: ONNX
    forbids it, and the inliner does not check.
    """
    import networkx  # slow to import, and few models have functions

    bodies: dict[Name, Counter[Name]] = {
        (function.domain, function.name): _operators(function.node) for function in proto.functions
    }
    calls = networkx.DiGraph((caller, called) for caller, body in bodies.items() for called in body)
    calls.add_nodes_from(bodies)
    if not networkx.is_directed_acyclic_graph(calls):
        (domain, name), _ = networkx.find_cycle(calls)[0]
        raise ModelError(f"the function '{name}' of domain '{domain}' calls itself")
    sizes: dict[Name, int] = {}
    for name in reversed(list(networkx.topological_sort(calls))):
        sizes[name] = _size(bodies[name], sizes) if name in bodies else 1
    total = _size(_operators(proto.graph.node), sizes)
    if total > max_nodes:
        raise LimitError(
            f"the model has {total:,} nodes once its functions are inlined; the cap is {max_nodes:,}",
            hint="raise caps.nodes",
        )


def _with_opsets_of_model(proto: ModelProto) -> ModelProto:
    """Return the model whose functions import the model's opsets where these have the operators of the function."""
    result = ModelProto()
    result.CopyFrom(proto)
    versions = {canonical(each.domain): each.version for each in proto.opset_import}
    own = {(function.domain, function.name) for function in proto.functions}
    for function in result.functions:
        theirs = {canonical(each.domain): each.version for each in function.opset_import}
        differing = {domain for domain, version in theirs.items() if versions.get(domain, version) != version}
        used = [(canonical(domain), op) for domain, op in _operators(function.node).keys() - own]
        if all(same_at(op, domain, theirs[domain], versions[domain]) for domain, op in used if domain in differing):
            for each in function.opset_import:
                each.version = versions.get(canonical(each.domain), each.version)
    return result


def _size(body: Counter[Name], sizes: Mapping[Name, int]) -> int:
    return sum(count * sizes.get(called, 1) for called, count in body.items())


def _operators(nodes: Iterable[NodeProto]) -> Counter[Name]:
    """Count the calls of each operator or function in ``nodes``, nested graphs included."""
    counts: Counter[Name] = Counter()
    stack = [nodes]
    while stack:
        for node in stack.pop():
            counts[node.domain, node.op_type] += 1
            stack += [graph.node for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
    return counts
