"""Element types that a file declares."""

from __future__ import annotations

import onnx

_HALVES = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
#: Attributes that name the type of a result
_TYPES = ("to", "dtype", "output_dtype")


def declares_halves(graph: onnx.GraphProto) -> bool:
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
