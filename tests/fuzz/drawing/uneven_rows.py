"""Models of batches whose rows have different lengths, with every size declared: sequences, padded prompts, caches.

A row's length is an element, and the sizes around it are those of a run.  What is expected is onnxruntime's, of the
elements that count: what a padded token gives is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from .source import Drawn, Source, choose

#: The largest batch, sequence and cache
BATCH, LONGEST, CAPACITY = 3, 7, 12
HEADS, SHARED, SIZE = 4, 2, 8
TOLERANCE = 2e-5

Feeds = dict[str, np.ndarray]


@dataclass
class UnevenModel:
    """``counts`` says which elements of an output count, by its name and the feeds; by default all do."""

    proto: onnx.ModelProto
    dynamic: dict[str, tuple[int, int]]
    feeds: list[Feeds]
    counts: Callable[[str, Feeds], np.ndarray | None]

    def check(self, results: Sequence[Sequence[np.ndarray]]) -> None:
        """Compare the outputs for each of the feeds with onnxruntime's."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(self.proto.SerializeToString(), options)
        names = [port.name for port in self.proto.graph.output]
        for feeds, outputs in zip(self.feeds, results, strict=True):
            for name, found, expected in zip(names, outputs, session.run(None, feeds), strict=True):
                counted = self.counts(name, feeds)
                assert found.shape == expected.shape, name
                error = np.abs(found - expected) if counted is None else np.abs(found - expected)[counted]
                assert error.max(initial=0.0) <= TOLERANCE * max(np.abs(expected).max(initial=0.0), 1), name


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "uneven",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _lengths(source: Source, batch: int, longest: int) -> np.ndarray:
    """At least one element each, and one row of all of them."""
    found = [source.integer(1, longest) for _ in range(batch)]
    found[source.integer(0, batch - 1)] = longest
    return np.array(found, np.int32)


def _sizes(source: Source) -> list[tuple[int, int]]:
    """The batch and the longest row of each run: a drawn one, one of single tokens, and a single row."""
    return [
        (source.integer(1, BATCH), source.integer(2, LONGEST)),
        (source.integer(1, BATCH), 1),
        (1, source.integer(1, LONGEST)),
    ]


def _all(name: str, feeds: Feeds) -> np.ndarray | None:
    return None


def sequences(source: Source, generator: np.random.Generator) -> UnevenModel:
    """A recurrent network, or a reversal, of rows that end at their own step."""
    operator = choose(source, ["ReverseSequence", "RNN", "GRU", "LSTM"])
    inputs = {"x": (TensorProto.FLOAT, ["t", "b", 5])}
    weights: dict[str, np.ndarray] = {}
    if operator == "ReverseSequence":
        inputs["lengths"] = (TensorProto.INT64, ["b"])
        nodes, outputs = [helper.make_node(operator, ["x", "lengths"], ["y"], time_axis=0, batch_axis=1)], ["y"]
    else:
        inputs["lengths"] = (TensorProto.INT32, ["b"])
        direction = choose(source, ["forward", "reverse", "bidirectional"])
        ways, gates = 1 + (direction == "bidirectional"), {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]
        weights = {
            "w": generator.standard_normal((ways, gates * 4, 5)).astype(np.float32) / 3,
            "r": generator.standard_normal((ways, gates * 4, 4)).astype(np.float32) / 3,
        }
        outputs = ["y", "last"]
        nodes = [
            helper.make_node(operator, ["x", "w", "r", "", "lengths"], outputs, hidden_size=4, direction=direction)
        ]
    kind = helper.tensor_dtype_to_np_dtype(inputs["lengths"][0])
    feeds = [
        {
            "x": generator.standard_normal((longest, batch, 5)).astype(np.float32),
            "lengths": _lengths(source, batch, longest).astype(kind),
        }
        for batch, longest in _sizes(source)
    ]
    return UnevenModel(_model(nodes, inputs, outputs, weights), {"t": (1, 9), "b": (1, 4)}, feeds, _all)


def padded_keys(source: Source, generator: np.random.Generator) -> UnevenModel:
    """MultiHeadAttention over keys that are padded at the end of a row."""
    as_lengths = bool(source.integer(0, 1))
    width = HEADS * SIZE
    inputs = {
        "q": (TensorProto.FLOAT, ["b", "s", width]),
        "k": (TensorProto.FLOAT, ["b", "t", width]),
        "v": (TensorProto.FLOAT, ["b", "t", width]),
        "mask": (TensorProto.INT32, ["b"] if as_lengths else ["b", "t"]),
    }
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", "", "mask"], ["y"], domain="com.microsoft", num_heads=HEADS
    )
    feeds = []
    for batch, longest in _sizes(source):
        lengths, queries = _lengths(source, batch, longest), choose(source, [longest, 1, 3])
        draw = [
            generator.standard_normal((batch, size, width)).astype(np.float32) for size in (queries, longest, longest)
        ]
        mask = lengths if as_lengths else (np.arange(longest) < lengths[:, None]).astype(np.int32)
        feeds.append({**dict(zip("qkv", draw)), "mask": mask})
    dynamic = {"b": (1, 4), "s": (1, 9), "t": (1, 9)}
    return UnevenModel(_model([node], inputs, ["y"], {}), dynamic, feeds, _all)


def grouped_queries(source: Source, generator: np.random.Generator) -> UnevenModel:
    """GroupQueryAttention with a cache of fixed size: padded prompts, and later tokens of rows of different lengths."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "index"], ["count"], axis=0),
        helper.make_node("Cast", ["count"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "lengths", "total"],
            ["y", "present_k", "present_v"],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=SHARED,
        ),
    ]
    inputs = {"mask": (TensorProto.INT64, ["b", "total"])}
    inputs.update(
        (name, (TensorProto.FLOAT, ["b", "s", heads * SIZE])) for name, heads in zip("qkv", (HEADS, SHARED, SHARED))
    )
    inputs.update((name, (TensorProto.FLOAT, ["b", SHARED, CAPACITY, SIZE])) for name in ("past_k", "past_v"))
    feeds = []
    for batch, longest in _sizes(source):
        lengths = _lengths(source, batch, longest)
        queries = choose(source, [longest, 1])
        each: Feeds = {"mask": (np.arange(longest) < lengths[:, None]).astype(np.int64)}
        for name, (_, shape) in list(inputs.items())[1:]:
            sizes = [{"b": batch, "s": queries}.get(size, size) for size in shape]
            each[name] = generator.standard_normal(sizes).astype(np.float32)
        feeds.append(each)

    def counts(name: str, each: Feeds) -> np.ndarray:
        batch, queries, width = each["q"].shape
        lengths = each["mask"].sum(1)
        if name == "y":
            return np.broadcast_to((np.arange(queries) < lengths[:, None])[..., None], (batch, queries, width))
        cached = np.arange(CAPACITY) < lengths[:, None]
        return np.broadcast_to(cached[:, None, :, None], (batch, SHARED, CAPACITY, SIZE))

    proto = _model(nodes, inputs, ["y", "present_k", "present_v"], {"one": np.array([1]), "index": np.array(1)})
    return UnevenModel(proto, {"b": (1, 4), "s": (1, 9), "total": (1, CAPACITY)}, feeds, counts)


DRAWINGS = (sequences, padded_keys, grouped_queries)


@st.composite
def uneven_models(draw: Callable[[st.SearchStrategy[Any]], Any]) -> UnevenModel:
    source = Drawn(draw)
    drawing = choose(source, DRAWINGS)
    return drawing(source, np.random.default_rng(source.integer(0, 2**16)))
