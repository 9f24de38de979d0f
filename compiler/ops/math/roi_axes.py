"""Regions of interest, one axis at a time: shared by RoiAlign and MaxRoiPool.

A region is x1, y1, x2, y2.  The relation of an element of an axis to the bins of a region depends on that axis only.
"""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.plan.dtypes import DType
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..registry import Inferred
from .activation_functions import number


@record
class RoiAxisAttributes:
    """The result is [regions, bins, size]: something of each bin of each region, and each element of an axis."""

    vertical: bool
    bins: int
    size: Dim
    scale: float


@record
class RoiAxisSamplesAttributes(RoiAxisAttributes):
    """``kind``, for every element of the axis and every bin:

    ``mean``      what the element counts in a mean of the samples
    ``largest``   the largest weight that it has in a sample, -1 where no sample is near
    ``smallest``  the smallest one
    ``outside``   1 where the bin has a sample outside of the axis, or none at all; one number for all elements
    """

    kind: str
    shift: float
    at_least_one: bool  #: regions are at least one pixel in size


def infer_axis(dtype: DType) -> Callable[[Node], Inferred]:
    """Return the type rule of an operator with :class:`RoiAxisAttributes`; regions are its first operand."""

    def infer(node: Node) -> Inferred:
        attributes: RoiAxisAttributes = node.attributes
        return [(dtype, (node.operand(0).shape[0], attributes.bins, attributes.size))]

    return infer


def ends(read: Callable[[int], Expr], vertical: bool, scale: float) -> tuple[Expr, Expr]:
    """Return the start and end of a region along an axis, in elements of the input; ``read`` gives its four numbers."""
    place = 1 if vertical else 0
    return read(place) * number(scale), read(place + 2) * number(scale)


def span(
    read: Callable[[int], Expr], vertical: bool, scale: float, shift: float, at_least_one: bool
) -> tuple[Expr, Expr]:
    """Return the start, moved back by ``shift``, and the length of a region along an axis.

    With ``at_least_one`` the length is one element or more.
    """
    start, stop = (end - number(shift) for end in ends(read, vertical, scale))
    length = stop - start
    return start, ex.binary("max", length, number(1.0)) if at_least_one else length
