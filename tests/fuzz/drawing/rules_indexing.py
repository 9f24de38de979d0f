"""Operands of operators that read or write at given places, and of those that look for places."""

from __future__ import annotations

from typing import Any

import numpy as np

from .node import NodeDraw, rule
from .oracle import Known
from .source import Unsuitable

Found = dict[str, Any]


def indices(d: NodeDraw, name: str, shape: Any, size: int, *, negative: bool = True) -> Known:
    """Places along an axis of ``size``, counted from the end now and then; half of them inputs of the model."""
    kind = d.type(name)
    low = -size if negative and d.growth.opset >= 11 and d.flip() else 0
    array = np.asarray(d.growth.generator.integers(low, size, shape)).astype(kind)
    return d.growth.add(array, not d.growth.inputs_only and d.flip())


@rule("Gather")
def gather(d: NodeDraw) -> Found:
    value = d.ranked("data", 1, 5, empty=False)
    axis = d.axis(value.rank)
    return {"data": value, "axis": axis, "indices": indices(d, "indices", d.shape(0, 2), value.shape[axis])}


@rule("GatherElements")
def gather_elements(d: NodeDraw) -> Found:
    value = d.ranked("data", 1, 5, empty=False)
    axis = d.axis(value.rank)
    shape = [d.integer(1, size) for size in value.shape]
    shape[axis] = d.integer(0, 4)
    return {"data": value, "axis": axis, "indices": indices(d, "indices", shape, value.shape[axis])}


@rule("GatherND")
def gather_nd(d: NodeDraw) -> Found:
    value = d.ranked("data", 1, 5, empty=False)
    batch = d.integer(0, min(value.rank - 1, 2)) if d.has("batch_dims") else 0
    depth = d.integer(1, value.rank - batch)
    shape = [*value.shape[:batch], *d.shape(0, 2)]
    columns = [d.growth.generator.integers(0, value.shape[batch + at], shape) for at in range(depth)]
    found: Found = {"data": value, "indices": np.stack(columns, -1).astype(np.int64)}
    return {**found, "batch_dims": batch} if d.has("batch_dims") else found


@rule("ScatterElements", "Scatter")
def scatter_elements(d: NodeDraw) -> Found:
    """No place twice where the last write would win."""
    value = d.ranked("data", 1, 4, empty=False)
    axis = d.axis(value.rank)
    shape = [d.integer(1, size) for size in value.shape]
    places = np.argsort(d.growth.generator.random(value.shape), axis)
    places = places[tuple(slice(size) for size in shape)].astype(d.type("indices"))
    found: Found = {"data": value, "indices": places, "axis": axis}
    if d.has("reduction"):
        found["reduction"] = _reduction(d, value)
    return {**found, "updates": d.leaf("updates", shape)}


def _reduction(d: NodeDraw, value: Known) -> str:
    if value.dtype == "bool":
        return "none"
    return d.choose("none", "add", "mul", *(("max", "min") if d.version >= 18 else ()))


@rule("ScatterND")
def scatter_nd(d: NodeDraw) -> Found:
    value = d.ranked("data", 1, 4, empty=False)
    depth = d.integer(1, value.rank)
    places = np.stack(np.unravel_index(np.arange(int(np.prod(value.shape[:depth]))), value.shape[:depth]), -1)
    count = d.integer(1, len(places))
    chosen = d.growth.generator.permutation(places)[:count].astype(np.int64)
    found: Found = {"data": value, "indices": chosen}
    if d.has("reduction"):
        found["reduction"] = _reduction(d, value)
    return {**found, "updates": d.leaf("updates", (count, *value.shape[depth:]))}


@rule("TensorScatter")
def tensor_scatter(d: NodeDraw) -> Found:
    value = d.ranked("past_cache", 3, 4, empty=False)
    axis = d.integer(1, value.rank - 1)
    length = d.integer(1, value.shape[axis])
    shape = [length if at == axis else size for at, size in enumerate(value.shape)]
    mode = d.choose("linear", "circular")
    high = value.shape[axis] - length if mode == "linear" else value.shape[axis] - 1
    starts = d.growth.generator.integers(0, high + 1, (value.shape[0],)).astype(np.int64)
    return {
        "past_cache": value,
        "update": d.leaf("update", shape),
        "write_indices": starts,
        "mode": mode,
        "axis": axis,
    }


@rule("OneHot")
def one_hot(d: NodeDraw) -> Found:
    depth = d.integer(1, 6)
    kind = d.type("indices")
    shape = d.shape(0, 3)
    array = np.asarray(d.growth.generator.integers(0 if kind.startswith("u") else -depth, depth, shape)).astype(kind)
    return {
        "indices": d.growth.add(array, d.flip() and not d.growth.inputs_only),
        "depth": np.array(depth),
        "values": np.array([0, 1]),
        "axis": d.integer(-len(shape) - 1, len(shape)),
    }


@rule("NonZero")
def nonzero(d: NodeDraw) -> Found:
    return {"X": d.ranked("X", 1, 3)}


@rule("Compress")
def compress(d: NodeDraw) -> Found:
    value = d.ranked("input", 1, 4, empty=False)
    axis = d.axis(value.rank) if d.flip() else None
    size = value.array.size if axis is None else value.shape[axis]
    condition = d.growth.generator.integers(0, 2, (d.integer(1, size),)).astype(np.bool_)
    return {"input": value, "axis": axis, "condition": condition}


@rule("Unique")
def unique(d: NodeDraw) -> Found:
    """onnx's reference evaluator sorts any type; onnxruntime, which does not, has few types."""
    value = d.ranked("X", 1, 4, empty=False)
    ordered = d.integer(0, 1) if value.dtype in ("float32", "int64", "int8") else 1
    return {
        "X": value,
        "axis": d.axis(value.rank) if d.flip() else None,
        "sorted": ordered,
        "_outputs": d.integer(1, 4),
    }


@rule("NonMaxSuppression")
def suppression(d: NodeDraw) -> Found:
    """Boxes of uneven corners, so that no two overlaps or scores are equal."""
    batches, classes, count = d.integer(1, 2), d.integer(1, 3), d.integer(1, 9)
    corners = d.growth.generator.uniform(0, 1, (batches, count, 2))
    sizes = d.growth.generator.uniform(0.3, 1, (batches, count, 2))
    scores = d.growth.generator.uniform(0, 1, (batches, classes, count)).astype(np.float32)
    return {
        "boxes": d.growth.add(np.concatenate([corners, corners + sizes], -1).astype(np.float32), False),
        "scores": d.growth.add(scores, False),
        "max_output_boxes_per_class": d.given("max_output_boxes_per_class", np.array([d.integer(1, 5)]), constant=True),
        "iou_threshold": d.given("iou_threshold", np.array([0.3], np.float32), constant=True),
        "score_threshold": d.given("score_threshold", np.array([0.2], np.float32), constant=True),
        "center_point_box": d.integer(0, 1),
    }


@rule("TfIdfVectorizer")
def tf_idf(d: NodeDraw) -> Found:
    kind = d.type("X")
    tokens = np.asarray(d.growth.generator.integers(0, 5, d.choose((6,), (2, 5)))).astype(kind)
    weights = {"weights": [0.5, 1.0, 2.0, 0.25, 1.5]} if d.flip() else {}
    return {
        "X": d.growth.add(tokens, False),
        "mode": d.choose("TF", "IDF", "TFIDF"),
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": d.integer(0, 2),
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4],
        "pool_int64s": [1, 2, 3, 1, 2, 3, 4],
        "pool_strings": None,
        **weights,
    }


@rule("EmbedLayerNormalization", domain="com.microsoft")
def embed(d: NodeDraw) -> Found:
    """Rows of tables for tokens, segments and positions, added and normalised."""
    batch, length, hidden = d.integer(1, 3), d.integer(1, 4), d.choose(3, 4, 8)
    found: Found = {}
    for name, rows in (("input_ids", 7), ("segment_ids", 2)):
        array = d.growth.generator.integers(0, rows, (batch, length)).astype(np.int32)
        found[name] = d.growth.add(array, False)
    segments = d.flip()
    return {
        **found,
        "segment_ids": found["segment_ids"] if segments else None,
        "word_embedding": d.leaf("word_embedding", (7, hidden)),
        "position_embedding": d.leaf("position_embedding", (5, hidden)),
        "segment_embedding": d.leaf("segment_embedding", (2, hidden)) if segments else None,
        "gamma": d.leaf("gamma", (hidden,)),
        "beta": d.leaf("beta", (hidden,)),
        "epsilon": 0.1,
        "mask_index_type": None,
        "_outputs": 2,
    }


@rule("MaxRoiPool")
def largest_of_regions(d: NodeDraw) -> Found:
    n, c, h, w = d.integer(1, 2), d.integer(1, 3), d.integer(2, 6), d.integer(2, 6)
    count = d.integer(1, 3)
    corners = np.sort(d.growth.generator.integers(0, 6, (count, 2, 2)), axis=1).reshape(count, 4)
    batches = d.growth.generator.integers(0, n, (count, 1))
    return {
        "X": d.leaf("X", (n, c, h, w)),
        "rois": d.given("rois", np.concatenate([batches, corners], 1).astype(np.float32), constant=True),
        "pooled_shape": [d.integer(1, 3), d.integer(1, 3)],
        "spatial_scale": d.choose(1.0, 0.5),
    }


@rule("RoiAlign")
def roi_align(d: NodeDraw) -> Found:
    image = d.ranked("X", 4, 4, empty=False)
    n, _, h, w = image.shape
    count = d.integer(1, 3)
    corners = d.growth.generator.uniform(0, 0.5, (count, 4)) + [0, 0, 0.5, 0.5]
    rois = np.round(corners * [w, h, w, h] * 4 + 1) / 8
    if image.dtype not in d.types("rois"):
        raise Unsuitable
    batch = d.growth.generator.integers(0, n, (count,)).astype(np.int64)
    mode = d.choose("avg", "max")
    return {
        "X": image,
        "rois": rois.astype(image.array.dtype),
        "batch_indices": batch,
        "output_height": d.integer(1, 3),
        "output_width": d.integer(1, 3),
        "sampling_ratio": 1 if mode == "max" else d.integer(1, 2),  # onnxruntime's maxima of several are wrong
        "spatial_scale": d.choose(1.0, 0.5),
        "mode": mode,
        **(
            {"coordinate_transformation_mode": d.choose("half_pixel", "output_half_pixel")}
            if d.has("coordinate_transformation_mode")
            else {}
        ),
    }
