"""Probabilities of classes from those of pairs: ``loom.CoupledProbabilities``, for support vector machines.

The second method of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling"
(2004), with the start, the order of updates and the bound of error that libsvm and onnxruntime have.
"""

from __future__ import annotations

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node
from .. import checks
from ..registry import Inferred, register

#: The iteration ends here, or where no component is farther off than this part of the mean probability
MOST_ROUNDS = 100
LEAST_ERROR = 0.005


@record
class CoupledProbabilitiesAttributes:
    """Column ``k`` of the operand [rows, pairs] is the probability of class ``i`` against ``j`` for the ``k``-th pair
    ``i < j`` in lexicographic order."""

    classes: int


def _infer(node: Node) -> Inferred:
    pairs, classes = node.operand(0), node.attributes.classes
    checks.require(checks.is_size(pairs.shape[1], classes * (classes - 1) // 2), node, f"no pairs of {classes} classes")
    return [(FLOAT32, (pairs.shape[0], classes))]


def coupled_probabilities_array(pairs: np.ndarray, classes: int) -> np.ndarray:
    """Evaluate ``loom.CoupledProbabilities`` with numpy, all rows at once."""
    rows = len(pairs)
    against = np.zeros((rows, classes, classes), np.float32)
    first, second = np.triu_indices(classes, 1)
    against[:, first, second] = pairs
    against[:, second, first] = 1 - pairs
    products = -against * against.transpose(0, 2, 1)
    diagonal = np.arange(classes)
    products[:, diagonal, diagonal] = (against**2).sum(axis=1, dtype=np.float32)
    likely = np.full((rows, classes), 1 / classes, np.float32)
    goes_on = np.ones(rows, np.bool_)
    for _ in range(MOST_ROUNDS):
        sums = np.einsum("nij,nj->ni", products, likely)
        total = (likely * sums).sum(axis=1)
        goes_on &= ~(np.abs(sums - total[:, None]).max(axis=1) < LEAST_ERROR / classes)
        if not goes_on.any():
            break
        updated = likely.copy()
        for place in range(classes):
            own = products[:, place, place]
            step = (total - sums[:, place]) / own
            updated[:, place] += step
            total = (total + step * (step * own + 2 * sums[:, place])) / (1 + step) / (1 + step)
            sums = (sums + step[:, None] * products[:, place]) / (1 + step)[:, None]
            updated /= (1 + step)[:, None]
        likely = np.where(goes_on[:, None], updated, likely)
    return likely


register(
    name="CoupledProbabilities",
    domain="loom",
    infer=_infer,
    attributes=CoupledProbabilitiesAttributes,
    family="coupled_probabilities",
    types=(frozenset({"float32"}),),
)
