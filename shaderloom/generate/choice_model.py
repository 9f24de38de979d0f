"""The choice of a token on the device: a small ONNX model behind the decoder's, whose logits never leave the device.

It computes what :func:`.sampling.choose` does.  The greatest :data:`CANDIDATES` logits are in order there; where more
would be needed to know which tokens reach ``top_p``, or which are the ``top_k`` greatest, the result is -1, and the
host chooses.  They are looked for in two steps: the groups with the greatest maxima have all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .grammar import mask_words
from .sampling import LAST_SHIFT, MIX, SALT

#: Logits that are in order
CANDIDATES = 64
_GROUPS = 512  #: at least, of a step
_LOWEST = float(np.finfo(np.float32).min)


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, op: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """Add a node; return the name of its output, or the names of several."""
        base = name or f"{op}{len(self.nodes)}"
        names = [base] if outputs == 1 else [f"{base}.{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def parameter(self, index: int) -> str:
        """Return a parameter of each row, [batch, 1]."""
        return self.op("Slice", "parameters", self.integers(index), self.integers(index + 1), self.integers(1))


def build_choice(vocabulary: int, element_type: str, batch: int = 1) -> bytes:
    """Return the model for logits [batch, 1, vocabulary] of ``element_type``; rows have parameters of their own.

    Inputs besides: ``seen`` int32 [batch, vocabulary], the tokens that each text has; ``allowed`` uint32 [batch,
    words], a bit for each token that may be chosen; ``last`` int64 [batch, 1], the
    token that it ends with; ``parameters`` float32 [batch, 5] and ``key`` uint32 [batch, 1] of
    :class:`.sampling.Sampling`; ``top_k`` int64 [batch, 1].  Outputs: ``token`` int64 [batch, 1], and ``seen_next``.
    """
    graph = _Graph()
    flat = graph.op("Reshape", "logits", graph.integers(batch, vocabulary))
    flat = graph.op("Cast", flat, to=TensorProto.FLOAT)
    ones = graph.constant(np.ones((batch, 1)), np.int32)
    seen = graph.op("ScatterElements", "seen", "last", ones, name="seen_next", axis=1)
    penalty = graph.parameter(4)
    zero = graph.constant(0.0)
    punished = graph.op(
        "Where", graph.op("Less", flat, zero), graph.op("Mul", flat, penalty), graph.op("Div", flat, penalty)
    )
    is_seen = graph.op("Greater", seen, graph.constant(0, np.int32))
    scores = graph.op("Mul", graph.op("Where", is_seen, punished, flat), graph.parameter(0))
    scores = graph.op("Where", _allowed(graph, vocabulary), scores, graph.constant(_LOWEST))
    least, is_open = _threshold(graph, scores, vocabulary)
    noise = graph.op("Mul", _gumbel(graph, vocabulary), graph.parameter(1))
    allowed = graph.op("GreaterOrEqual", scores, least)
    drawn = graph.op("Where", allowed, graph.op("Add", scores, noise), graph.constant(_LOWEST))
    token = graph.op("ArgMax", drawn, axis=1, keepdims=1)
    graph.op("Where", is_open, graph.integers(-1), token, name="token")
    return _model(graph, batch, vocabulary, element_type)


def _allowed(graph: _Graph, vocabulary: int) -> str:
    """Return whether the bit of each token is set, [batch, vocabulary]."""
    places = graph.op("Range", *(graph.constant(each, np.int64) for each in (0, vocabulary, 1)))
    width = graph.constant(32, np.int64)
    words = graph.op("Gather", "allowed", graph.op("Div", places, width), axis=1)
    places = graph.op("Cast", graph.op("Mod", places, width), to=TensorProto.UINT32)
    bits = graph.op("BitShift", words, places, direction="RIGHT")
    return graph.op("Cast", graph.op("BitwiseAnd", bits, graph.constant(1, np.uint32)), to=TensorProto.BOOL)


def _threshold(graph: _Graph, scores: str, vocabulary: int) -> tuple[str, str]:
    """Return the least score [batch, 1] of a token that may be drawn, and whether the candidates do not tell it."""
    count = min(CANDIDATES, vocabulary)
    ordered = _greatest(graph, scores, vocabulary, count)
    first = graph.op("Slice", ordered, graph.integers(0), graph.integers(1), graph.integers(1))
    top_k, top_p = "top_k", graph.parameter(2)
    is_cut = graph.op("Greater", top_k, graph.integers(0))
    places = graph.constant([range(count)], np.int64)
    within = graph.op("Or", graph.op("Not", is_cut), graph.op("Less", places, top_k))
    weights = graph.op("Exp", graph.op("Sub", ordered, first))
    weights = graph.op("Where", within, weights, graph.constant(0.0))
    axis = graph.integers(1)
    some = graph.op("ReduceSum", weights, axis, keepdims=1)
    whole = graph.op("ReduceSum", graph.op("Exp", graph.op("Sub", scores, first)), axis, keepdims=1)
    total = graph.op("Where", is_cut, some, whole)
    summed = graph.op("CumSum", weights, graph.constant(1, np.int64), exclusive=1)
    reaches = graph.op("Less", graph.op("Div", summed, total), top_p)
    taken = graph.op("Cast", graph.op("And", within, reaches), to=TensorProto.INT64)
    taken = graph.op("Max", graph.op("ReduceSum", taken, axis, keepdims=1), graph.integers(1))
    least = graph.op("GatherElements", ordered, graph.op("Sub", taken, graph.integers(1)), axis=1)
    is_whole = graph.op("GreaterOrEqual", top_p, graph.constant(1.0))
    everything = graph.op("And", graph.op("Not", is_cut), is_whole)
    least = graph.op("Where", everything, graph.constant(_LOWEST), least)
    least = graph.op("Max", least, graph.op("Add", first, graph.parameter(3)))
    beyond = graph.op("Greater", top_k, graph.integers(count))
    cut_by_p = graph.op("And", graph.op("Not", is_cut), graph.op("Not", is_whole))
    unreached = graph.op("Less", graph.op("Div", some, total), top_p)
    if count == vocabulary:
        return least, graph.constant([[False]], np.bool_)
    return least, graph.op("Or", beyond, graph.op("And", cut_by_p, unreached))


def _greatest(graph: _Graph, values: str, size: int, count: int) -> str:
    """Return the ``count`` greatest of each row of [batch, size] in descending order."""
    width = size // _GROUPS
    if width >= 2 and size > 4 * count * width:
        groups = -(-size // width)
        pads = graph.integers(0, 0, 0, groups * width - size)
        padded = graph.op("Pad", values, pads, graph.constant(_LOWEST))
        members = graph.op("Reshape", padded, graph.integers(0, groups, width))
        best = graph.op("ReduceMax", members, graph.integers(2), keepdims=0)
        _, chosen = graph.op("TopK", best, graph.integers(count), outputs=2)
        places = graph.op("Unsqueeze", chosen, graph.integers(2))
        members = graph.op("GatherND", members, places, batch_dims=1)
        return _greatest(graph, graph.op("Reshape", members, graph.integers(0, count * width)), count * width, count)
    ordered, _ = graph.op("TopK", values, graph.integers(count), outputs=2)
    return ordered


def _gumbel(graph: _Graph, vocabulary: int) -> str:
    """Return the noise [batch, vocabulary] of :func:`.sampling.uniform`'s numbers."""

    def unsigned(value: int) -> str:
        return graph.constant(value, np.uint32)

    def shifted(value: str, by: int) -> str:
        return graph.op("BitShift", value, unsigned(by), direction="RIGHT")

    def mixed(value: str) -> str:
        for shift, factor in MIX:
            value = graph.op("Mul", graph.op("BitwiseXor", value, shifted(value, shift)), unsigned(factor))
        return graph.op("BitwiseXor", value, shifted(value, LAST_SHIFT))

    places = graph.op("Range", *(graph.constant(each, np.int64) for each in (0, vocabulary, 1)))
    numbers = mixed(graph.op("Add", graph.op("Cast", places, to=TensorProto.UINT32), "key"))
    salted = graph.op("BitwiseXor", "key", unsigned(SALT))
    numbers = shifted(mixed(graph.op("BitwiseXor", numbers, salted)), 9)
    halves = graph.op("Add", graph.op("Cast", numbers, to=TensorProto.FLOAT), graph.constant(0.5))
    uniform = graph.op("Mul", halves, graph.constant(2.0**-23))
    return graph.op("Neg", graph.op("Log", graph.op("Neg", graph.op("Log", uniform))))


def _model(graph: _Graph, batch: int, vocabulary: int, element_type: str) -> bytes:
    kinds = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
    ports = {
        "logits": (kinds[element_type], [batch, 1, vocabulary]),
        "seen": (TensorProto.INT32, [batch, vocabulary]),
        "allowed": (TensorProto.UINT32, [batch, mask_words(vocabulary)]),
        "last": (TensorProto.INT64, [batch, 1]),
        "parameters": (TensorProto.FLOAT, [batch, 5]),
        "key": (TensorProto.UINT32, [batch, 1]),
        "top_k": (TensorProto.INT64, [batch, 1]),
    }
    results = {"token": (TensorProto.INT64, [batch, 1]), "seen_next": (TensorProto.INT32, [batch, vocabulary])}
    inputs, outputs = (
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in each.items()]
        for each in (ports, results)
    )
    built = helper.make_graph(graph.nodes, "choice", inputs, outputs, graph.constants)
    model = helper.make_model(built, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    return bytes(model.SerializeToString())
