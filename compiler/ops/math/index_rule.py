"""The rule for indices that an operand holds, from what an operator declares (:class:`~.registry.Indices`).

An index is in range from ``-size`` to ``size - 1``, or from 0 where an operator does not count from the end.  An
index known at compile time and out of range is an error; the kernels clamp indices of run time
(:func:`~.positions.run_time_index`), so :func:`find_wrong` is the check for values of a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import ShapeError
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import polynomial as ix
from ..registry import Indices


@record
class WrongIndices:
    """``value`` at ``position`` is the first of ``count`` indices that are not from ``low`` to ``high``."""

    position: tuple[int, ...]
    value: int
    low: int
    high: int
    count: int


def check_static_indices(node: Node, rule: Indices, *, every_size: bool = False) -> None:
    """Raise :class:`ShapeError` for known indices that are out of range for every size that is declared.

    With ``every_size`` for those that are out of range for one of them, or may be: they may be symbolic, too.
    """
    operand = node.optional(rule.position)
    indices = None if operand is None else operand.static_value
    if indices is None or indices.size == 0:
        return
    sizes = rule.sizes(node)
    columns = indices.reshape(-1, max(len(sizes), 1)).T
    for column, size in zip(columns, sizes):
        most = ix.bounds(size)[0 if every_size else 1]
        plain = np.array([element for element in column if not isinstance(element, ix.Index)], np.int64)
        wrong = plain[(plain < (-most if rule.wraps else 0)) | (plain >= most)]
        if wrong.size:
            raise ShapeError(
                f"index {wrong[0]} is out of range for an axis of {ix.text(size)} elements", origin=node.origin
            )
        symbolic = [element for element in column if isinstance(element, ix.Index)] if every_size else []
        for element in symbolic:
            if ix.bounds(element)[0] < (-most if rule.wraps else 0) or not ix.always_less(element, size):
                text = f"index {ix.text(element)} may be out of range for an axis of {ix.text(size)} elements"
                raise ShapeError(text, origin=node.origin)


def find_wrong(array: np.ndarray, sizes: Sequence[int], rule: Indices) -> WrongIndices | None:
    """Return the out-of-range indices of an array, or None; ``sizes`` are those of the axes that its tuples address."""
    if not array.size:
        return None
    limits = np.asarray(sizes if len(sizes) > 1 else sizes[0] if sizes else 0)
    lows = -limits if rule.wraps else np.zeros_like(limits)
    wrong = np.argwhere((array < lows) | (array >= limits))
    if not len(wrong):
        return None
    position = tuple(int(axis) for axis in wrong[0])
    size = sizes[position[-1] if len(sizes) > 1 else 0]
    return WrongIndices(position, int(array[position]), -size if rule.wraps else 0, size - 1, len(wrong))
