"""Writes a decoder of the llama family as an ONNX folder: the graph that onnxruntime-genai's builder writes.

Root mean square norms, rotary positions, attention of grouped heads with a cache, and a gated feed-forward part.
Weights are in a file of their own and stay in the form that they have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .block_weights import BLOCK, BlockWeight, FloatWeight, Weight

MODEL, DATA, CONFIG = "model.onnx", "model.onnx.data", "genai_config.json"
_MICROSOFT = "com.microsoft"
#: Tensors begin at whole pages, as they may be mapped
_ALIGNMENT = 4096


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of a decoder, and what its attention needs.

    ``head`` numbers in each of ``heads`` heads of queries and ``shared`` heads of keys and values; ``theta`` is the
    base of rotary positions, whose frequencies are divided by ``factors`` [head / 2] where there are some.
    """

    family: str
    hidden: int
    inner: int
    layers: int
    heads: int
    shared: int
    head: int
    vocabulary: int
    context: int
    epsilon: float
    theta: float
    factors: np.ndarray | None = None


#: Returns the weight of a name: ``embedding``, ``head`` (None: the embedding), ``norm``, or ``layer.PART``, with the
#: layer's number in front, and ``.bias`` behind it (None: there is none)
Weights = Callable[[str], Weight | None]


class _Writer:
    """The nodes of a decoder, a method for each of its parts; weights go to ``data`` as they come."""

    def __init__(self, sizes: DecoderSizes, weights: Weights, data: BinaryIO) -> None:
        self.sizes = sizes
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self._weights = weights
        self._data = data

    # -- nodes and tensors ---------------------------------------------------------------------------------------------

    def op(self, op: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; return its first output."""
        name = f"{outputs[0]}/{op}"
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def constant(self, name: str, value: Any, dtype: Any = np.int64) -> str:
        """Add a small constant to the model's own file."""
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def stored(self, name: str, array: np.ndarray) -> str:
        """Write an array to the file of weights."""
        array = np.ascontiguousarray(array)
        self._data.write(b"\0" * (-self._data.tell() % _ALIGNMENT))
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", DATA), ("offset", self._data.tell()), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self._data.write(array.data)
        self.tensors.append(tensor)
        return name

    def parts(self, name: str, weight: Weight) -> list[str]:
        """Write a weight; return the names of its tensors."""
        if isinstance(weight, FloatWeight):
            return [self.stored(f"{name}.weight", weight.array)]
        arrays = {"codes": weight.codes, "scales": weight.scales, "zeros": weight.zeros}
        return [self.stored(f"{name}.{part}", array) for part, array in arrays.items() if array is not None]

    def weight(self, name: str) -> Weight:
        weight = self._weights(name)
        assert weight is not None, "only biases and the head may be missing"
        return weight

    def vector(self, name: str) -> str:
        weight = self.weight(name)
        assert isinstance(weight, FloatWeight), "norms and biases are floats"
        return self.stored(name, weight.array.astype(np.float32))

    # -- parts of a decoder --------------------------------------------------------------------------------------------

    def product(self, x: str, name: str, out: str) -> str:
        """Multiply by the transposed weight of a name, and add its bias if there is one."""
        weight = self.weight(name)
        self.multiply(x, weight, self.parts(name, weight), out)
        if self._weights(f"{name}.bias") is None:
            return out
        return self.op("Add", [out, self.vector(f"{name}.bias")], f"{out}/biased")

    def multiply(self, x: str, weight: Weight, parts: list[str], out: str) -> None:
        if isinstance(weight, BlockWeight):
            rows, blocks = weight.scales.shape
            sizes = {"K": blocks * BLOCK, "N": rows, "bits": weight.bits, "block_size": BLOCK}
            self.op("MatMulNBits", [x, *parts], out, domain=_MICROSOFT, **sizes)
            return
        turned = self.op("Transpose", parts, f"{out}/turned", perm=[1, 0])
        self.op("MatMul", [x, self.floats(turned, weight)], out)

    def floats(self, value: str, weight: FloatWeight) -> str:
        """Return a value of the type of ``weight`` as float32."""
        is_float = weight.array.dtype == np.float32
        return value if is_float else self.op("Cast", [value], f"{value}/float", to=TensorProto.FLOAT)

    def embedding(self, weight: Weight, parts: list[str]) -> str:
        """Return the rows of the embedding that ``input_ids`` name; the weight is read in the form that it has."""
        if isinstance(weight, FloatWeight):
            return self.floats(self.op("Gather", [parts[0], "input_ids"], "embedded"), weight)
        codes, scales, *zeros = parts
        hidden = self.sizes.hidden
        flat = self.constant("embedding/shape", [self.sizes.vocabulary, hidden * weight.bits // 8])
        codes = self.op("Reshape", [codes, flat], "embedding")
        if not zeros:
            attributes = {"bits": weight.bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
            inputs = [codes, "input_ids", scales]
            return self.op("GatherBlockQuantized", inputs, "embedded", domain=_MICROSOFT, **attributes)
        rows = self.op("Gather", [codes, "input_ids"], "embedded/bytes")
        low = self.op("BitwiseAnd", [rows, self.constant("embedded/mask", 15, np.uint8)], "embedded/low")
        shift = self.constant("embedded/shift", 4, np.uint8)
        high = self.op("BitShift", [rows, shift], "embedded/high", direction="RIGHT")
        last = self.constant("embedded/last", [-1])
        pairs = [self.op("Unsqueeze", [each, last], f"{each}/pairs") for each in (low, high)]
        numbers = self.op("Concat", pairs, "embedded/pairs", axis=-1)
        blocks = self.constant("embedded/blocks", [0, 0, hidden // BLOCK, BLOCK])
        numbers = self.op("Reshape", [numbers, self.constant("embedded/flat", [0, 0, -1])], "embedded/codes")
        numbers = self.op("Reshape", [numbers, blocks], "embedded/in_blocks")
        numbers = self.op("Cast", [numbers], "embedded/numbers", to=TensorProto.FLOAT)
        shared = [
            self.op("Unsqueeze", [self.op("Gather", [each, "input_ids"], f"{each}/rows"), last], f"{each}/of_block")
            for each in (scales, *zeros)
        ]
        moved = self.op("Sub", [numbers, shared[1]], "embedded/moved")
        floats = self.op("Mul", [moved, shared[0]], "embedded/floats")
        return self.op("Reshape", [floats, "embedded/flat"], "embedded")

    def lengths(self) -> None:
        """Compute the number of keys less one, and the length of the longest sequence, from the mask."""
        one = self.constant("one", [1])
        self.op("ReduceSum", ["attention_mask", one], "keys", keepdims=0)
        self.op("Cast", [self.op("Sub", ["keys", one], "last_key")], "seqlens_k", to=TensorProto.INT32)
        self.op("Gather", [self.op("Shape", ["attention_mask"], "mask_shape"), self.constant("axis", 1)], "longest")
        self.op("Cast", ["longest"], "total_sequence_length", to=TensorProto.INT32)

    def turns(self) -> None:
        """Write the cosines and sines of rotary positions."""
        sizes = self.sizes
        frequencies = sizes.theta ** (-np.arange(0, sizes.head, 2) / sizes.head)
        if sizes.factors is not None:
            frequencies = frequencies / sizes.factors
        angles = np.outer(np.arange(sizes.context), frequencies)
        self.stored("cosines", np.cos(angles).astype(np.float32))
        self.stored("sines", np.sin(angles).astype(np.float32))

    def normalised(self, x: str, branch: str, name: str) -> tuple[str, str]:
        """Return the norm of a sum, and the sum; without ``branch`` of ``x`` alone."""
        weight, epsilon = self.vector(name), self.sizes.epsilon
        if not branch:
            op = "SimplifiedLayerNormalization"
            return self.op(op, [x, weight], f"{name}/out", axis=-1, epsilon=epsilon, stash_type=1), x
        outputs = (f"{name}/out", "", "", f"{name}/sum")
        self.op("SkipSimplifiedLayerNormalization", [x, branch, weight], *outputs, domain=_MICROSOFT, epsilon=epsilon)
        return outputs[0], outputs[3]

    def layer(self, x: str, normed: str, number: int) -> tuple[str, str, str]:
        """Return the residual, the norm behind the attention, and the branch of the feed-forward part of a layer."""
        name = f"layers.{number}"
        projected = [self.product(normed, f"{name}.{part}", f"{name}/{part}") for part in "qkv"]
        past, present = ([f"{when}.{number}.{what}" for what in ("key", "value")] for when in _CACHES)
        heads = {"num_heads": self.sizes.heads, "kv_num_heads": self.sizes.shared, "do_rotary": 1}
        operands = [*projected, *past, "seqlens_k", "total_sequence_length", "cosines", "sines"]
        attended = self.op("GroupQueryAttention", operands, f"{name}/attended", *present, domain=_MICROSOFT, **heads)
        branch = self.product(attended, f"{name}.out", f"{name}/out")
        normed, x = self.normalised(x, branch, f"{name}.inner_norm")
        gate, up = (self.product(normed, f"{name}.{part}", f"{name}/{part}") for part in ("gate", "up"))
        silu = self.op("Mul", [gate, self.op("Sigmoid", [gate], f"{name}/sigmoid")], f"{name}/silu")
        gated = self.op("Mul", [silu, up], f"{name}/gated")
        return x, normed, self.product(gated, f"{name}.down", f"{name}/down")

    def graph(self) -> None:
        """Write all of the decoder; the norm before a layer is fused with the sum behind the one before."""
        self.lengths()
        self.turns()
        weight = self.weight("embedding")
        parts = self.parts("embedding", weight)
        normed, x = self.normalised(self.embedding(weight, parts), "", "layers.0.norm")
        for number in range(self.sizes.layers):
            x, _, branch = self.layer(x, normed, number)
            following = f"layers.{number + 1}.norm" if number + 1 < self.sizes.layers else "norm"
            normed, x = self.normalised(x, branch, following)
        if self._weights("head") is None:
            self.multiply(normed, weight, parts, "logits")
        else:
            head = self.weight("head")
            self.multiply(normed, head, self.parts("head", head), "logits")


_CACHES = ("past_key_values", "present")


def write_decoder(
    folder: Path, sizes: DecoderSizes, weights: Weights, ends: tuple[int, ...], begin: int | None
) -> None:
    """Write model, weights and settings into a folder that exists.

    ``weights`` is asked once for each weight, in the order of the graph, but for the embedding and biases.  ``ends``
    are the tokens that end an answer, and ``begin`` is the one that begins a text, if there is one.
    """
    with (folder / DATA).open("wb") as data:
        writer = _Writer(sizes, weights, data)
        writer.graph()
    caches = [f"{layer}.{what}" for layer in range(sizes.layers) for what in ("key", "value")]

    def ports(others: dict[str, tuple[Any, list[Any]]], when: str, rows: str) -> list[onnx.ValueInfoProto]:
        infos = [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in others.items()]
        dims: list[Any] = ["batch_size", sizes.shared, rows, sizes.head]
        return [*infos, *(helper.make_tensor_value_info(f"{when}.{each}", TensorProto.FLOAT, dims) for each in caches)]

    ids: dict[str, tuple[Any, list[Any]]] = {
        "input_ids": (TensorProto.INT64, ["batch_size", "sequence_length"]),
        "attention_mask": (TensorProto.INT64, ["batch_size", "total_sequence_length"]),
    }
    logits: dict[str, tuple[Any, list[Any]]] = {
        "logits": (TensorProto.FLOAT, ["batch_size", "sequence_length", sizes.vocabulary])
    }
    inputs = ports(ids, _CACHES[0], "past_sequence_length")
    outputs = ports(logits, _CACHES[1], "total_sequence_length")
    graph = helper.make_graph(writer.nodes, sizes.family, inputs, outputs, writer.tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, ir_version=10, producer_name="shaderloom", opset_imports=opsets), folder / MODEL)
    _write_settings(folder, sizes, ends, begin)


def _write_settings(folder: Path, sizes: DecoderSizes, ends: tuple[int, ...], begin: int | None) -> None:
    """Write ``genai_config.json``, as onnxruntime-genai reads it."""
    past, present = (
        {f"{when}_{what}_names": f"{prefix}.%d.{what}" for what in ("key", "value")}
        for when, prefix in (("past", _CACHES[0]), ("present", _CACHES[1]))
    )
    decoder = {
        "session_options": {"provider_options": []},
        "filename": MODEL,
        "head_size": sizes.head,
        "hidden_size": sizes.hidden,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.shared,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **past},
        "outputs": {"logits": "logits", **present},
    }
    model = {
        "type": sizes.family,
        "vocab_size": sizes.vocabulary,
        "context_length": sizes.context,
        "eos_token_id": list(ends) if len(ends) != 1 else ends[0],
        "pad_token_id": ends[0] if ends else 0,
        "decoder": decoder,
        **({} if begin is None else {"bos_token_id": begin}),
    }
    search = {"do_sample": False, "max_length": sizes.context, "past_present_share_buffer": True}
    text = json.dumps({"model": model, "search": search}, indent=2)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
