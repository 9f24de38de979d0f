"""Attention as exporters write it: one head layout in, one out, and everything between in the ways that models have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .kernels import make_model

node = helper.make_node
Feeds = dict[str, np.ndarray]

#: Shapes of masks for scores [batch, heads, queries, keys]
MASKS = ("bhmn", "b1mn", "b11n", "1hmn", "b1m1", "1h11", "hmn", "1mn", "mn", "m1", "n", "b111", "")


@dataclass(frozen=True)
class Form:
    """How one exporter writes attention of [batch, sequence, heads * size] tensors."""

    scale: str = "Mul scores"  #: or "Div scores", "Mul query", "none"
    mask: str = ""  #: one of MASKS
    mask_kind: str = "Add"  #: or "Where", "And Where"
    softmax: str = "operator"  #: or "parts", "reciprocal"
    groups: int = 1  #: heads of queries for each head of keys
    cap: float = 0.0
    low: float = -1e4  #: what Where gives for keys that are left out
    merge: bool = True  #: heads are joined again
    layout: str = "split"  #: or "heads": operands have axes for heads already


def sizes_of(letters: str, batch: int, heads: int, queries: int, keys: int) -> tuple[int, ...]:
    return tuple({"b": batch, "h": heads, "m": queries, "n": keys, "1": 1}[letter] for letter in letters)


def attention(
    form: Form,
    *,
    batch: int = 2,
    heads: int = 2,
    queries: int = 7,
    keys: int = 9,
    size: int = 8,
    value_size: int | None = None,
    dtype: Any = np.float32,
    seed: int = 0,
    dims: Mapping[str, Sequence[Any]] | None = None,
) -> tuple[onnx.ModelProto, Feeds]:
    """A model of one attention in ``form``, and feeds."""
    value_size = size if value_size is None else value_size
    shared = heads // form.groups
    generator = np.random.default_rng((seed, batch, heads, queries, keys, size))

    def normal(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(dtype)

    if form.layout == "heads":
        feeds = {
            "q": normal(batch, heads, queries, size),
            "k": normal(batch, shared, keys, size),
            "v": normal(batch, shared, keys, value_size),
        }
    else:
        feeds = {
            "q": normal(batch, queries, heads * size),
            "k": normal(batch, keys, shared * size),
            "v": normal(batch, keys, shared * value_size),
        }
    constants: Feeds = {
        "scale": np.array(size**-0.5, dtype),
        "root": np.array(size**0.5, dtype),
        "cap": np.array(form.cap or 1.0, dtype),
        "low": np.array(form.low, dtype),
        "last": np.array([-1]),
        "two": np.array([2]),
    }
    nodes: list[onnx.NodeProto] = []

    def op(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(nodes)}"
        nodes.append(node(kind, list(inputs), [name], **attributes))
        return name

    def constant(array: np.ndarray) -> str:
        name = f"constant_{len(constants)}"
        constants[name] = array
        return name

    def split(name: str, count: int, perm: Sequence[int], width: int) -> str:
        if form.layout == "heads":
            return name if perm == (0, 2, 1, 3) else op("Transpose", name, perm=[0, 1, 3, 2])
        shaped = op("Reshape", name, constant(np.array([0, 0, count, width])))
        return op("Transpose", shaped, perm=list(perm))

    query = split("q", heads, (0, 2, 1, 3), size)
    if form.groups > 1:
        key, value = split("k", shared, (0, 2, 1, 3), size), split("v", shared, (0, 2, 1, 3), value_size)

        def repeat(name: str, width: int) -> str:
            wide = op("Unsqueeze", name, "two")
            wide = op("Expand", wide, constant(np.array([batch, shared, form.groups, keys, width])))
            return op("Reshape", wide, constant(np.array([batch, heads, keys, width])))

        key, value = op("Transpose", repeat(key, size), perm=[0, 1, 3, 2]), repeat(value, value_size)
    else:
        key, value = split("k", heads, (0, 2, 3, 1), size), split("v", heads, (0, 2, 1, 3), value_size)
    if form.scale == "Mul query":
        query = op("Mul", query, "scale")
    scores = op("MatMul", query, key)
    if form.scale.endswith("scores"):
        scores = op(form.scale.split()[0], scores, "scale" if form.scale.startswith("Mul") else "root")
    if form.cap:
        scores = op("Mul", op("Tanh", op("Div", scores, "cap")), "cap")
    if form.mask:
        shape = sizes_of(form.mask, batch, heads, queries, keys)
        kept = generator.random(shape) < 0.7
        if form.mask_kind == "Add":
            feeds["mask"] = np.where(kept, 0.0, -1e4).astype(dtype) + normal(*shape)
            scores = op("Add", scores, "mask")
        else:
            feeds["mask"] = kept
            condition = "mask"
            if form.mask_kind == "And Where":
                feeds["other"] = generator.random((keys,)) < 0.9
                condition = op("And", "mask", "other")
            scores = op("Where", condition, scores, "low")
    if form.softmax == "operator":
        weights = op("Softmax", scores, axis=-1)
    else:
        powers = op("Exp", op("Sub", scores, op("ReduceMax", scores, "last", keepdims=1)))
        total = op("ReduceSum", powers, "last", keepdims=1)
        if form.softmax == "parts":
            weights = op("Div", powers, total)
        else:
            weights = op("Mul", powers, op("Reciprocal", total))
    result = op("MatMul", weights, value)
    if form.merge:
        result = op("Transpose", result, perm=[0, 2, 1, 3])
        result = op("Reshape", result, constant(np.array([0, 0, heads * value_size])))
    nodes[-1].output[0] = "y"
    used = {name for each in nodes for name in each.input}
    constants = {name: array for name, array in constants.items() if name in used}
    return make_model(nodes, feeds, ["y"], opset=18, dims=dims, constants=constants), feeds
