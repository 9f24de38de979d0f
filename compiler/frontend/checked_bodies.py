"""A row of index ranges as one more result of If, Loop and Scan: of the node, of its bodies and of its message.

A branch gives its row; a loop carries one, so that it is the first of all iterations that is out of range.  The message
is what the cpu runs, which checks indices by itself: there the row is the one without indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...runtime.plan.checked_operand import INDEX_RANGES
from ...runtime.plan.dtypes import INT64
from ..ops.internal.index_range import ROW_WITHOUT_INDICES
from .messages import AttributeProto, GraphProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto
from .model import ImportedBlock, ImportedGraph, ImportedNode, ImportedPort

#: The constant of the main graph with which loops begin, and that branches without indices give
NO_INDICES = f"{INDEX_RANGES} of nothing"


def can_give_row(node: ImportedNode) -> bool:
    """Return whether there is a place for one more result of the node, or nothing that has one.

    Scan as opset 8 had it has none, as all its operands have an axis for the batch.
    """
    if node.op == "If":
        return len({len(block.graph.outputs) for block in node.blocks.values()}) == 1
    return node.op != "Scan" or (node.origin.opset > 8 and "num_scan_inputs" in node.attributes)


def no_rows(name: str, count: int) -> NodeProto:
    """Return what the cpu computes in place of ``count`` rows: rows without indices."""
    values = ROW_WITHOUT_INDICES.repeat(count, axis=0)
    tensor = TensorProto(data_type=TensorProto.INT64, dims=values.shape, int64_data=values.reshape(-1).tolist())
    attribute = AttributeProto(name="value", type=AttributeProto.TENSOR, t=tensor)
    return NodeProto(op_type="Constant", output=[name], attribute=[attribute])


def with_row(
    node: ImportedNode, bodies: Mapping[str, tuple[ImportedGraph, str]], state: str, result: str
) -> ImportedNode:
    """Return the node with the result ``result``; ``bodies`` come with the names of their rows.

    The body of a loop gets the row of the iterations before as its input ``state``.
    """
    assert node.proto is not None, "it is a node of a file"
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    blocks = dict(node.blocks)
    for attribute in proto.attribute:
        if attribute.name in bodies:
            graph, row = bodies[attribute.name]
            blocks[attribute.name] = ImportedBlock(graph.name, partial(_body, node, graph, state, row))
            _extend_message(attribute.g, node, state, row)
    inputs = node.inputs if node.op == "If" else _inserted(node.inputs, _input_of_node(node), NO_INDICES)
    outputs = _inserted(node.outputs, _carried(node), result)
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.extend(outputs)
    return replace(node, inputs=inputs, outputs=outputs, blocks=blocks, proto=proto)


def _body(node: ImportedNode, graph: ImportedGraph, state: str, row: str) -> ImportedGraph:
    first_input, first_output = _before_carried(node)
    shape = ROW_WITHOUT_INDICES.shape
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    if node.op != "If":
        inputs.insert(first_input + _carried(node), ImportedPort(state, INT64, shape))
    outputs.insert(first_output + _carried(node), ImportedPort(row, INT64, shape))
    return replace(graph, inputs=tuple(inputs), outputs=tuple(outputs))


def _extend_message(body: GraphProto, node: ImportedNode, state: str, row: str) -> None:
    """Make a body's message give a row: that of its input ``state``, or one without indices."""
    first_input, first_output = _before_carried(node)
    host_row = f"{row} of the host"
    if node.op == "If":
        body.node.append(no_rows(host_row, 1))
    else:
        body.input.insert(first_input + _carried(node), _value_info(state))
        body.node.append(NodeProto(op_type="Identity", input=[state], output=[host_row]))
    body.output.insert(first_output + _carried(node), _value_info(host_row))


def _value_info(name: str) -> ValueInfoProto:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dimension(dim_value=size) for size in ROW_WITHOUT_INDICES.shape])
    tensor = TypeProto.Tensor(elem_type=TensorProto.INT64, shape=shape)
    return ValueInfoProto(name=name, type=TypeProto(tensor_type=tensor))


def _carried(node: ImportedNode) -> int:
    """Return the number of results before the row: values that a loop carries, or all outputs of a branch."""
    if node.op == "Scan":
        return len(node.inputs) - int(node.attributes["num_scan_inputs"])
    graph = next(iter(node.blocks.values())).graph
    return len(graph.inputs) - 2 if node.op == "Loop" else len(graph.outputs)


def _before_carried(node: ImportedNode) -> tuple[int, int]:
    """Return how many inputs and outputs of a body come before those that are carried."""
    return (2, 1) if node.op == "Loop" else (0, 0)


def _input_of_node(node: ImportedNode) -> int:
    """Return the position of the first row among the operands of a loop: a Loop may leave some of them out."""
    return max(2, len(node.inputs)) if node.op == "Loop" else _carried(node)


def _inserted(names: Sequence[str], position: int, name: str) -> tuple[str, ...]:
    """Return ``names`` with ``name`` at ``position``, and with empty names up to there."""
    padded = [*names, *[""] * (position - len(names))]
    return (*padded[:position], name, *padded[position:])
