"""Decision trees as the attributes of a node list them, and as the tables that a kernel walks through.

The operators list every node with the ids of its tree, of itself and of its children (TreeEnsembleRegressor and
TreeEnsembleClassifier), or inner nodes and leaves apart (TreeEnsemble).  :class:`Trees` has both in one form; in it a
child or root that is not negative is an inner node, and leaf ``k`` is ``-1 - k`` (``loom.TreeLeaves``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....runtime.plan.errors import LimitError, ModelError, UnsupportedError
from ...ir.constants import TensorSource
from ..internal.tree_leaves import COMPARISONS, codes_of

#: Decisions on the way to a leaf: llvmpipe ends the loops of a thread after 65,535 trips
MOST_LEVELS = 1 << 15
_MEMBER = len(COMPARISONS)


@dataclass(slots=True)
class Trees:
    """``nodes`` inner ones, ``leaves`` leaves, and a weight for each pair of a leaf and a target that adds to it."""

    features: np.ndarray  #: of each inner node
    comparisons: np.ndarray  #: of each inner node, a position in :data:`COMPARISONS`
    missing_is_true: np.ndarray  #: whether a feature that is NaN counts as true
    thresholds: np.ndarray  #: float32
    children: np.ndarray  #: [nodes, 2]: where to go if the comparison is false, and if it is true
    roots: np.ndarray
    leaves: int
    weight_leaves: np.ndarray  #: the leaf of each weight
    weight_targets: np.ndarray
    weights: np.ndarray  #: float32

    @property
    def codes(self) -> np.ndarray:
        return codes_of(self.features, self.comparisons, self.missing_is_true)

    def levels(self) -> int:
        """Return the largest number of decisions on the way to a leaf, going down all trees at once.

        Raise :class:`LimitError` for more than a kernel makes, as nodes that form a circle have.
        """
        level, at = 0, np.unique(self.roots[self.roots >= 0])
        while at.size:
            level += 1
            if level > min(MOST_LEVELS, len(self.codes)):
                raise LimitError(f"trees of more than {level - 1:,} levels, or nodes that form a circle")
            below = self.children[at].reshape(-1)
            at = np.unique(below[below >= 0])
        return level


def array_of(values: Sequence[Any] | TensorSource | None, dtype: type, what: str) -> np.ndarray:
    """Return an attribute, a list or a tensor, as an array of rank 1.

    Raise :class:`UnsupportedError` for a tensor of float64.
    """
    if values is None or isinstance(values, Sequence):
        return np.asarray(values or (), dtype)
    if values.dtype.name == "float64":
        raise UnsupportedError(f"{what} of float64, a type that no device holds")
    return np.asarray(values.read().reshape(-1), dtype)


def _same_length(arrays: dict[str, np.ndarray]) -> None:
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{size} ({name})" for name, size in sizes.items())
        raise ModelError(f"attributes of one length have {listed} elements")


def _comparisons(modes: Sequence[str]) -> np.ndarray:
    """Return the comparison of each node, -1 for a leaf."""
    numbers = {f"BRANCH_{name}": place for place, name in enumerate(COMPARISONS)} | {"LEAF": -1}
    unknown = sorted(set(modes) - set(numbers))
    if unknown:
        raise UnsupportedError.of_attribute("a tree", "nodes_modes", unknown[0], tuple(numbers))
    return np.asarray([numbers[mode] for mode in modes], np.int64)


class _Places:
    """Positions of nodes by the ids of their trees and their own."""

    def __init__(self, trees: np.ndarray, nodes: np.ndarray) -> None:
        self._trees, self._nodes = np.unique(trees), np.unique(nodes)
        keys = self._keys(trees, nodes)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        twice = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
        if twice.size:
            at = self._order[twice[0]]
            raise ModelError(f"node {nodes[at]} of tree {trees[at]} is there twice")

    def _keys(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return a number for each pair of ids, -1 for those that no node has."""
        columns = []
        for ids, existing in ((trees, self._trees), (nodes, self._nodes)):
            place = np.minimum(np.searchsorted(existing, ids), len(existing) - 1)
            columns.append(np.where(existing[place] == ids, place, -1))
        return np.where((columns[0] < 0) | (columns[1] < 0), -1, columns[0] * len(self._nodes) + columns[1])

    def of(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        keys = self._keys(trees, nodes)
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        absent = np.flatnonzero(self._sorted[place] != keys)
        if absent.size:
            raise ModelError(f"tree {trees[absent[0]]} has no node {nodes[absent[0]]}")
        return np.asarray(self._order[place])


def trees_of_nodes(attributes: dict[str, Any], target: str) -> Trees:
    """Take the trees out of the attributes of a regressor or classifier; ``target`` is what its weights belong to.

    The first node of each tree is its root, weights of inner nodes count nothing, and a leaf must have a weight.
    """

    def taken(name: str, dtype: type = np.int64) -> np.ndarray:
        tensor = attributes.pop(f"{name}_as_tensor", None)
        values = attributes.pop(name, None)
        return array_of(values if tensor is None else tensor, dtype, name)

    comparisons = _comparisons(attributes.pop("nodes_modes", ()))
    trees, nodes, features = taken("nodes_treeids"), taken("nodes_nodeids"), taken("nodes_featureids")
    thresholds, missing = taken("nodes_values", np.float32), taken("nodes_missing_value_tracks_true")
    sides = [taken("nodes_falsenodeids"), taken("nodes_truenodeids")]
    weight_trees, weight_nodes = taken(f"{target}_treeids"), taken(f"{target}_nodeids")
    weight_targets, weights = taken(f"{target}_ids"), taken(f"{target}_weights", np.float32)
    for name in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        attributes.pop(name, None)
    missing = missing if missing.size else np.zeros(len(trees), np.int64)
    _same_length(
        {
            "nodes_modes": comparisons,
            "nodes_treeids": trees,
            "nodes_nodeids": nodes,
            "nodes_featureids": features,
            "nodes_values": thresholds,
            "nodes_falsenodeids": sides[0],
            "nodes_truenodeids": sides[1],
            "nodes_missing_value_tracks_true": missing,
        }
    )
    _same_length({f"{target}_treeids": weight_trees, f"{target}_nodeids": weight_nodes, f"{target}_weights": weights})
    _same_length({f"{target}_treeids": weight_trees, f"{target}_ids": weight_targets})
    if not len(trees):
        raise ModelError("there are no trees")
    places, decides = _Places(trees, nodes), comparisons >= 0
    # inner nodes are numbered by themselves, leaves too
    number = np.where(decides, np.cumsum(decides) - 1, np.negative(np.cumsum(comparisons < 0)))
    children = np.stack([number[places.of(trees[decides], side[decides])] for side in sides], axis=1)
    at = places.of(weight_trees, weight_nodes)
    counts = comparisons[at] < 0
    order = np.flatnonzero(counts)[np.argsort(at[counts], kind="stable")]
    starts = np.flatnonzero(np.concatenate([[True], trees[1:] != trees[:-1]]))
    result = Trees(
        features[decides],
        comparisons[decides],
        missing[decides] == 1,
        thresholds[decides],
        children.reshape(-1, 2),
        number[starts],
        int((~decides).sum()),
        -1 - number[at[order]],
        weight_targets[order],
        weights[order],
    )
    bare = np.setdiff1d(np.arange(result.leaves), result.weight_leaves)
    if bare.size:
        leaf = np.flatnonzero(~decides)[bare[0]]
        raise ModelError(f"leaf {nodes[leaf]} of tree {trees[leaf]} has no weight")
    return result


def trees_of_leaves(attributes: dict[str, Any]) -> Trees:
    """Take the trees out of the attributes of a TreeEnsemble, whose leaves are listed apart from the nodes."""

    def taken(name: str, dtype: type = np.int64) -> np.ndarray:
        return array_of(attributes.pop(name, None), dtype, name)

    features, comparisons, splits = taken("nodes_featureids"), taken("nodes_modes"), taken("nodes_splits", np.float32)
    sides = [(taken(f"nodes_{side}nodeids"), taken(f"nodes_{side}leafs")) for side in ("false", "true")]
    missing, roots = taken("nodes_missing_value_tracks_true"), taken("tree_roots")
    members, weights = taken("membership_values", np.float32), taken("leaf_weights", np.float32)
    targets = taken("leaf_targetids")
    attributes.pop("nodes_hitrates", None)
    missing = missing if missing.size else np.zeros(len(features), np.int64)
    lists = {"nodes_featureids": features, "nodes_modes": comparisons, "nodes_splits": splits}
    lists["nodes_missing_value_tracks_true"] = missing
    for side, (nodes, leaves) in zip(("false", "true"), sides):
        lists |= {f"nodes_{side}nodeids": nodes, f"nodes_{side}leafs": leaves}
    _same_length(lists)
    _same_length({"leaf_targetids": targets, "leaf_weights": weights})
    for name, array, limit in (
        ("nodes_modes", comparisons, _MEMBER + 1),
        ("tree_roots", roots, len(features)),
        *((f"nodes_{side}nodeids", nodes[leaves == 0], len(features)) for side, (nodes, leaves) in zip("ft", sides)),
        *((f"nodes_{side}nodeids", nodes[leaves != 0], len(weights)) for side, (nodes, leaves) in zip("ft", sides)),
    ):
        if array.size and (array.min() < 0 or array.max() >= limit):
            raise ModelError(f"attribute '{name}' has numbers outside of 0 to {limit - 1}")
    if not len(roots):
        raise ModelError("there are no trees")
    children = np.stack([np.where(leaves != 0, -1 - nodes, nodes) for nodes, leaves in sides], axis=1)
    trees = Trees(
        features,
        comparisons,
        missing == 1,
        splits,
        children.reshape(-1, 2),
        roots,
        len(weights),
        np.arange(len(weights)),
        targets,
        weights,
    )
    return _without_members(trees, members)


def _without_members(trees: Trees, members: np.ndarray) -> Trees:
    """Write each node that asks whether a feature is a member of a set as a chain of comparisons with its members.

    ``members`` are those of all such nodes in their order, NaN behind those of each.
    """
    asks = np.flatnonzero(trees.comparisons == _MEMBER)
    if not asks.size:
        return trees
    ends = np.flatnonzero(np.isnan(members))
    if members.size and not np.isnan(members[-1]):
        ends = np.append(ends, len(members))
    if len(ends) < len(asks):
        raise ModelError(f"members of {len(ends)} nodes, {len(asks)} nodes ask for members")
    equal, total = COMPARISONS.index("EQ"), len(trees.features)
    thresholds, comparisons, children = trees.thresholds.copy(), trees.comparisons.copy(), trees.children.copy()
    comparisons[asks] = equal
    added_from: list[int] = []
    added_thresholds: list[float] = []
    added_children: list[tuple[int, int]] = []
    start = 0
    for node, end in zip(asks.tolist(), ends.tolist()):
        values, start = members[start:end], end + 1
        thresholds[node] = values[0] if len(values) else np.nan  # equal to nothing
        if len(values) > 1:
            no, yes = trees.children[node].tolist()
            first = total + len(added_from)
            children[node] = (first, yes)
            added_from += [node] * (len(values) - 1)
            added_thresholds += values[1:].tolist()
            added_children += [(other, yes) for other in (*range(first + 1, first + len(values) - 1), no)]
    more = np.asarray(added_from, np.int64)
    trees.features = np.concatenate([trees.features, trees.features[more]])
    trees.comparisons = np.concatenate([comparisons, np.full(len(more), equal)])
    trees.missing_is_true = np.concatenate([trees.missing_is_true, trees.missing_is_true[more]])
    trees.thresholds = np.concatenate([thresholds, np.asarray(added_thresholds, np.float32)])
    trees.children = np.concatenate([children, np.asarray(added_children, np.int64).reshape(-1, 2)])
    return trees
