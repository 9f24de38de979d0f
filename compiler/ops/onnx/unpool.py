"""MaxUnpool: pooled elements put back where the indices of a MaxPool say, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import view
from ..math.windows import per_axis
from ..registry import Builder, Indices, Inferred, register
from .padding import padded_to
from .scatter import scatter


@record
class MaxUnpoolAttributes:
    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


def _unpooled(node: Node) -> tuple[Dim, ...]:
    """Return the shape whose elements the indices count."""
    attributes: MaxUnpoolAttributes = node.attributes
    value = node.operand(0)
    count = value.rank - 2
    checks.require(count >= 1 and len(attributes.kernel_shape) == count, node, f"the input has rank {value.rank}")
    strides = per_axis(node, attributes.strides, count, "strides")
    pads = attributes.pads or (0,) * (2 * count)
    checks.require(len(pads) == 2 * count, node, f"pads {pads} do not fit {count} axes")
    spatial = [
        ix.add(
            ix.multiply(ix.add(size, -1), strides[axis]),
            attributes.kernel_shape[axis] - pads[axis] - pads[count + axis],
        )
        for axis, size in enumerate(value.shape[2:])
    ]
    return (*value.shape[:2], *spatial)


def _infer(node: Node) -> Inferred:
    value, shape = node.operand(0), _unpooled(node)
    checks.require(node.operand(1).shape == value.shape, node, "indices and input differ in shape")
    if node.optional(2) is None:
        return [(value.dtype, shape)]
    wanted = tuple(checks.static_dims(node, 2, "output_shape"))
    checks.require(len(wanted) == value.rank, node, f"output_shape has {len(wanted)} sizes")
    fits = all(not ix.less(size, inner) for size, inner in zip(wanted, shape))
    checks.require(fits, node, f"output_shape {checks.describe_shape(wanted)} is too small")
    return [(value.dtype, wanted)]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    value, shape = node.operand(0), _unpooled(node)
    total = checks.concrete(node, ix.product(shape), "the number of elements of the result")
    zeros = builder.op("Broadcast", builder.scalar(0.0, value), domain="loom", shape=(total,))
    pooled = checks.concrete(node, value.elements, "the number of pooled elements")
    flat = scatter(builder, zeros, view(builder, node.operand(1), pooled), view(builder, value, pooled), 0)
    result = view(builder, flat, *shape)
    if node.optional(2) is None:
        return [result]
    wanted = tuple(checks.static_dims(node, 2, "output_shape"))
    after = [ix.add(size, ix.multiply(inner, -1)) for size, inner in zip(wanted, shape)]
    return [padded_to(builder, result, [*(0 for _ in after), *after], wanted)]


register(
    name="MaxUnpool",
    infer=_infer,
    attributes=MaxUnpoolAttributes,
    expand=_expand,
    indices=(Indices(1, lambda node: [ix.product(_unpooled(node))], wraps=False),),
    types=(FLOATS, checks.INDICES, checks.INDICES),
    static_inputs=(2,),
)
