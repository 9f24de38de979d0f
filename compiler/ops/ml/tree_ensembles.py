"""TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble: the leaf of every tree, and sums of their weights.

An adapter turns the lists of the attributes into operands once, when a model is imported.  ``loom.TreeLeaves`` finds
the leaves of all rows and trees; their weights are gathered and reduced over the trees.

A leaf may add to some targets alone, and onnxruntime's classifier looks at which of them any leaf added to.  Where that
is not the same for all rows, targets are counted beside the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT64
from ....runtime.plan.errors import LimitError, ModelError, UnsupportedError
from ....runtime.plan.record import record
from ...ir.constants import TensorSource
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Builder, Inferred, RawNode, register
from . import scores
from .scores import DOMAIN, EVERY_VERSION, FEATURES, TRANSFORMS
from .tree_tables import Trees, array_of, trees_of_leaves, trees_of_nodes

#: In the order of the numbers that TreeEnsemble has for them
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORM_NUMBERS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

#: Operands of an adapted node behind the features: those of ``loom.TreeLeaves``, and the weights
_TABLES = slice(1, 5)
WEIGHTS = 5
#: Numbers in the table of weights at the most
_MOST_WEIGHTS = 1 << 28
#: What stands for a weight that a leaf does not have: beyond any other in a minimum or maximum
_FAR = float(np.finfo(np.float32).max)


@record
class TreeEnsembleAttributes:
    """What is left of the attributes of an adapted node.

    Weights are [leaves, columns], a column for each target and, with ``counted``, one that counts its leaves; or, where
    every tree has one target, ``group`` trees follow each other for each target and weights are [leaves].
    """

    targets: int
    columns: int
    trees: int
    group: int
    levels: int
    features: int  #: that rows have at least
    aggregate: str
    post_transform: str
    base_values: tuple[float, ...]
    #: of a classifier
    labels: tuple[int, ...] = ()
    counted: bool = False
    added_to: tuple[bool, ...] = ()  #: targets that some leaf adds to
    is_positive: bool = False  #: no weight is negative


# -- attributes to operands -------------------------------------------------------------------------------------------


def _absent(aggregate: str) -> float:
    return {"MIN": _FAR, "MAX": -_FAR}.get(aggregate, 0.0)


def _single_targets(trees: Trees, targets: int) -> np.ndarray | None:
    """Return the target of each tree if all its leaves add to that one alone, else None."""
    if targets == 1 or len(trees.weight_leaves) != trees.leaves:
        return None
    leaf_targets = np.empty(trees.leaves, np.int64)
    leaf_targets[trees.weight_leaves] = trees.weight_targets
    # the targets below each node, from the leaves up: a node whose children differ has none
    owners = np.full(max(len(trees.features), 1), -1, np.int64)

    def owner(at: np.ndarray) -> np.ndarray:
        return np.where(at < 0, leaf_targets[-1 - np.minimum(at, -1)], owners[np.maximum(at, 0)])

    for _ in range(trees.levels()):
        sides = owner(trees.children)
        merged = np.where(sides[:, 0] == sides[:, 1], sides[:, 0], -1)
        if np.array_equal(merged, owners):
            break
        owners = merged
    result = owner(trees.roots)
    return result if (result >= 0).all() else None


def _grouped(trees: Trees, targets: int, owners: np.ndarray) -> np.ndarray | None:
    """Return the roots, those of each target one after another, all as many; a leaf of no weight fills up.

    None where this wastes more than it saves.
    """
    sizes = np.bincount(owners, minlength=targets)
    most = int(sizes.max())
    if most * targets > 2 * len(owners):
        return None
    roots = np.full((targets, most), -1 - trees.leaves, np.int64)
    for target in range(targets):
        roots[target, : sizes[target]] = trees.roots[owners == target]
    return roots.reshape(-1)


def _weight_table(trees: Trees, targets: int, aggregate: str, counted: bool) -> np.ndarray:
    """Return the weights [leaves + 1, columns]; the last leaf has none."""
    columns = targets * (2 if counted else 1)
    if (trees.leaves + 1) * columns > _MOST_WEIGHTS:
        raise LimitError(f"weights of {trees.leaves:,} leaves for {columns:,} targets")
    table = np.full((trees.leaves + 1, columns), _absent(aggregate), np.float32)
    place = (trees.weight_leaves, trees.weight_targets)
    {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add).at(table, place, trees.weights)
    if counted:
        table[:, targets:] = 0
        table[trees.weight_leaves, targets + trees.weight_targets] = 1
    return table


def _adopt(raw: RawNode, trees: Trees, targets: int, aggregate: str, **more: Any) -> None:
    """Make operands of the trees, and leave the attributes of :class:`TreeEnsembleAttributes`."""
    if targets < 1:
        raise ModelError("the trees have no targets")
    if targets == 1:  # onnxruntime takes the first weight of each leaf, whatever its target
        leaves, first = np.unique(trees.weight_leaves, return_index=True)
        trees.weight_leaves, trees.weights = leaves, trees.weights[first]
        trees.weight_targets = np.zeros(len(leaves), np.int64)
    used = trees.weight_targets
    if used.size and (used.min() < 0 or used.max() >= targets):
        raise ModelError(f"weights of target {used.max() if used.min() >= 0 else used.min()}, there are {targets}")
    features = trees.features if trees.features.size else np.zeros(1, np.int64)
    if features.min() < 0 or features.max() >= 1 << 27:
        raise ModelError(f"nodes that ask for feature {features.min() if features.min() < 0 else features.max()}")
    counted = more.get("counted", False)
    owners = None if counted else _single_targets(trees, targets)
    roots = None if owners is None else _grouped(trees, targets, owners)
    if roots is None:
        table = _weight_table(trees, targets, aggregate, counted)
    else:
        table = np.full(trees.leaves + 1, _absent(aggregate), np.float32)
        table[trees.weight_leaves] = trees.weights
    nodes = len(trees.features)
    tables = (
        trees.codes if nodes else np.zeros(1, np.int32),
        trees.thresholds if nodes else np.zeros(1, np.float32),
        trees.children if nodes else np.full((1, 2), -1),
        trees.roots if roots is None else roots,
    )
    kinds = (np.int32, np.float32, np.int32, np.int32)
    raw.inputs[1:] = [raw.add_constant(np.asarray(each, kind)) for each, kind in zip(tables, kinds)]
    raw.inputs.append(raw.add_constant(table))
    raw.attributes.update(
        targets=targets,
        columns=1 if roots is not None else table.shape[1],
        trees=len(trees.roots),
        group=0 if roots is None else len(roots) // targets,
        levels=trees.levels(),
        features=int(features.max()) + 1,
        aggregate=aggregate,
        **more,
    )


def _take_base(raw: RawNode) -> None:
    tensor: TensorSource | None = raw.attributes.pop("base_values_as_tensor", None)
    values = raw.attributes.pop("base_values", ()) if tensor is None else tensor
    raw.attributes["base_values"] = tuple(float(each) for each in array_of(values, np.float32, "base_values"))
    raw.attributes.setdefault("post_transform", "NONE")


def _adapt_regressor(raw: RawNode) -> None:
    aggregate, targets = raw.attributes.pop("aggregate_function", "SUM"), raw.attributes.pop("n_targets", 1)
    if aggregate not in AGGREGATES:
        raise UnsupportedError.of_attribute("TreeEnsembleRegressor", "aggregate_function", aggregate, AGGREGATES)
    _take_base(raw)
    trees = trees_of_nodes(raw.attributes, "target")
    if raw.attributes["base_values"] and aggregate in ("SUM", "AVERAGE") and not _always_added(trees, targets):
        reason = "TreeEnsembleRegressor with base values, and leaves of some targets alone"  # 0 there in onnxruntime
        raise UnsupportedError(reason, hint="providers=['wgpu', 'cpu'] leaves it to the cpu")
    _adopt(raw, trees, targets, aggregate)


def _adapt_ensemble(raw: RawNode) -> None:
    numbers = {"aggregate_function": (AGGREGATES, 1), "post_transform": (_TRANSFORM_NUMBERS, 0)}
    names = {}
    for attribute, (supported, default) in numbers.items():
        number = raw.attributes.pop(attribute, default)
        if not 0 <= number < len(supported):
            raise UnsupportedError.of_attribute("TreeEnsemble", attribute, number, range(len(supported)))
        names[attribute] = supported[number]
    raw.attributes |= {"post_transform": names["post_transform"], "base_values": ()}
    targets = raw.attributes.pop("n_targets", 1)
    _adopt(raw, trees_of_leaves(raw.attributes), targets, names["aggregate_function"])


def _adapt_classifier(raw: RawNode) -> None:
    if raw.attributes.pop("classlabels_strings", ()):
        raise UnsupportedError(
            "TreeEnsembleClassifier with labels of text: a device holds numbers",
            hint="export the model with integers as class labels",
        )
    labels = tuple(raw.attributes.pop("classlabels_int64s", ()))
    _take_base(raw)
    trees = trees_of_nodes(raw.attributes, "class")
    used = np.unique(trees.weight_targets)
    added_to = tuple(bool(each) for each in np.isin(np.arange(len(labels)), used))
    counted = len(labels) > 1 and len(used) > 1 and not _always_added(trees, len(labels))
    is_positive = not (trees.weights < 0).any()
    more = {"labels": labels, "counted": counted, "added_to": added_to, "is_positive": is_positive}
    _adopt(raw, trees, len(labels), "SUM", **more)


def _always_added(trees: Trees, targets: int) -> bool:
    """Return whether some tree adds to each target, whatever leaf a row comes to: then all rows have all scores."""
    if targets == 1:
        return True
    if len(np.unique(trees.weight_leaves * targets + trees.weight_targets)) == trees.leaves * targets:
        return True
    owners = _single_targets(trees, targets)
    return owners is not None and len(np.unique(owners)) == targets


# -- sums over trees --------------------------------------------------------------------------------------------------


def _require_features(node: Node) -> Dim:
    """Return the number of rows, whose features the trees must have."""
    attributes: TreeEnsembleAttributes = node.attributes
    checks.require_choice(node, "post_transform", TRANSFORMS)
    rows, features = scores.row_sizes(node)
    fits = not ix.less(features, attributes.features)
    checks.require(fits, node, f"trees of {attributes.features} features, rows have {ix.text(features)}")
    return rows


def _aggregated(builder: Builder, node: Node) -> Value:
    """Return the sum, least or largest weight of the leaves of all trees, [rows, columns]."""
    attributes: TreeEnsembleAttributes = node.attributes
    tables = [node.operand(position) for position in range(_TABLES.start, _TABLES.stop)]
    rows = scores.feature_rows(builder, node)
    leaves = builder.op("TreeLeaves", rows, *tables, domain="loom", levels=attributes.levels)
    reduction = {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(attributes.aggregate, "ReduceSum")
    if attributes.group:
        sizes = np.asarray([0, attributes.targets, attributes.group], np.int64)
        leaves = builder.op("Reshape", leaves, builder.constant(sizes))
        gathered = builder.op("Gather", node.operand(WEIGHTS), leaves)
        return builder.op(reduction, gathered, scores.axes(builder, 2), keepdims=0)
    gathered = builder.op("Gather", node.operand(WEIGHTS), leaves)
    return builder.op(reduction, gathered, scores.axes(builder, 1), keepdims=0)


def _infer_regression(node: Node) -> Inferred:
    attributes: TreeEnsembleAttributes = node.attributes
    base = len(attributes.base_values)
    checks.require(base in (0, attributes.targets), node, f"{base} base values for {attributes.targets} targets")
    return [(FLOAT32, (_require_features(node), attributes.targets))]


def _expand_regression(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: TreeEnsembleAttributes = node.attributes
    result = _aggregated(builder, node)
    if attributes.aggregate == "AVERAGE":
        result = builder.op("Div", result, builder.scalar(float(attributes.trees), result))
    total = result
    if attributes.base_values:
        result = builder.op("Add", total, scores.floats(builder, attributes.base_values))
    if attributes.aggregate in ("MIN", "MAX"):  # as in onnxruntime, a target that no leaf added to is zero
        far = builder.op("Equal", total, builder.scalar(_absent(attributes.aggregate), total))
        result = builder.op("Where", far, builder.scalar(0.0, result), result)
    if attributes.targets == 1 and attributes.post_transform != "PROBIT":
        return [result]  # as in onnxruntime, nothing but a quantile transforms a single score
    return [scores.transformed(builder, result, attributes.post_transform)]


for _name, _adapter in (("TreeEnsembleRegressor", _adapt_regressor), ("TreeEnsemble", _adapt_ensemble)):
    register(
        name=_name,
        domain=DOMAIN,
        infer=_infer_regression,
        attributes=TreeEnsembleAttributes,
        adapters=((EVERY_VERSION, _adapter),),
        expand=_expand_regression,
        types=(FEATURES,),
    )


# -- TreeEnsembleClassifier -------------------------------------------------------------------------------------------


def _infer_classifier(node: Node) -> Inferred:
    attributes: TreeEnsembleAttributes = node.attributes
    rows, classes, base = _require_features(node), len(attributes.labels), len(attributes.base_values)
    _refuse_unclear(node, classes, base)
    return [(INT64, (rows,)), (FLOAT32, (rows, classes))]


def _refuse_unclear(node: Node, classes: int, base: int) -> None:
    """Raise :class:`UnsupportedError` for forms of which only onnxruntime's code says what they mean."""
    attributes: TreeEnsembleAttributes = node.attributes
    both = all(attributes.added_to)
    is_single = classes == 2 and base < 2 and not attributes.added_to[1]
    reasons = {
        "of one class": classes == 1,
        f"with {base} base values for {classes} classes": (classes > 2 and base not in (0, classes)) or base > classes,
        "with two classes of weights, and labels other than 0 and 1": (
            classes == 2 and both and attributes.labels != (0, 1)
        ),
        "with two base values, and weights of the second class": base == 2 and classes == 2 and attributes.added_to[1],
        "with a base value, and leaves of some classes alone": base == 1 and classes == 2 and attributes.counted,
        "with the quantile of a single score": (
            attributes.post_transform == "PROBIT" and classes == 2 and (is_single or attributes.counted)
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            hint = "providers=['wgpu', 'cpu'] leaves it to the cpu"
            raise UnsupportedError(f"TreeEnsembleClassifier {reason}", origin=node.origin, hint=hint)


def _expand_classifier(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: TreeEnsembleAttributes = node.attributes
    total = _aggregated(builder, node)
    counts = None
    if attributes.counted:
        total, counts = builder.ops("Split", total, axis=1, num_outputs=2)
    if attributes.targets > 2:
        return _many_classes(builder, attributes, total, counts)
    first, second = builder.ops("Split", total, axis=1, num_outputs=2)
    if all(attributes.added_to):
        has_second = None
        if counts is not None:
            _, number = builder.ops("Split", counts, axis=1, num_outputs=2)
            has_second = builder.op("Greater", number, builder.scalar(0.0, number))
        return _two_classes(builder, attributes, first, second, has_second)
    return _one_score(builder, attributes, first, second)


def _many_classes(
    builder: Builder, attributes: TreeEnsembleAttributes, total: Value, counts: Value | None
) -> Sequence[Value]:
    """Choose the largest score among the classes that a leaf added to, or that have a base value."""
    if attributes.base_values:
        total = builder.op("Add", total, scores.floats(builder, attributes.base_values))
        ranked = total
    else:
        if counts is None:
            counts = scores.floats(builder, [float(each) for each in attributes.added_to])
        has_score = builder.op("Greater", counts, builder.scalar(0.0, counts))
        ranked = builder.op("Where", has_score, total, builder.scalar(-_FAR, total))
    label = scores.chosen_label(builder, ranked, attributes.labels)
    return [label, scores.transformed(builder, total, attributes.post_transform)]


def _label(builder: Builder, attributes: TreeEnsembleAttributes, score: Value, least: float) -> Value:
    """Return the label of the second class where a score [rows, 1] is above ``least``, else that of the first one."""
    above = builder.op("Greater", score, builder.scalar(least, score))
    negative, positive = attributes.labels
    return scores.label_where(builder, builder.op("Squeeze", above, scores.axes(builder, 1)), positive, negative)


def _one_score(builder: Builder, attributes: TreeEnsembleAttributes, first: Value, second: Value) -> Sequence[Value]:
    """Classify by the sum of weights of one class, of two: it is the score of the second one, whichever it is of."""
    transform, base = attributes.post_transform, attributes.base_values
    least = 0.5 if attributes.is_positive else 0.0
    if attributes.added_to[1]:  # a base value would be that of the first class, which has no score
        pair = scores.side_by_side(builder, first, second)
        return [_label(builder, attributes, second, least), scores.transformed(builder, pair, transform)]
    score = builder.op("Add", first, builder.scalar(base[0], first)) if base else first
    label = _label(builder, attributes, score, least)
    if len(base) == 2:  # as in onnxruntime, the second class has no score, and its base value none either
        return [label, scores.transformed(builder, scores.side_by_side(builder, score, second), transform)]
    pair = (scores.complement if attributes.is_positive else scores.opposites)(builder, score, transform)
    return [label, pair]


def _two_classes(
    builder: Builder, attributes: TreeEnsembleAttributes, first: Value, second: Value, has_second: Value | None
) -> Sequence[Value]:
    """Classify by the second score; a row that has none, by the first one, as the score of the second class."""
    if attributes.base_values:
        first = builder.op("Add", first, builder.scalar(attributes.base_values[0], first))
    transform = attributes.post_transform
    pair = scores.transformed(builder, scores.side_by_side(builder, first, second), transform)
    if has_second is None:
        return [_label(builder, attributes, second, 0.0), pair]
    deciding = builder.op("Where", has_second, second, first)
    pair = builder.op("Where", has_second, pair, scores.opposites(builder, first, transform))
    return [_label(builder, attributes, deciding, 0.0), pair]


register(
    name="TreeEnsembleClassifier",
    domain=DOMAIN,
    infer=_infer_classifier,
    attributes=TreeEnsembleAttributes,
    adapters=((EVERY_VERSION, _adapt_classifier),),
    expand=_expand_classifier,
    types=(FEATURES,),
)
