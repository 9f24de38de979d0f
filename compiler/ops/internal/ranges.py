"""Ranges of whole tensors, by which dynamic quantisation chooses scale and zero point.

``loom.PartialRange`` gives [2, parts]: the largest number of each part of a float32 tensor, or 0, and the largest of
the negatives, or 0.  Which elements make a part is left to the kernel.

``loom.RangeParameters`` takes such extremes [2, n] to scale and zero point of uint8, two integers of 32 bits of which
the first has the bits of the scale: the range over 255 steps.  A range of nothing but 0 has scale 1, as in onnxruntime;
the specification divides zero by zero there.

``loom.QuantizeWords`` quantises a tensor [..., C] by its extremes, to the words that ``loom.PackBytes`` would make of
the result, one after another, and ends with scale and zero point as two more words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT32, UINT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from ..registry import Inferred, register
from .byte_products import WORD_BYTES

STEPS = 255  #: of a range
_FLOATS = frozenset({"float32"})


@record
class PartialRangeAttributes:
    """``parts`` is a multiple of 4."""

    parts: int


def words_shape(shape: Shape) -> tuple[Dim, ...]:
    """Return the shape of the words of a tensor of bytes."""
    return (*shape[:-1], ix.ceildiv(shape[-1], WORD_BYTES))


def partial_range(values: np.ndarray, parts: int) -> np.ndarray:
    """Return the extremes of ``parts`` runs of an array's elements."""
    flat = np.asarray(values, np.float32).ravel()
    length = -(-flat.size // parts)
    runs = np.pad(flat, (0, length * parts - flat.size)).reshape(parts, length)
    return np.stack([np.maximum(each.max(axis=1, initial=0.0), 0.0) for each in (runs, -runs)])


def range_parameters(extremes: np.ndarray) -> tuple[np.float32, np.int32]:
    """Return scale and zero point of a range by its extremes [2, n]."""
    high, low = np.asarray(extremes, np.float32).max(axis=1, initial=0.0)
    scale = np.float32((high + low) / np.float32(STEPS)) if high + low else np.float32(1.0)
    return scale, np.int32(np.rint(low / scale))


def _infer_words(node: Node) -> Inferred:
    return [(UINT32, (ix.add(ix.product(list(words_shape(node.operand(0).shape))), 2),))]


def quantized_words(operands: Sequence[np.ndarray]) -> np.ndarray:
    """Return the result of a ``QuantizeWords``."""
    value, extremes = operands
    scale, zero = range_parameters(extremes)
    numbers = np.clip(np.rint(value / scale) + zero, 0, STEPS) - 128
    rest = -value.shape[-1] % WORD_BYTES
    padded = np.pad(numbers.astype(np.int8), [(0, 0)] * (value.ndim - 1) + [(0, rest)])
    words = np.ascontiguousarray(padded).view(np.uint32).ravel()
    return np.concatenate([words, scale.reshape(1).view(np.uint32), zero.reshape(1).view(np.uint32)])


register(
    name="PartialRange",
    domain="loom",
    infer=lambda node: [(FLOAT32, (2, node.attributes.parts))],
    attributes=PartialRangeAttributes,
    family="partial_range",
    types=(_FLOATS,),
)
register(
    name="RangeParameters",
    domain="loom",
    infer=lambda node: [(INT32, (2,))],
    family="range_parameters",
    types=(_FLOATS,),
)
register(
    name="QuantizeWords",
    domain="loom",
    infer=_infer_words,
    family="quantize_words",
    types=(_FLOATS, _FLOATS),
)
