"""QMoE (domain com.microsoft): a mixture of experts whose matrices are packed numbers of 2, 3, 4 or 8 bits.

A matrix [rows, columns] has a scale, and a zero point, for each row or for each block of neighbours of a row.  Numbers
are dequantised where the products read them, so memory holds the packed bytes, and a token reads those of the experts
that it chose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS
from ..math.nodes import in_type, view
from ..onnx.quantize import dequantize
from ..registry import Builder, Inferred, register
from .block_quantized import repeated, unpacked
from .experts import ExpertAttributes, Experts, experts_of, mixture, require_shape

_WEIGHTS, _SCALES, _BIASES, _ZEROS = (2, 5, 8), (3, 6, 9), (4, 7, 10), (11, 12, 13)
_ROUTER_WEIGHTS = 14
#: First of the inputs that belong to matrices of floats
_FLOAT_SCALES = 15


@record
class QMoEAttributes(ExpertAttributes):
    """``accuracy_level`` is a hint; ``weights_prepacked`` -1 leaves the order of the bytes to the runtime: plain."""

    accuracy_level: int = 0
    block_size: int = 0
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    quant_type: str = "int"
    weights_prepacked: int = -1


def _bits(node: Node, projection: int) -> int:
    """Return the width of the numbers of fc1, fc2 or fc3."""
    name = f"fc{projection + 1}_expert_weight_bits"
    if getattr(node.attributes, name) is None:
        name = "expert_weight_bits"
    checks.require_choice(node, name, (2, 3, 4, 8))
    bits: int = getattr(node.attributes, name)
    return bits


def _check_matrix(node: Node, experts: Experts, projection: int, rows: int, columns: int) -> None:
    """Raise :class:`ShapeError` unless weights, scales, zero points and bias fit a matrix [rows, columns]."""
    bits, block, name = _bits(node, projection), node.attributes.block_size, f"fc{projection + 1}"
    checks.require(columns * bits % 8 == 0, node, f"{name}: a row of {columns} numbers of {bits} bits ends in a byte")
    checks.require(not block or columns % block == 0, node, f"{name}: {columns} columns are no blocks of {block}")
    for position, what in ((_WEIGHTS[projection], "experts_weights"), (_SCALES[projection], "scales")):
        checks.require(node.optional(position) is not None, node, f"{name}_{what} (input {position}) is missing")
    count, blocks = experts.count, columns // block if block else 1
    require_shape(node, _WEIGHTS[projection], f"{name}_experts_weights", (count, rows, columns * bits // 8))
    require_shape(node, _BIASES[projection], f"{name}_experts_bias", (count, rows))
    require_shape(node, _SCALES[projection], f"{name}_scales", (count, rows, blocks) if block else (count, rows))
    packed = (count, rows, -(-blocks * bits // 8)) if block else (count, -(-rows * bits // 8))
    require_shape(node, _ZEROS[projection], f"{name}_zero_points", packed)


def _infer(node: Node) -> Inferred:
    attributes: QMoEAttributes = node.attributes
    checks.require_choice(node, "quant_type", ("int",))
    checks.require_choice(node, "weights_prepacked", (-1, 0))  # other orders of bytes are other runtimes' own
    block = attributes.block_size
    fits = block == 0 or (block >= 16 and not block & (block - 1))
    checks.require(fits, node, f"block_size {block} is no power of two from 16 on")
    for position in range(_FLOAT_SCALES, len(node.inputs)):
        if node.optional(position) is not None:
            raise UnsupportedError(f"QMoE with a scale of matrices of floats (input {position})", origin=node.origin)
    experts = experts_of(node, _WEIGHTS)
    for projection, (rows, columns) in enumerate(experts.matrices(node)):
        _check_matrix(node, experts, projection, rows, columns)
    value, weights = node.operand(0), node.optional(_ROUTER_WEIGHTS)
    if weights is not None:
        shape = checks.describe_shape(weights.shape)
        checks.require(weights.shape == node.operand(1).shape, node, f"router_weights of shape {shape}")
    return [(value.dtype, value.shape)]


def _matrices(builder: Builder, node: Node, projection: int) -> Value:
    """Build the dequantised matrices [experts, rows, columns] of fc1, fc2 or fc3."""
    block, bits = node.attributes.block_size, _bits(node, projection)
    packed, scales = node.operand(_WEIGHTS[projection]), node.operand(_SCALES[projection])
    count, rows, row_bytes = packed.shape
    columns = ix.number(row_bytes) * 8 // bits
    zeros = node.optional(_ZEROS[projection])
    if zeros is None:
        zeros = builder.constant(np.array(1 << (bits - 1), np.uint8))
    elif block:
        zeros = repeated(builder, unpacked(builder, zeros, bits, columns // block), 2, block, columns)
    else:
        zeros = view(builder, unpacked(builder, zeros, bits, rows), count, rows, 1)
    scales = repeated(builder, scales, 2, block, columns) if block else view(builder, scales, count, rows, 1)
    floats = dequantize(builder, unpacked(builder, packed, bits, columns), scales, zeros, scales.dtype)
    return in_type(builder, floats, node.operand(0).dtype)


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    """Dequantise, then gather: fusion reads only what is gathered."""

    def weight(projection: int, chosen: Value) -> Value:
        return builder.op("Gather", _matrices(builder, node, projection), chosen, axis=0)

    experts = experts_of(node, _WEIGHTS)
    return [mixture(builder, node, experts, weight, _BIASES, node.optional(_ROUTER_WEIGHTS))]


_BYTES = frozenset({"uint8"})
_MATRIX = (_BYTES, FLOATS, FLOATS)

register(
    name="QMoE",
    domain="com.microsoft",
    infer=_infer,
    attributes=QMoEAttributes,
    expand=_expand,
    types=(FLOATS, FLOATS, *_MATRIX * 3, _BYTES, _BYTES, _BYTES, FLOATS),
)
