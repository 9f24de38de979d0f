"""Types of the values of a model, by onnx's inference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import helper

from ..compiler.frontend.topology import graphs_of, names_read
from ..runtime.plan.dtypes import from_onnx
from ..runtime.plan.errors import UnsupportedError

#: Operators whose inference in onnx reads the type of an operand that may have none, which ends the process
_UNGUARDED = {("", "RegexFullMatch"), ("ai.onnx.ml", "DictVectorizer"), ("ai.onnx.ml", "LabelEncoder")}


def value_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Return the types of the values of the main graph, as far as they are declared or inference provides them."""
    graph = model.graph
    types = {value.name: value.type for value in graph.input}
    nodes = [*graph.node, *(node for function in model.functions for node in function.node)]
    if any(map(_is_unguarded, nodes)) or _hold_unguarded(nodes):
        _infer_each(model, types)
    else:
        types.update(_inferred(model))
    return types


def on_device(kind: onnx.TypeProto) -> bool:
    """Return whether a device can hold values of this type; true where the type is not known."""
    if kind.WhichOneof("value") != "tensor_type":
        return kind.WhichOneof("value") is None
    try:
        return not kind.tensor_type.elem_type or from_onnx(kind.tensor_type.elem_type).on_device
    except UnsupportedError:
        return False


def _is_unguarded(node: onnx.NodeProto) -> bool:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type) in _UNGUARDED


def _hold_unguarded(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Return whether a graph nested in the nodes has such an operator."""
    pending = [graph for node in nodes for graph in graphs_of(node)]
    while pending:
        for node in pending.pop().node:
            if _is_unguarded(node):
                return True
            pending.extend(graphs_of(node))
    return False


def _infer_each(model: onnx.ModelProto, types: dict[str, onnx.TypeProto]) -> None:
    """Add the types of the results of each node whose operands have types, as far as inference provides them."""
    graph = model.graph
    for tensor in graph.initializer:
        types.setdefault(tensor.name, helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
    types.update(_declared((*graph.value_info, *graph.output)))
    for node in graph.node:
        operands = {name: types.get(name) for name in names_read(node)}
        if _hold_unguarded([node]) or not all(kind and kind.WhichOneof("value") for kind in operands.values()):
            continue
        inputs = [onnx.ValueInfoProto(name=name, type=kind) for name, kind in operands.items()]
        single = onnx.GraphProto(name="node", node=[node], input=inputs)
        types.update(
            _inferred(onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=single))
        )


def _inferred(model: onnx.ModelProto) -> Mapping[str, onnx.TypeProto]:
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # inference fails on an unknown model
        return {}
    return _declared((*graph.value_info, *graph.output))


def _declared(values: Iterable[onnx.ValueInfoProto]) -> dict[str, onnx.TypeProto]:
    return {value.name: value.type for value in values}
