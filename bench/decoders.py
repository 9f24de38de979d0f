"""Decoders with weights of 4 bits as onnxruntime's exporters write them, of published sizes, with random weights.

Needs numpy and onnx alone, so that it runs on a machine whose interpreter comes with other packages than ours.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    import onnx

#: Terms of a product that share a scale
BLOCK = 32
#: Spread of the codes around 8, their zero point
SPREAD = 3.0
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder of ``layers`` layers.

    ``heads`` heads of queries and ``shared`` heads of keys and values have ``head`` elements each.  ``is_tied``: the
    embedding is the weight of the logits; ``has_bias``: queries, keys and values have one.
    """

    name: str
    hidden: int
    inner: int
    layers: int
    heads: int
    shared: int
    head: int
    vocabulary: int
    is_tied: bool
    has_bias: bool = False
    theta: float = 5e5

    def cache(self, rows: int) -> tuple[int, ...]:
        """Shape of the keys, or values, of a layer."""
        return (1, self.shared, rows, self.head)


DECODERS = {
    decoder.name: decoder
    for decoder in (
        Decoder("Qwen2.5-0.5B", 896, 4864, 24, 14, 2, 64, 151936, is_tied=True, has_bias=True, theta=1e6),
        Decoder("Llama-3.2-1B", 2048, 8192, 16, 32, 8, 64, 128256, is_tied=True),
        Decoder("Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128, 128256, is_tied=False),
    )
}


class _Weights:
    """Writes tensors to a file of external data, all cut from one block of random numbers, each at another place."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.tensors: list[onnx.TensorProto] = []
        self._file, self._name, self._at = file, name, 0
        generator = np.random.default_rng(0)
        codes = np.clip(np.rint(generator.standard_normal((1 << 22) - 5, np.float32) * SPREAD) + 8, 0, 15)
        self._codes = codes.astype(np.uint8) | np.roll(codes.astype(np.uint8), 1) << 4
        self._uniform = generator.uniform(0.75, 1.25, (1 << 20) - 3).astype(np.float32)
        self._normal = generator.standard_normal((1 << 20) - 7, np.float32)

    def codes(self, name: str, shape: tuple[int, ...]) -> None:
        self._add(name, shape, self._codes)

    def spread(self, name: str, shape: tuple[int, ...], scale: float) -> None:
        """Add halves from 0.75 to 1.25 times ``scale``."""
        self._add(name, shape, (self._uniform * scale).astype(np.float16))

    def normal(self, name: str, shape: tuple[int, ...], spread: float) -> None:
        """Add normal halves around 0."""
        self._add(name, shape, (self._normal * spread).astype(np.float16))

    def array(self, name: str, array: np.ndarray) -> None:
        self._add(name, array.shape, np.ascontiguousarray(array).reshape(-1))

    def _add(self, name: str, shape: tuple[int, ...], source: np.ndarray) -> None:
        import onnx

        kind = onnx.helper.np_dtype_to_tensor_dtype(source.dtype)
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=shape, data_location=onnx.TensorProto.EXTERNAL)
        left = math.prod(shape)
        entries = (("location", self._name), ("offset", self._at), ("length", left * source.itemsize))
        for key, value in entries:
            tensor.external_data.add(key=key, value=str(value))
        self._at += left * source.itemsize
        start = 7919 * len(self.tensors) % source.size if left > source.size else 0
        while left:
            piece = source[start : start + left]
            self._file.write(piece.data)
            left, start = left - piece.size, 0
        self.tensors.append(tensor)


class _Graph:
    """The nodes of a decoder; a method for each of its parts."""

    def __init__(self, decoder: Decoder, weights: _Weights, accuracy: int) -> None:
        self.decoder, self.weights, self.accuracy = decoder, weights, accuracy
        self.nodes: list[onnx.NodeProto] = []

    def add(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        import onnx

        name = next(filter(None, outputs)) + "/node"
        self.nodes.append(onnx.helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def static(self, name: str, array: np.ndarray) -> None:
        """Add a constant whose elements shapes depend on: it lies in the model's file."""
        import onnx

        self.add("Constant", [], [name], value=onnx.numpy_helper.from_array(array))

    def product(self, x: str, name: str, columns: int, terms: int, gain: float = 1.0, out: str = "") -> str:
        """Multiply by a new weight; ``gain`` is the spread of results where that of ``x`` is 1."""
        self.quantised(name, columns, terms, gain / (SPREAD * math.sqrt(terms)))
        return self.add(
            "MatMulNBits", [x, f"{name}.codes", f"{name}.scales"], [out or name], MICROSOFT,
            K=terms, N=columns, bits=4, block_size=BLOCK, accuracy_level=self.accuracy,
        )  # fmt: skip

    def quantised(self, name: str, columns: int, terms: int, scale: float) -> None:
        self.weights.codes(f"{name}.codes", (columns, terms // BLOCK, BLOCK // 2))
        self.weights.spread(f"{name}.scales", (columns, terms // BLOCK), scale)

    def normalised(self, x: str, branch: str, name: str) -> tuple[str, str]:
        """Return the norm of a sum, and the sum; without ``branch`` of ``x`` alone."""
        self.weights.spread(f"{name}.weight", (self.decoder.hidden,), 1.0)
        if not branch:
            op, inputs, sum_name = "SimplifiedLayerNormalization", [x, f"{name}.weight"], x
            return self.add(op, inputs, [name], axis=-1, epsilon=1e-6, stash_type=1), sum_name
        op, inputs = "SkipSimplifiedLayerNormalization", [x, branch, f"{name}.weight"]
        return self.add(op, inputs, [name, "", "", f"{name}.sum"], MICROSOFT, epsilon=1e-6), f"{name}.sum"

    def lengths(self) -> None:
        """Compute the number of keys less one, and the length of the longest sequence, from the mask."""
        self.static("one", np.array([1], np.int64))
        self.static("axis", np.array(1, np.int64))
        self.add("ReduceSum", ["attention_mask", "one"], ["count"], keepdims=0)
        self.add("Sub", ["count", "one"], ["last"])
        self.add("Cast", ["last"], ["seqlens_k"], to=6)
        self.add("Shape", ["attention_mask"], ["mask_shape"])
        self.add("Gather", ["mask_shape", "axis"], ["length"], axis=0)
        self.add("Cast", ["length"], ["total_sequence_length"], to=6)

    def embedding(self) -> str:
        decoder = self.decoder
        if not decoder.is_tied:
            self.weights.normal("embedding", (decoder.vocabulary, decoder.hidden), 1.0)
            return self.add("Gather", ["embedding", "input_ids"], ["embedded"])
        shape = np.array([decoder.vocabulary, decoder.hidden // 2], np.int64)
        self.static("embedding_shape", shape)
        self.add("Reshape", ["logits.codes", "embedding_shape"], ["embedding"])
        return self.add(
            "GatherBlockQuantized", ["embedding", "input_ids", "logits.scales"], ["embedded"], MICROSOFT,
            bits=4, block_size=BLOCK, gather_axis=0, quantize_axis=1,
        )  # fmt: skip

    def layer(self, x: str, normed: str, number: int) -> tuple[str, str, str]:
        """Return the residual, the norm behind the attention, and the branch of the feed-forward part of a layer."""
        decoder, name = self.decoder, f"layer{number}"
        width, gain = (decoder.heads + 2 * decoder.shared) * decoder.head, 1 / math.sqrt(2 * decoder.layers)
        joined = self.product(normed, f"{name}.qkv", width, decoder.hidden)
        if decoder.has_bias:
            self.weights.normal(f"{name}.bias", (width,), 0.3)
            joined = self.add("Add", [joined, f"{name}.bias"], [f"{name}.biased"])
        past, present = ([f"{when}.{number}.{what}" for what in ("key", "value")] for when in ("past", "present"))
        self.add(
            "GroupQueryAttention",
            [joined, "", "", *past, "seqlens_k", "total_sequence_length", "cosines", "sines"],
            [f"{name}.attended", *present],
            MICROSOFT,
            num_heads=decoder.heads,
            kv_num_heads=decoder.shared,
            do_rotary=1,
        )
        terms = decoder.heads * decoder.head
        branch = self.product(f"{name}.attended", f"{name}.output", decoder.hidden, terms, gain)
        normed, x = self.normalised(x, branch, f"{name}.norm")
        gate = self.product(normed, f"{name}.gate", decoder.inner, decoder.hidden)
        up = self.product(normed, f"{name}.up", decoder.inner, decoder.hidden)
        self.add("Sigmoid", [gate], [f"{name}.sigmoid"])
        self.add("Mul", [gate, f"{name}.sigmoid"], [f"{name}.silu"])
        self.add("Mul", [f"{name}.silu", up], [f"{name}.gated"])
        return x, normed, self.product(f"{name}.gated", f"{name}.down", decoder.hidden, decoder.inner, 2 * gain)


def write_decoder(decoder: Decoder, folder: Path, *, positions: int = 32768, accuracy_level: int = 4) -> Path:
    """Write a decoder with float16 activations and caches into ``folder``; return the model's file.

    Rotary embeddings have ``positions`` rows.  Inputs are ``input_ids``, ``attention_mask`` (all ones, as long as
    what is valid) and ``past.N.key``, ``past.N.value`` of any capacity; outputs ``logits`` and ``present.N.*``.
    """
    import onnx
    from onnx import TensorProto, helper

    folder.mkdir(parents=True, exist_ok=True)
    model, data = folder / "model.onnx", folder / "model.onnx.data"
    if model.is_file():
        return model
    with data.open("wb", buffering=0) as file:
        weights = _Weights(file, data.name)
        graph = _Graph(decoder, weights, accuracy_level)
        turns = decoder.theta ** (-np.arange(0, decoder.head, 2) / decoder.head)
        angles = np.outer(np.arange(positions), turns)
        weights.array("cosines", np.cos(angles).astype(np.float16))
        weights.array("sines", np.sin(angles).astype(np.float16))
        graph.lengths()
        x = graph.embedding()
        normed, x = graph.normalised(x, "", "first")
        for number in range(decoder.layers):
            x, _, branch = graph.layer(x, normed, number)
            normed, x = graph.normalised(x, branch, f"norm{number}")
        graph.product(normed, "logits", decoder.vocabulary, decoder.hidden, 3.0)
    half, long = TensorProto.FLOAT16, TensorProto.INT64

    def ports(others: dict[str, list[Any]], when: str, rows: str) -> list[onnx.ValueInfoProto]:
        shape: list[Any] = ["batch", decoder.shared, rows, decoder.head]
        names = [f"{when}.{number}.{what}" for number in range(decoder.layers) for what in ("key", "value")]
        infos = [helper.make_tensor_value_info(name, kind, sizes) for name, (kind, sizes) in others.items()]
        return [*infos, *(helper.make_tensor_value_info(name, half, shape) for name in names)]

    ids = {"input_ids": [long, ["batch", "sequence"]], "attention_mask": [long, ["batch", "total"]]}
    logits = {"logits": [half, ["batch", "sequence", decoder.vocabulary]]}
    inputs, outputs = ports(ids, "past", "past"), ports(logits, "present", "present")
    built = helper.make_graph(graph.nodes, "decoder", inputs, outputs, weights.tensors)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(built, ir_version=10, opset_imports=opsets), model)
    return model


def write_folder(decoder: Decoder, folder: Path, *, positions: int = 32768, accuracy_level: int = 4) -> Path:
    """Write a decoder and what ``shaderloom.Generator`` needs besides, and return the model's file.

    The settings are those of onnxruntime-genai; no token ends an answer.  Token N is the word ``tN``.
    """
    model = write_decoder(decoder, folder, positions=positions, accuracy_level=accuracy_level)
    names = {f"{what}_names": f"past.%d.{what.partition('_')[2]}" for what in ("past_key", "past_value")}
    results = {f"{what}_names": f"present.%d.{what.partition('_')[2]}" for what in ("present_key", "present_value")}
    part = {"filename": model.name, "inputs": names, "outputs": results}
    settings = {"model": {"context_length": positions, "eos_token_id": [], "decoder": part}}
    (folder / "genai_config.json").write_text(json.dumps(settings))
    words = {f"t{token}": token for token in range(decoder.vocabulary)}
    tokenizer = {"version": "1.0", "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"}}
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    return model


@dataclass(frozen=True)
class Text:
    """A text that a benchmark generates: ``count`` tokens behind a random prompt of ``prompt`` tokens."""

    prompt: int = 512
    count: int = 32

    def ids(self, decoder: Decoder) -> list[int]:
        """Return the prompt."""
        return np.random.default_rng(self.prompt).integers(5, decoder.vocabulary, self.prompt).tolist()


TEXT = Text()


@dataclass(frozen=True)
class Run:
    """A run of a decoder: ``tokens`` new tokens behind ``past`` valid rows of a cache of ``capacity`` rows."""

    name: str
    tokens: int
    past: int
    capacity: int

    def feeds(self) -> dict[str, np.ndarray]:
        """Inputs but for the caches."""
        ids = np.random.default_rng(self.past).integers(5, 1000, (1, self.tokens), dtype=np.int64)
        return {"input_ids": ids, "attention_mask": np.ones((1, self.past + self.tokens), np.int64)}

    def cache(self, decoder: Decoder) -> np.ndarray:
        """One cache, of keys and of values alike."""
        numbers = np.random.default_rng(1).standard_normal(decoder.cache(self.capacity), np.float32)
        return (numbers * 0.3).astype(np.float16)


#: Tokens by the rows that are valid before them, a short one in a long cache, and prompts by their length
RUNS = (
    Run("token at 512", 1, 512, 1024),
    Run("token at 512 of 8,192", 1, 512, 8192),
    Run("token at 4k", 1, 4000, 4096),
    Run("token at 8k", 1, 8000, 8192),
    Run("token at 32k", 1, 32000, 32768),
    *(Run(f"prompt of {length:,}", length, 0, length) for length in (128, 512, 2048)),
)
