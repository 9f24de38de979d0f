"""Operators of the standard that are defined by other operators: those without a lowering of their own are replaced.

ONNX gives many operators a *function body*.  What the registry does not have becomes a call of a model-local function
with that body, which :func:`~.functions.inline_functions` then takes apart like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ops.registry import registry
from .messages import AttributeProto, FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto
from .schemas import has_body

#: Domain of the functions made here; no file has it
DOMAIN = "loom.functions"
#: Bodies inside bodies
MAX_DEPTH = 8


def define_standard_functions(proto: ModelProto, opsets: Mapping[str, int]) -> bool:
    """Let nodes of the main graph that have only a function body call a function of the model; whether there are any.

    Nodes that have neither a lowering nor a body stay as they are: the importer refuses them.
    """
    names = {(function.domain, function.name) for function in proto.functions}
    types: dict[str, TypeProto] | None = None
    changed = False
    for node in proto.graph.node:
        schema = _schema(node, opsets, names)
        if schema is None:
            continue
        if types is None and schema.has_context_dependent_function:
            types = _element_types(proto)
        body = _body(node, schema, opsets[_domain(node.domain)], types or {})
        if body is None:
            continue
        body.domain, body.name = DOMAIN, f"{node.op_type}_{len(proto.functions)}"
        _give_defaults(node, schema)
        _drop_absent_attributes(node, body)
        node.domain, node.op_type = body.domain, body.name
        proto.functions.append(body)
        changed = True
    if changed and DOMAIN not in {entry.domain for entry in proto.opset_import}:
        proto.opset_import.append(OperatorSetIdProto(domain=DOMAIN, version=1))
    return changed


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _schema(node: NodeProto, opsets: Mapping[str, int], functions: set[tuple[str, str]]) -> Any:
    """Return the schema of a node that the registry lacks, if that schema has a function body, else None."""
    domain = _domain(node.domain)
    if registry.find(node.op_type, domain) is not None or (node.domain, node.op_type) in functions:
        return None
    if domain not in opsets or not has_body(node.op_type, domain, opsets[domain]):
        return None
    import onnx.defs  # few models have such nodes

    return onnx.defs.get_schema(node.op_type, opsets[domain], domain)


def _body(node: NodeProto, schema: Any, opset: int, types: Mapping[str, TypeProto]) -> FunctionProto | None:
    """Return the newest function body that is not newer than the model's opset, or None."""
    if schema.has_function:
        versions = [version for version in schema.function_opset_versions if version <= opset]
        data = schema.get_function_with_opset_version(max(versions)) if versions else None
    else:
        versions = [version for version in schema.context_dependent_function_opset_versions if version <= opset]
        operands = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
        data = (
            schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), operands)
            if versions
            else None
        )
    if not data:
        return None
    body = FunctionProto.FromString(data)
    for entry in body.opset_import:
        if _domain(entry.domain) == "":
            entry.version = opset
    return body


def _element_types(proto: ModelProto) -> dict[str, TypeProto]:
    """Map value names to their types, as far as shape inference determines them."""
    import onnx.helper
    import onnx.shape_inference

    inferred = onnx.shape_inference.infer_shapes(proto)
    graph = inferred.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return types


def _give_defaults(node: NodeProto, schema: Any) -> None:
    """Add the schema's defaults for attributes that the node omits, since function bodies refer to them by name."""
    present = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in present and attribute.default_value.type != AttributeProto.UNDEFINED:
            node.attribute.append(attribute.default_value)


def _drop_absent_attributes(node: NodeProto, body: FunctionProto) -> None:
    """Remove attributes that the body does not declare: a body built for this node already holds their values."""
    declared = set(body.attribute) | {attribute.name for attribute in body.attribute_proto}
    remaining = [attribute for attribute in node.attribute if attribute.name in declared or not declared]
    if len(remaining) != len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(remaining)
