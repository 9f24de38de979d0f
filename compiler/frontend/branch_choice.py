"""One side of a merged decoder: an exporter's If on a flag, replaced by the nodes of one branch."""

from __future__ import annotations

from .messages import GraphProto, NodeProto
from .proto_builder import ProtoBuilder, nodes_within
from .topology import names_read


def take_branch(graph: GraphProto, flag: str, *, value: bool) -> bool:
    """Replace the If of ``graph`` on its input ``flag`` by the branch for ``value``; return whether there was one.

    Names of values are unique in a graph and those nested in it, so that the nodes of a branch take the place of the
    If.  ``flag`` is removed, and so are other inputs that nothing reads then.  A graph in which something else reads
    ``flag`` stays as it is.
    """
    places = [place for place, node in enumerate(graph.node) if flag in node.input and node.op_type == "If"]
    if sum(flag in node.input for node in nodes_within(graph)) != 1 or not places:
        return False
    choice = NodeProto.FromString(graph.node[places[0]].SerializeToString())
    del graph.node[places[0]]
    wanted = "then_branch" if value else "else_branch"
    branch = next(attribute.g for attribute in choice.attribute if attribute.name == wanted)
    graph.node.extend(branch.node)
    graph.initializer.extend(branch.initializer)
    graph.sparse_initializer.extend(branch.sparse_initializer)
    builder = ProtoBuilder(graph, "branch")
    for inner, outer in zip(branch.output, choice.output):
        if inner.name != outer:
            builder.node("Identity", [inner.name], outer)
    read = {port.name for port in graph.output}.union(*(names_read(node) for node in graph.node))
    for port in [each for each in graph.input if each.name not in read]:
        graph.input.remove(port)
    return True
