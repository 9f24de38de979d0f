"""Dropout: nothing in inference, a random mask in training mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ..checks import FLOATS, static_elements
from ..math.nodes import in_type
from ..registry import Builder, Inferred, RawNode, register


@record
class DropoutAttributes:
    """``mask_of_data``: the mask has the type of the data, as before version 10."""

    seed: int | None = None
    mask_of_data: bool = False


def _infer_dropout(node: Node) -> Inferred:
    value = node.operand(0)
    is_training(node)  # refuses a mode that is not known
    mask = value.dtype if node.attributes.mask_of_data else dtypes.BOOL
    return [(value.dtype, value.shape), (mask, value.shape)]


def is_training(node: Node, position: int = 2) -> bool:
    """Return whether the node runs in training mode, which exported models have as an input of a few operators."""
    training = node.optional(position)
    return training is not None and bool(static_elements(node, training, "training_mode").reshape(-1)[0])


def _expand_dropout(builder: Builder, node: Node) -> Sequence[Value]:
    """Build inference, which drops nothing (the data unchanged and a mask of true), or training."""
    data = node.operand(0)
    if is_training(node):
        return _drop(builder, node)
    mask_element = builder.scalar(1.0, data) if node.attributes.mask_of_data else builder.constant(np.asarray(True))
    mask = builder.op("Expand", mask_element, builder.op("Shape", data))
    return [builder.op("Identity", data), mask]


def _drop(builder: Builder, node: Node) -> Sequence[Value]:
    """Keep each element with the probability 1 - ratio, and divide it by that probability."""
    data, ratio = node.operand(0), node.optional(1)
    ratio = builder.constant(np.asarray(0.5, np.float32)) if ratio is None else in_type(builder, ratio, dtypes.FLOAT32)
    seed = None if node.attributes.seed is None else float(node.attributes.seed)
    drawn = builder.op("RandomUniform", shape=data.shape, seed=seed)
    mask = builder.op("GreaterOrEqual", drawn, ratio)
    keep_probability = builder.op("Sub", builder.constant(np.asarray(1, np.float32)), ratio)
    scaled = builder.op("Div", in_type(builder, data, dtypes.FLOAT32), keep_probability)
    zero = builder.constant(np.asarray(0, np.float32))
    return [in_type(builder, builder.op("Where", mask, scaled, zero), data.dtype), mask]


def _drop_ratio(raw: RawNode) -> None:
    """Drop the attribute ``ratio`` of versions before 12, which inference does not use."""
    raw.attributes.pop("ratio", None)


def _give_mask_type(raw: RawNode) -> None:
    raw.attributes["mask_of_data"] = 1


register(
    name="Dropout",
    attributes=DropoutAttributes,
    infer=_infer_dropout,
    expand=_expand_dropout,
    static_inputs=(2,),
    types=(FLOATS, FLOATS, frozenset({"bool"})),
    adapters=((7, _give_mask_type), (10, _drop_ratio)),
)
