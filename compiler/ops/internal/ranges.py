"""Ranges of whole tensors, by which dynamic quantisation chooses scale and zero point.

The range of a tensor is from its smallest to its largest number, extended to 0.

``loom.PartialRange`` gives a tensor [2 parts] of the same range: the largest number of each part of a float32 tensor,
or 0, and the smallest, or 0.  Which elements make a part, and how many parts there are, is left to the kernel.

``loom.RangeParameters`` takes a tensor to scale and zero point of uint8 for its range, two integers of 32 bits of which
the first has the bits of the scale: the range over 255 steps.  A range of nothing but 0 has scale 1, as in onnxruntime;
the specification divides zero by zero there.

``loom.QuantizeWords`` quantises a tensor [..., C] by the range of a second one, to the words that ``loom.PackBytes``
would make of the result, one after another, and ends with scale and zero point as two more words.
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
    parts: Dim


def words_shape(shape: Shape) -> tuple[Dim, ...]:
    """Return the shape of the words of a tensor of bytes."""
    return (*shape[:-1], ix.ceildiv(shape[-1], WORD_BYTES))


def partial_range(values: np.ndarray, parts: int) -> np.ndarray:
    """Return the largest and the smallest number of ``parts`` runs of an array's elements, each extended to 0."""
    flat = np.asarray(values, np.float32).ravel()
    length = -(-flat.size // parts) if parts else 0
    runs = np.pad(flat, (0, length * parts - flat.size)).reshape(parts, length)
    return np.stack([runs.max(axis=1, initial=0.0), runs.min(axis=1, initial=0.0)], axis=1).ravel()


def range_parameters(numbers: np.ndarray) -> tuple[np.float32, np.int32]:
    """Return scale and zero point of the range of an array."""
    numbers = np.asarray(numbers, np.float32)
    high, low = numbers.max(initial=0.0), -numbers.min(initial=0.0)
    scale = np.float32((high + low) / np.float32(STEPS)) if high + low else np.float32(1.0)
    return scale, np.int32(np.rint(low / scale))


def _infer_words(node: Node) -> Inferred:
    return [(UINT32, (ix.add(ix.product(list(words_shape(node.operand(0).shape))), 2),))]


def quantized_words(operands: Sequence[np.ndarray]) -> np.ndarray:
    """Return the result of a ``QuantizeWords``."""
    value, range_of = operands
    scale, zero = range_parameters(range_of)
    numbers = np.clip(np.rint(value / scale) + zero, 0, STEPS) - 128
    rest = -value.shape[-1] % WORD_BYTES
    padded = np.pad(numbers.astype(np.int8), [(0, 0)] * (value.ndim - 1) + [(0, rest)])
    words = np.ascontiguousarray(padded).view(np.uint32).ravel()
    return np.concatenate([words, scale.reshape(1).view(np.uint32), zero.reshape(1).view(np.uint32)])


register(
    name="PartialRange",
    domain="loom",
    infer=lambda node: [(FLOAT32, (ix.multiply(node.attributes.parts, 2),))],
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
