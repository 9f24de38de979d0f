"""``loom.TreeLeaves``: the leaf of every decision tree that each row of features comes to.

Operands: features float32 [rows, features]; of the nodes that decide ``codes`` int32 [nodes], ``thresholds`` float32
[nodes] and ``children`` int32 [nodes, 2], where to go if the comparison is false and if it is true; and ``roots`` int32
[trees].  A child or root that is not negative is a node, leaf ``k`` is ``-1 - k``.  Result: int32 [rows, trees].
"""

from __future__ import annotations

import numpy as np

from ....runtime.plan.dtypes import INT32
from ....runtime.plan.record import record
from ...ir.graph import Node
from ..registry import Inferred, register

FEATURES, CODES, THRESHOLDS, CHILDREN, ROOTS = range(5)
#: Comparisons of a feature with a threshold, by their number in a code
COMPARISONS = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
#: Bits of a code: the comparison, whether a feature that is NaN counts as true, and from this one on the feature
MISSING_BIT, FEATURE_BIT = 3, 4


@record
class TreeLeavesAttributes:
    """``levels`` bounds the number of decisions on the way to any leaf."""

    levels: int


def _infer(node: Node) -> Inferred:
    return [(INT32, (node.operand(FEATURES).shape[0], node.operand(ROOTS).shape[0]))]


def codes_of(features: np.ndarray, comparisons: np.ndarray, missing_is_true: np.ndarray) -> np.ndarray:
    """Return the codes of nodes from the feature, the comparison and the way of NaN of each."""
    bits = features.astype(np.int64) << FEATURE_BIT | missing_is_true.astype(np.int64) << MISSING_BIT | comparisons
    return bits.astype(np.int32)


def tree_leaves_array(operands: list[np.ndarray], levels: int) -> np.ndarray:
    """Evaluate ``loom.TreeLeaves`` with numpy, all rows and trees at once."""
    features, codes, thresholds, children, roots = operands
    at = np.broadcast_to(roots, (len(features), len(roots))).copy()
    rows = np.arange(len(features))[:, None]
    for _ in range(levels):
        decides = at >= 0
        if not decides.any():
            break
        node = np.where(decides, at, 0)
        code, limit = codes[node], thresholds[node]
        value = features[rows, code >> FEATURE_BIT]
        answers = [value <= limit, value < limit, value >= limit, value > limit, value == limit, value != limit]
        is_true = np.choose(code & ((1 << MISSING_BIT) - 1), answers)
        is_true |= np.isnan(value) & ((code >> MISSING_BIT & 1) != 0)
        at = np.where(decides, children[node, is_true.astype(np.int64)], at)
    return (-1 - at).astype(np.int32)


register(
    name="TreeLeaves",
    domain="loom",
    infer=_infer,
    attributes=TreeLeavesAttributes,
    family="tree_leaves",
    types=(frozenset({"float32"}), frozenset({"int32"}), frozenset({"float32"}), frozenset({"int32"})),
)
