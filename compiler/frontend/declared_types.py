"""Element types that a file declares."""

from __future__ import annotations

from .messages import GraphProto, TensorProto, TypeProto

_HALVES = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
#: Attributes that name the type of a result
_TYPES = ("to", "dtype", "output_dtype")


def type_text(kind: TypeProto) -> str:
    """Return a type in ONNX's words: ``tensor(float)``, ``seq(map(int64,tensor(float)))``."""
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        name = "seq" if which == "sequence_type" else "optional"
        return f"{name}({type_text(getattr(kind, which).elem_type)})"
    if which == "map_type":
        return f"map({_element_text(kind.map_type.key_type)},{type_text(kind.map_type.value_type)})"
    if which in ("tensor_type", "sparse_tensor_type"):
        return f"{which.removesuffix('_type')}({_element_text(getattr(kind, which).elem_type)})"
    return "tensor(undefined)"


def _element_text(code: int) -> str:
    names = TensorProto.DataType
    return str(names.Name(code)).lower() if code in names.values() else f"undefined {code}"


def declares_halves(graph: GraphProto) -> bool:
    """Return whether an input, an output, a constant or a result that an attribute types is float16 or bfloat16.

    Nested graphs are looked at, functions are not: they have been inlined.
    """
    codes = {port.type.tensor_type.elem_type for port in (*graph.input, *graph.output)}
    codes.update(tensor.data_type for tensor in graph.initializer)
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    codes.update(attribute.t.data_type for attribute in attributes)
    codes.update(attribute.i for attribute in attributes if attribute.name in _TYPES)
    return bool(codes & _HALVES) or any(
        declares_halves(inner)
        for attribute in attributes
        for inner in (attribute.g, *attribute.graphs)
        if inner.node or inner.output
    )
