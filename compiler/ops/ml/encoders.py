"""LabelEncoder and OneHotEncoder of numbers: each element is looked up in a list of keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT64
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.constants import TensorSource
from ...ir.graph import Node, Value
from .. import checks
from ..registry import Builder, Inferred, RawNode, register
from .scores import DOMAIN, EVERY_VERSION, FEATURES, axes

_LABELS = frozenset({"float32", "int64", "int32", "int16"})
_TEXT = "with text: a device holds numbers"


# -- LabelEncoder -----------------------------------------------------------------------------------------------------


@record
class LabelEncoderAttributes:
    """Inputs 1 to 3 of the adapted node are the keys, the values, and the default."""


_DEFAULTS = {"int64s": ("default_int64", -1, np.int64), "floats": ("default_float", -0.0, np.float32)}


def _numbers(raw: RawNode, what: str) -> np.ndarray:
    """Take the keys or values out of the attributes of a node."""
    raw.attributes.pop(f"{what}_strings", None)
    lists = {kind: raw.attributes.pop(f"{what}_{kind}", None) for kind in ("int64s", "floats")}
    tensor: TensorSource | None = raw.attributes.pop(f"{what}_tensor", None)
    if tensor is not None:
        return tensor.read().reshape(-1)
    for kind, numbers in lists.items():
        if numbers is not None:
            return np.asarray(numbers, _DEFAULTS[kind][2])
    raise UnsupportedError(f"LabelEncoder without {what}")


def _adapt_labels(raw: RawNode) -> None:
    """Make operands of the keys, of the values and of the default."""
    texts = [name for name in ("classes_strings", "keys_strings", "values_strings") if name in raw.attributes]
    if texts:
        raise UnsupportedError(f"LabelEncoder {_TEXT} (attribute '{texts[0]}')")
    keys, values = _numbers(raw, "keys"), _numbers(raw, "values")
    if len(keys) != len(values) or not len(keys):
        raise UnsupportedError(f"LabelEncoder with {len(keys)} keys and {len(values)} values")
    name, default, _ = _DEFAULTS["floats" if values.dtype.kind == "f" else "int64s"]
    for attribute, *_ in _DEFAULTS.values():
        value = raw.attributes.pop(attribute, None)
        default = value if attribute == name and value is not None else default
    raw.attributes.pop("default_string", None)
    tensor: TensorSource | None = raw.attributes.pop("default_tensor", None)
    fallback = np.asarray(default, values.dtype) if tensor is None else tensor.read().reshape(-1)[0]
    # of equal keys the first one counts
    _, first = np.unique(keys, return_index=True)
    first.sort()
    raw.inputs[1:] = [raw.add_constant(np.asarray(each)) for each in (keys[first], values[first], fallback)]


def _infer_labels(node: Node) -> Inferred:
    value, keys, labels = node.operand(0), node.operand(1), node.operand(2)
    checks.require_same_type(node, [value, keys])
    return [(labels.dtype, value.shape)]


def _expand_labels(builder: Builder, node: Node) -> Sequence[Value]:
    """Compare each element with every key; NaN is equal to NaN."""
    value, keys, labels, default = (node.operand(position) for position in range(4))
    element = builder.op("Unsqueeze", value, axes(builder, -1))
    matches = builder.op("Equal", element, keys)
    if value.dtype.is_float:
        both = builder.op("And", builder.op("IsNaN", element), builder.op("IsNaN", keys))
        matches = builder.op("Or", matches, both)
    wins = builder.op("Cast", matches, to=FLOAT32.onnx)
    place = builder.op("ArgMax", wins, axis=-1, keepdims=0)
    is_key = builder.op(
        "Greater", builder.op("ReduceMax", wins, axes(builder, -1), keepdims=0), builder.scalar(0, wins)
    )
    return [builder.op("Where", is_key, builder.op("Gather", labels, place), default)]


register(
    name="LabelEncoder",
    domain=DOMAIN,
    infer=_infer_labels,
    attributes=LabelEncoderAttributes,
    adapters=((EVERY_VERSION, _adapt_labels),),
    expand=_expand_labels,
    types=(_LABELS,),
)


# -- OneHotEncoder ----------------------------------------------------------------------------------------------------


@record
class OneHotEncoderAttributes:
    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: int = 1


def _infer_categories(node: Node) -> Inferred:
    attributes: OneHotEncoderAttributes = node.attributes
    if attributes.cats_strings:
        raise UnsupportedError(f"OneHotEncoder {_TEXT}", origin=node.origin)
    if not attributes.zeros:
        reason = "OneHotEncoder that refuses an unknown category, which a kernel cannot"
        raise UnsupportedError(reason, origin=node.origin, hint="export it with handle_unknown='ignore'")
    checks.require(len(attributes.cats_int64s) > 0, node, "there are no categories")
    return [(FLOAT32, (*node.operand(0).shape, len(attributes.cats_int64s)))]


def _expand_categories(builder: Builder, node: Node) -> Sequence[Value]:
    """Compare the integer part of each element with every category; of equal categories the last one counts."""
    categories = np.asarray(node.attributes.cats_int64s, np.int64)
    last = len(categories) - 1 - np.unique(categories[::-1], return_index=True)[1]
    counts = np.zeros(len(categories), np.bool_)
    counts[last] = True
    whole = builder.op("Cast", node.operand(0), to=INT64.onnx)
    matches = builder.op("Equal", builder.op("Unsqueeze", whole, axes(builder, -1)), builder.constant(categories))
    if not counts.all():
        matches = builder.op("And", matches, builder.constant(counts))
    return [builder.op("Cast", matches, to=FLOAT32.onnx)]


register(
    name="OneHotEncoder",
    domain=DOMAIN,
    infer=_infer_categories,
    attributes=OneHotEncoderAttributes,
    expand=_expand_categories,
    types=(FEATURES,),
)
