"""Cross-check a node with onnx's reference evaluator where Shaderloom and another reference disagree.

The other runtime may be wrong: onnxruntime's products of uint8 and int8 saturate on processors without VNNI, and a file
of expected tensors may be stale.
"""

from __future__ import annotations

import numpy as np
import onnx

from ..compiler.frontend.topology import names_read
from ..cpu.segment import type_of
from ..runtime.plan.errors import UnsupportedError
from .expectations import Expectations
from .graph_instance import GraphInstance
from .onnx_model import Constant
from .references import EvaluatorReference, Tensors


def second_opinion(expected: Expectations, instance: GraphInstance, tensor: str) -> np.ndarray | None:
    """Recompute a tensor by onnx's evaluator, from the operands that the reference has.

    Returns None if the evaluator is itself the reference or does not run the node, or if an operand is unknown.
    """
    graph = expected.source.graphs[instance.graph]
    index = graph.producers.get(tensor)
    if index is None or isinstance(expected.reference, EvaluatorReference):
        return None
    node = graph.proto.node[index]
    operands = _operands(expected, instance, node)
    if operands is None:
        return None
    values, constants = operands
    types = {name: type_of(value) for name, value in values.items()}
    try:
        results = EvaluatorReference(expected.source).run(expected.source.of_nodes([node], types, constants), values)
    except UnsupportedError:
        return None
    result = results.get(tensor)
    return result if isinstance(result, np.ndarray) else None


def _operands(
    expected: Expectations, instance: GraphInstance, node: onnx.NodeProto
) -> tuple[Tensors, dict[str, Constant]] | None:
    """Return a node's operands: tensors of the reference, and constants of the model; None if one is unknown."""
    values: Tensors = {}
    constants: dict[str, Constant] = {}
    for name in dict.fromkeys(names_read(node)):
        home = expected.source.defining_graph(instance.graph, name)
        producer_instance = None if home is None else expected.source.instance_of(home.path, instance.iterations)
        if home is None or producer_instance is None:
            return None
        constant = home.sources.get(name)
        if home.outer is None and name in expected.feeds:
            values[name] = expected.feeds[name]
        elif constant is not None:
            constants[name] = constant
        else:
            expected.expect([name], producer_instance)
            value = expected.value(name, producer_instance)
            if value is None:
                return None
            values[name] = value
    return values, constants
