"""Order of long rows: runs that are sorted are merged two by two; and permutations.

Sorting gives positions, never the elements, which may then be gathered.  Equal elements stay in the order of their
positions, NaN counts as larger than any number.
"""

from __future__ import annotations

import numpy as np

from ....runtime.plan.dtypes import INT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..registry import Builder, Inferred, register

# -- merging ----------------------------------------------------------------------------------------------------------


@record
class MergeRunsAttributes:
    """``axis`` counts from the front.  Runs of ``run`` positions are sorted, those of twice as many will be.

    With ``key_axis`` the elements along that axis of the keys are compared together, the first one first; the order
    lacks this axis.
    """

    axis: int
    run: int
    largest: bool
    key_axis: int | None = None


def _infer_merge(node: Node) -> Inferred:
    keys, order, attributes = node.operand(0), node.operand(1), node.attributes
    rest = tuple(size for axis, size in enumerate(keys.shape) if axis != attributes.key_axis)
    checks.require(order.shape == rest, node, "an order has one position for each key")
    return [(INT32, order.shape)]


def merge_runs_array(keys: np.ndarray, order: np.ndarray, attributes: MergeRunsAttributes) -> np.ndarray:
    """Evaluate ``loom.MergeRuns`` with numpy."""
    axis = attributes.axis
    if attributes.key_axis is None:
        keys = keys[..., np.newaxis]
    else:
        keys = np.moveaxis(keys, attributes.key_axis, -1)
        axis -= attributes.key_axis < axis
    keys, order = np.moveaxis(keys, axis, -2), np.moveaxis(order, axis, -1)
    if keys.dtype.kind not in "iub":
        keys = keys.astype(np.float32)
    ranks = np.unique(keys, return_inverse=True)[1].reshape(keys.shape)
    ranks = -ranks if attributes.largest else ranks
    result = np.empty(order.shape, np.int32)
    for row in np.ndindex(order.shape[:-1]):
        for start in range(0, order.shape[-1], 2 * attributes.run):
            run = order[row][start : start + 2 * attributes.run]
            columns = ranks[row][run]
            result[row][start : start + len(run)] = run[np.lexsort(columns.T[::-1])]
    return np.moveaxis(result, -1, axis)


register(
    name="MergeRuns",
    domain="loom",
    infer=_infer_merge,
    attributes=MergeRunsAttributes,
    family="merge",
    types=(checks.NUMERIC, frozenset({"int32"})),
)


def merged(
    builder: Builder, keys: Value, order: Value, run: int, *, axis: int, largest: bool, key_axis: int | None = None
) -> Value:
    """Sort ``order`` completely by merging its sorted runs of ``run`` positions. Sizes are numbers."""
    size = ix.number(keys.shape[axis])
    while run < size:
        order = builder.op(
            "MergeRuns", keys, order, domain="loom", axis=axis, run=run, largest=largest, key_axis=key_axis
        )
        run *= 2
    return order


# -- permutations -----------------------------------------------------------------------------------------------------


def _infer_permute(node: Node) -> Inferred:
    value, order = node.operand(0), node.operand(1)
    checks.require(value.rank == 1 and order.shape == value.shape, node, "a permutation has one place for each element")
    return [(value.dtype, value.shape)]


def permute_array(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Evaluate ``loom.Permute`` with numpy: element ``i`` goes to ``order[i]``."""
    result = np.empty_like(array)
    result[order] = array
    return result


register(
    name="Permute",
    domain="loom",
    infer=_infer_permute,
    family="permute",
    types=(frozenset({"int32"}), frozenset({"int32"})),
)
