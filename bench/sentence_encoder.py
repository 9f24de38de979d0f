"""A sentence encoder of all-MiniLM-L6-v2's sizes with seeded weights, as exporters write it."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

LAYERS, HIDDEN, HEADS, INNER = 6, 384, 12, 1536
VOCABULARY, POSITIONS, TOKENS = 30522, 512, 128
#: Standard deviations of weights and of tables
_SPREAD = 0.05


class _Graph:
    """Nodes and constants; a method for each kind of part, which returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._generator = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, name: str = "", **attributes: int | float | list[int]) -> str:
        name = name or f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, array: np.ndarray | float) -> str:
        name = f"constant{len(self.constants)}"
        array = np.asarray(array, np.float32) if isinstance(array, float) else array
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def drawn(self, *shape: int) -> str:
        return self.constant((_SPREAD * self._generator.standard_normal(shape)).astype(np.float32))

    def linear(self, x: str, terms: int, columns: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.drawn(terms, columns)), self.drawn(columns))

    def normalised(self, x: str, name: str = "") -> str:
        scale = self.constant(np.ones(HIDDEN, np.float32))
        return self.add("LayerNormalization", x, scale, self.drawn(HIDDEN), axis=-1, epsilon=1e-12, name=name)

    def heads(self, x: str, order: list[int]) -> str:
        shape = self.constant(np.array([0, 0, HEADS, HIDDEN // HEADS], np.int64))
        return self.add("Transpose", self.add("Reshape", self.linear(x, HIDDEN, HIDDEN), shape), perm=order)

    def attention(self, x: str, mask: str) -> str:
        queries, keys, values = (self.heads(x, order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        factor = self.constant(1 / math.sqrt(HIDDEN // HEADS))
        scores = self.add("Add", self.add("Mul", self.add("MatMul", queries, keys), factor), mask)
        heads = self.add("MatMul", self.add("Softmax", scores, axis=-1), values)
        shape = self.constant(np.array([0, 0, HIDDEN], np.int64))
        joined = self.add("Reshape", self.add("Transpose", heads, perm=[0, 2, 1, 3]), shape)
        return self.linear(joined, HIDDEN, HIDDEN)

    def gelu(self, x: str) -> str:
        erf = self.add("Erf", self.add("Div", x, self.constant(math.sqrt(2.0))))
        half = self.add("Mul", self.constant(0.5), self.add("Add", erf, self.constant(1.0)))
        return self.add("Mul", x, half)

    def embedded(self) -> str:
        words = self.add("Gather", self.drawn(VOCABULARY, HIDDEN), "input_ids")
        kinds = self.add("Gather", self.drawn(2, HIDDEN), "token_type_ids")
        positions = self.add("Gather", self.drawn(POSITIONS, HIDDEN), self.constant(np.arange(TOKENS)[None]))
        return self.normalised(self.add("Add", self.add("Add", words, kinds), positions))


def sentence_encoder() -> ModelProto:
    """Return the model: int64 ``input_ids``, ``attention_mask`` and ``token_type_ids`` [batch, TOKENS] to float32
    ``last_hidden_state`` [batch, TOKENS, HIDDEN]."""
    graph = _Graph()
    visible = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = graph.add("Mul", graph.add("Sub", graph.constant(1.0), visible), graph.constant(-1e9))
    mask = graph.add("Unsqueeze", hidden, graph.constant(np.array([1, 2])))
    x = graph.embedded()
    for layer in range(LAYERS):
        x = graph.normalised(graph.add("Add", graph.attention(x, mask), x))
        inner = graph.gelu(graph.linear(x, HIDDEN, INNER))
        name = "last_hidden_state" if layer == LAYERS - 1 else ""
        x = graph.normalised(graph.add("Add", graph.linear(inner, INNER, HIDDEN), x), name)
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", TOKENS)) for name in names]
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT, ("batch", TOKENS, HIDDEN))
    encoder = helper.make_graph(graph.nodes, "sentence_encoder", inputs, [output], graph.constants)
    return helper.make_model(encoder, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sentences(batch: int) -> dict[str, np.ndarray]:
    """Return the inputs of the model: sentences of ``TOKENS`` tokens."""
    ids = np.random.default_rng(1).integers(0, VOCABULARY, (batch, TOKENS), dtype=np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
