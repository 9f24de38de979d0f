"""Integers that depend on declared dynamic dimensions, as a tensor: folded ``Shape`` and arithmetic on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import DType
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..registry import Inferred, Read, register

#: more symbolic elements than this are computed by the graph's own nodes instead
MAX_DIMENSIONS = 256


@record
class DimensionsAttributes:
    """``elements`` in row-major order of ``shape``; ``dtype`` is an integer type."""

    elements: tuple[Dim, ...]
    shape: tuple[int, ...]
    dtype: DType


def _infer(node: Node) -> Inferred:
    return [(node.attributes.dtype, node.attributes.shape)]


def _elements(node: Node) -> np.ndarray:
    array = np.empty(node.attributes.shape, object)
    array.reshape(-1)[:] = node.attributes.elements
    return array


def _gather(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: DimensionsAttributes = node.attributes
    position: Dim = 0
    for size, coordinate in zip(attributes.shape, coordinates):
        position = ix.add(ix.multiply(position, size), coordinate)
    compute = attributes.dtype.compute
    here = ex.coordinate(position)
    *others, last = attributes.elements
    result = ex.of_dim(last, compute)
    for number, element in enumerate(others):
        chosen = ex.compare("eq", here, ex.const(number, "i32"))
        if here.op == "const":
            chosen = ex.const(here.payload == number, "bool")
        result = ex.select(chosen, ex.of_dim(element, compute), result)
    return result


register(
    name="Dimensions",
    domain="loom",
    infer=_infer,
    attributes=DimensionsAttributes,
    gather=_gather,
    fold_shapes=_elements,
    reads=0,
)
