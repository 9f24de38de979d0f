"""NonMaxSuppression: of boxes that overlap, those with the highest scores.

With operands that are known at compile time the result is a constant.  Else the operator is *split* into builder: boxes
are sorted by score, the kernel family ``suppress`` chooses among them, the count of those chosen is read back, and
their positions are gathered.  Thresholds and the number of boxes for each class are operands: they may change between
runs.

The rules are those of ONNX's reference: boxes of one score are in the order of their indices, a box is dropped if its
intersection over union with one that was chosen before is *larger* than the threshold, boxes without area drop none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT32, INT64
from ....runtime.plan.errors import NotKnownError, UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...target import PORTABLE_LOOP_TRIPS
from .. import checks
from ..registry import Builder, Inferred, SplitBuilder, register
from .nonzero import positions
from .topk import top_indices

#: Rounds of loops of one thread in one call, on any device: some are for what is fused into the kernel
ROUNDS = PORTABLE_LOOP_TRIPS - 5_535
#: Positions of the operands of ``loom.ChooseBoxes``
CORNERS, SCORES, ORDER, MOST, OVERLAP, SCORE, BEFORE = range(7)

_INT32 = frozenset({"int32"})
_FLOAT32 = frozenset({"float32"})


# -- the choice -------------------------------------------------------------------------------------------------------


@record
class ChooseBoxesAttributes:
    """Of boxes in order of scores, ``block`` at a time, blocks from ``first`` to ``stop`` are decided.

    ``rounds`` is how many rounds the loops of a thread make at most.
    """

    block: int
    first: int
    stop: int
    rounds: int


def _infer_choose(node: Node) -> Inferred:
    return [(INT32, node.operand(ORDER).shape)]


def choose_boxes_array(node: Node, operands: Sequence[np.ndarray | None]) -> np.ndarray:
    """Evaluate ``loom.ChooseBoxes`` with numpy: 1 at the positions, in order of scores, of chosen boxes."""
    corners, scores, order, most, overlap, least, before = operands
    assert corners is not None and scores is not None and order is not None and most is not None
    attributes: ChooseBoxesAttributes = node.attributes
    result = np.zeros(order.shape, np.int32) if before is None else before.copy()
    stop = min(attributes.stop * attributes.block, order.shape[-1])
    for batch, kind in np.ndindex(order.shape[:2]):
        chosen = result[batch, kind]
        for place in range(attributes.first * attributes.block, stop):
            box = order[batch, kind, place]
            if chosen.sum() >= most.reshape(-1)[0]:
                break
            if least is not None and not scores[batch, kind, box] > least.reshape(-1)[0]:
                break
            others = corners[batch, order[batch, kind][chosen != 0]]
            limit = np.float32(0) if overlap is None else overlap.reshape(-1)[0]
            chosen[place] = not (_overlaps(corners[batch, box], others) > limit).any()
    return result


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection over union of a box with each of the others, -1 where they do not intersect."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    inner = (high - low).prod(-1)
    areas = (others[:, 2:] - others[:, :2]).prod(-1)
    own = (box[2:] - box[:2]).prod()
    union = own + areas - inner
    valid = (high > low).all(-1) & (inner > 0) & (own > 0) & (areas > 0) & (union > 0)
    with np.errstate(all="ignore"):
        return np.where(valid, inner / union, np.float32(-1))


register(
    name="ChooseBoxes",
    domain="loom",
    infer=_infer_choose,
    attributes=ChooseBoxesAttributes,
    family="suppress",
    types=(_FLOAT32, _FLOAT32, _INT32, _INT32, _FLOAT32, _FLOAT32, _INT32),
)


@record
class SuppressionAttributes:
    """``center_point_box``: boxes are [x, y, width, height] of their middle instead of two opposite corners."""

    center_point_box: int = 0


def _corners(builder: Builder, boxes: Value, centered: bool) -> Value:
    """Build [batches, boxes, 4]: the lower corner, then the upper one."""

    def part(start: int) -> Value:
        bounds = (builder.constant(np.array([number])) for number in (start, start + 2, 2))
        return builder.op("Slice", boxes, *bounds)

    one, other = part(0), part(2)
    if centered:
        half = builder.op("Div", other, builder.scalar(2.0, other))
        one, other = builder.op("Sub", one, half), builder.op("Add", one, half)
        return builder.op("Concat", one, other, axis=2)
    return builder.op("Concat", builder.op("Min", one, other), builder.op("Max", one, other), axis=2)


def _padded(builder: Builder, value: Value, axis: int, fill: float) -> Value:
    """Pad an axis of a declared size to the most that it may have."""
    size = value.shape[axis]
    if not isinstance(size, ix.Index):
        return value
    most = ix.bounds(size)[1]
    room = (0,) * (value.rank + axis) + (most - size,) + (0,) * (value.rank - axis - 1)
    pads = builder.op("Dimensions", domain="loom", elements=room, shape=(len(room),), dtype=INT64)
    padded = builder.op("Pad", value, pads, builder.scalar(fill, value))
    return builder.op("View", padded, domain="loom", shape=(*value.shape[:axis], most, *value.shape[axis + 1 :]))


def _infer_order(node: Node) -> Inferred:
    batches, kinds, boxes = node.operand(0).shape
    return [(INT32, (batches, kinds, ix.bounds(boxes)[1]))]


def _expand_order(builder: Builder, node: Node) -> Sequence[Value]:
    """Sort the scores; behind those of a declared number of boxes there are some of no boxes, the least of all."""
    scores = _padded(builder, node.operand(0), 2, -np.inf)
    return [top_indices(builder, scores, 2, ix.number(scores.shape[2]), True)]


def _expand_choose(builder: Builder, node: Node) -> Sequence[Value]:
    count = node.operand(0).shape[1]
    boxes, scores = _padded(builder, node.operand(0), 1, 0.0), _padded(builder, node.operand(1), 2, -np.inf)
    order = node.operand(2)
    size = ix.number(order.shape[2])
    most, bound = _most(builder, node, size)
    thresholds = [_optional_operand(node, position) for position in (4, 5)]
    overlap, least = (
        None if each is None else builder.op("Reshape", each, builder.constant(np.array([1]))) for each in thresholds
    )
    corners = _corners(builder, boxes, bool(node.attributes.center_point_box))
    block = 64 if size <= 64 else 256
    chosen = None
    for first, stop, rounds in selection_calls(size, block, bound):
        chosen = builder.op(
            "ChooseBoxes",
            *(corners, scores, order, most, overlap, least, chosen),
            domain="loom",
            block=block,
            first=first,
            stop=stop,
            rounds=rounds,
        )
    assert chosen is not None, "there are boxes"
    if isinstance(count, ix.Index):  # behind them there are places without boxes
        number = builder.op("Dimensions", domain="loom", elements=(count,), shape=(), dtype=INT32)
        chosen = builder.op("Where", builder.op("Less", order, number), chosen, builder.scalar(0, chosen))
    return [chosen]


def selection_calls(size: int, block: int, most: int) -> list[tuple[int, int, int]]:
    """Return the range of blocks ``[first, stop)`` of each call, and the iterations of its loops.

    A call has at most :data:`ROUNDS` iterations, unless a single block needs more.
    """
    blocks = -(-size // block)
    fixed = 4 * (-(-size // 32)) + 64
    calls, first, rounds = [], 0, fixed
    for number in range(blocks):
        own = number * block // 32 + min(number * block, most) + 3 * block
        if number > first and rounds + own > ROUNDS:
            calls.append((first, number, rounds))
            first, rounds = number, fixed
        rounds += own
    return [*calls, (first, blocks, rounds)]


def _optional_operand(node: Node, position: int) -> Value | None:
    """Return an optional operand; one without elements counts as omitted."""
    value = node.optional(position)
    return None if value is None or value.elements == 0 else value


def _most(builder: Builder, node: Node, size: int) -> tuple[Value, int]:
    """Build the limit of boxes per class, [1] int32, and return it with its upper bound at compile time."""
    most = _optional_operand(node, 3)
    assert most is not None, "without it nothing is chosen"
    bound = size if most.static_value is None else min(int(most.static_value.reshape(-1)[0]), size)
    bounded = builder.op("Min", most, builder.scalar(size, most))
    return builder.op("Cast", builder.op("Reshape", bounded, builder.constant(np.array([1]))), to=INT32.onnx), bound


register(
    name="SortedScores",
    domain="loom",
    infer=_infer_order,
    expand=_expand_order,
    types=(_FLOAT32,),
)
register(
    name="KeptBoxes",
    domain="loom",
    attributes=SuppressionAttributes,
    infer=lambda node: [(INT32, node.operand(2).shape)],
    expand=_expand_choose,
    types=(_FLOAT32, _FLOAT32, _INT32, checks.INDICES, _FLOAT32, _FLOAT32),
)


# -- the result, once its size is known -------------------------------------------------------------------------------


def _infer_boxes(node: Node) -> Inferred:
    return [(INT64, (node.operand(0).shape[1], 3))]


def _expand_boxes(builder: Builder, node: Node) -> Sequence[Value]:
    selected = builder.op("Transpose", node.operand(0), perm=(1, 0))  # batch, class, place in order of scores
    box = builder.op("GatherND", node.operand(1), selected)
    column = builder.op("Unsqueeze", builder.op("Cast", box, to=INT64.onnx), builder.constant(np.array([1])))
    starts = (builder.constant(np.array([number])) for number in (0, 2, 1))
    return [builder.op("Concat", builder.op("Slice", selected, *starts), column, axis=1)]


register(
    name="BoxesAt",
    domain="loom",
    infer=_infer_boxes,
    expand=_expand_boxes,
    types=(checks.INDICES, _INT32),
)


# -- NonMaxSuppression ------------------------------------------------------------------------------------------------


def _selected_boxes(node: Node) -> np.ndarray:
    """Return the result where it is known. Raise :class:`NotKnownError` where it is not."""
    boxes, scores = node.operand(0), node.operand(1)
    for position, value in enumerate((boxes, scores)):
        if not value.dtype.is_float:
            raise UnsupportedError.of_type(node.op, position, value.dtype.name, _FLOAT32, origin=node.origin)
    checks.require(boxes.rank == 3 and scores.rank == 3, node, "boxes and scores have three axes each")
    checks.require(boxes.shape[2] == 4, node, "a box has four numbers")
    fits = boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2]
    checks.require(fits, node, "boxes are [batches, boxes, 4], scores [batches, classes, boxes]")
    most = _optional_operand(node, 2)
    if (
        most is None
        or scores.elements == 0
        or (most.static_value is not None and int(most.static_value.reshape(-1)[0]) <= 0)
    ):
        return np.zeros((0, 3), np.int64)
    required = [
        checks.static_elements(node, node.operand(number), what)
        for number, what in enumerate(("boxes", "scores", "the number of boxes"))
    ]
    thresholds = [
        None if value is None else checks.static_elements(node, value, "the threshold") for value in node.inputs[3:]
    ]
    if any(array is not None and checks.is_symbolic(array) for array in (*required, *thresholds)):
        raise NotKnownError("which boxes overlap must be known", origin=node.origin)
    return suppression_array(node.attributes, *required, *thresholds)


def suppression_array(
    attributes: SuppressionAttributes,
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray,
    overlap: np.ndarray | None = None,
    least: np.ndarray | None = None,
) -> np.ndarray:
    """Evaluate NonMaxSuppression with numpy; ``most`` is positive."""
    one, other = boxes[..., :2], boxes[..., 2:]
    if attributes.center_point_box:
        corners = np.concatenate([one - other / np.float32(2), one + other / np.float32(2)], -1)
    else:
        corners = np.concatenate([np.minimum(one, other), np.maximum(one, other)], -1)
    order = np.argsort(-scores, axis=2, kind="stable").astype(np.int32)
    thresholds = [None if each is None or not each.size else each for each in (overlap, least)]
    whole = Node(0, "ChooseBoxes", "loom", [], ChooseBoxesAttributes(max(scores.shape[2], 1), 0, 1, 0), ())
    chosen = choose_boxes_array(whole, [corners, scores, order, most, *thresholds, None])
    coordinates = np.argwhere(chosen)
    return np.stack([coordinates[:, 0], coordinates[:, 1], order[tuple(coordinates.T)]], 1).astype(np.int64)


def _split(
    builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: SuppressionAttributes
) -> None:
    boxes, scores, *rest = inputs
    order = builder.apply("SortedScores", scores, domain="loom")
    centered = attributes.center_point_box
    keep_mask = builder.apply("KeptBoxes", boxes, scores, order, *rest, domain="loom", center_point_box=centered)
    builder.apply_to(outputs, "BoxesAt", positions(builder, keep_mask), order, domain="loom")


register(
    name="NonMaxSuppression",
    attributes=SuppressionAttributes,
    infer=lambda node: [(INT64, _selected_boxes(node).shape)],
    expand=lambda builder, node: [builder.constant(_selected_boxes(node))],
    fold=lambda node, *operands: _selected_boxes(node),
    split=_split,
    types=(_FLOAT32, _FLOAT32, checks.INDICES, _FLOAT32, _FLOAT32),
)
