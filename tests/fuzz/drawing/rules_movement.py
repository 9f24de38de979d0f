"""Operands of operators that move elements: views, joins, cuts, padding, and what makes tensors from sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import numpy_helper

from shaderloom.runtime.plan.dtypes import BY_NAME

from .node import MOST_ELEMENTS, NodeDraw, rule
from .source import Unsuitable

Found = dict[str, Any]


def integers(d: NodeDraw, name: str, numbers: Any) -> Any:
    """Numbers for an attribute or an operand, whichever the version has."""
    if name in d.form.attributes:
        return [int(number) for number in numbers]
    return np.array(numbers, d.choose(*d.types(name)))


@rule("Transpose")
def transpose(d: NodeDraw) -> Found:
    value = d.pick("data")
    if d.rarely(5):
        return {"data": value, "perm": None}
    order = list(range(value.rank))
    for axis in range(value.rank - 1):
        other = d.integer(axis, value.rank - 1)
        order[axis], order[other] = order[other], order[axis]
    return {"data": value, "perm": order or None}


@rule("Reshape")
def reshape(d: NodeDraw) -> Found:
    value = d.pick("data")
    sizes = list(value.shape)
    for _ in range(d.integer(1, 3)):
        action, at = d.integer(0, 2), d.integer(0, max(len(sizes) - 1, 0))
        if action == 0 and len(sizes) > 1 and at + 1 < len(sizes):
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif action == 1 and len(sizes) < 6:
            sizes.insert(at, 1)
        elif sizes and sizes[at] > 1:
            divisor = d.choose(*(k for k in range(2, sizes[at] + 1) if sizes[at] % k == 0))
            sizes[at : at + 1] = [divisor, sizes[at] // divisor]
    zero = 0 in sizes
    found: Found = {"data": value}
    if zero and "allowzero" not in d.form.attributes and sizes != list(value.shape):
        raise Unsuitable
    if "allowzero" in d.form.attributes:
        found["allowzero"] = int(zero)
    if sizes and not zero and d.flip():
        sizes[d.integer(0, len(sizes) - 1)] = -1
    elif sizes and not zero and value.rank and sizes[0] == value.shape[0] and d.flip():
        sizes[0] = 0
    return {**found, "shape": np.array(sizes, np.int64)}


@rule("Flatten")
def flatten(d: NodeDraw) -> Found:
    value = d.pick("input")
    return {"input": value, "axis": d.integer(-value.rank if d.growth.opset >= 11 else 0, value.rank)}


@rule("Squeeze")
def squeeze(d: NodeDraw) -> Found:
    value = d.pick("data", lambda value: 1 in value.shape)
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    if d.rarely():
        return {"data": value}
    axis = d.choose(*ones)
    return {"data": value, "axes": integers(d, "axes", [axis - value.rank if _signed(d) and d.flip() else axis])}


def _signed(d: NodeDraw) -> bool:
    return d.growth.opset >= 11


@rule("Unsqueeze")
def unsqueeze(d: NodeDraw) -> Found:
    value = d.pick("data", lambda value: value.rank < 6)
    axes = {d.integer(0, value.rank) for _ in range(d.integer(1, 2))}
    axes = {axis for axis in axes if axis < value.rank + len(axes)}
    negative = _signed(d) and d.flip()
    return {"data": value, "axes": integers(d, "axes", [a - value.rank - len(axes) if negative else a for a in axes])}


@rule("Expand")
def expand(d: NodeDraw) -> Found:
    value = d.pick("input")
    sizes = [d.choose(1, 2, 3, 0) if size == 1 else d.choose(size, 1) for size in value.shape]
    if d.rarely() and len(sizes) < 6:
        sizes = [d.integer(1, 3), *sizes]
    if math.prod(max(pair) for pair in zip(sizes[::-1], value.shape[::-1])) * (sizes or [1])[0] > MOST_ELEMENTS:
        raise Unsuitable
    return {"input": value, "shape": np.array(sizes, np.int64)}


@rule("Tile")
def tile(d: NodeDraw) -> Found:
    value = d.ranked("input", 1)
    return {
        "input": value,
        "repeats": np.array([d.choose(1, 2, 3, 0) if d.flip() else 1 for _ in value.shape], np.int64),
    }


@rule("Slice")
def cut(d: NodeDraw) -> Found:
    value = d.ranked("data", 1)
    count = d.integer(1, min(value.rank, 3))
    axes = sorted({d.integer(0, value.rank - 1) for _ in range(count)})
    if not d.has("steps") or d.flip():
        steps = [1] * len(axes)
    else:
        steps = [d.choose(1, 2, -1, -2, 3) for _ in axes]
    ranges = [(-value.shape[axis] - 1, value.shape[axis] + 1) for axis in axes]
    starts, ends = ([d.integer(*bounds) for bounds in ranges] for _ in range(2))
    ends = [2**31 - 1 if d.rarely(8) and step > 0 else end for end, step in zip(ends, steps)]
    if d.form.input("starts"):
        d.bind("starts", d.choose("int64", "int32"))
    if axes == list(range(len(axes))) and steps == [1] * len(axes) and d.flip():
        names: Found = {}
    else:
        signed = [axis - value.rank if d.growth.opset >= 11 and d.rarely() else axis for axis in axes]
        names = {"axes": integers(d, "axes", signed)}
        if d.has("steps"):
            names["steps"] = integers(d, "steps", steps)
    return {"data": value, "starts": integers(d, "starts", starts), "ends": integers(d, "ends", ends), **names}


@rule("Split")
def split(d: NodeDraw) -> Found:
    name = "input"
    value = d.ranked(name, 1)
    axis = d.axis(value.rank)
    size = value.shape[axis]
    parts = d.integer(1, 3)
    if d.has("num_outputs") and d.flip() and size:
        parts = min(parts, size)
        chunk = -(-size // parts)
        if chunk * (parts - 1) >= size:
            raise Unsuitable
        return {name: value, "axis": axis, "num_outputs": parts, "_outputs": parts}
    cuts = sorted(d.integer(0, size) for _ in range(parts - 1))
    sizes = [right - left for left, right in zip([0, *cuts], [*cuts, size])]
    return {name: value, "axis": axis, "split": integers(d, "split", sizes), "num_outputs": None, "_outputs": parts}


@rule("Concat")
def concat(d: NodeDraw) -> Found:
    name = d.form.inputs[0].name
    first = d.ranked(name, 1)
    axis = d.integer(0, first.rank - 1)

    def fits(other: Any) -> bool:
        return (
            other.dtype == first.dtype
            and other.rank == first.rank
            and all(left == right for at, (left, right) in enumerate(zip(other.shape, first.shape)) if at != axis)
        )

    values = [first]
    found = [other for other in d.growth.values if fits(other)]
    for _ in range(d.integer(0, 3) if not d.rarely(8) else d.integer(8, 12)):
        if d.flip():
            values.append(d.choose(*found))
        else:
            values.append(
                d.leaf(name, [d.integer(0, 3) if at == axis else size for at, size in enumerate(first.shape)])
            )
    return {name: values, "axis": axis - first.rank if d.growth.opset >= 11 and d.flip() else axis}


@rule("Pad")
def pad(d: NodeDraw) -> Found:
    value = d.ranked("data", 1, 5)
    modes = ("constant", "edge", "reflect", *(("wrap",) if d.version >= 19 else ()))
    mode = d.choose(*modes)
    if mode != "constant" and 0 in value.shape:
        raise Unsuitable
    axes = list(range(value.rank))
    found: Found = {"data": value, "mode": mode}
    if d.has("axes") and d.flip():
        axes = sorted({d.integer(0, value.rank - 1) for _ in range(2)})
        found["axes"] = np.array([axis - value.rank if d.flip() else axis for axis in axes], np.int64)
    pads = [d.integer(-1 if d.rarely() else 0, 2) for _ in range(2 * len(axes))]
    for position, axis in enumerate(axes):
        size = value.shape[axis]
        most = size - 1 if mode == "reflect" else size if mode == "wrap" else 2
        for side in (position, position + len(axes)):
            pads[side] = min(pads[side], most)
        if mode != "constant" and min(pads[position], pads[position + len(axes)]) < 0:
            pads[position] = pads[position + len(axes)] = 0
        if size + min(pads[position], 0) + min(pads[position + len(axes)], 0) < 0:
            raise Unsuitable
    if d.has("constant_value") and mode == "constant" and d.flip():
        found["constant_value"] = np.asarray(1).astype(value.array.dtype)
    return {**found, "pads": integers(d, "pads", pads)}


@rule("CenterCropPad")
def center_crop(d: NodeDraw) -> Found:
    value = d.ranked("input_data", 1, 4)
    axes = sorted({d.integer(0, value.rank - 1) for _ in range(2)})
    sizes = [d.integer(1, 6) for _ in axes]
    return {"input_data": value, "axes": axes, "shape": np.array(sizes, d.choose("int64", "int32"))}


@rule("DepthToSpace", "SpaceToDepth")
def blocks(d: NodeDraw) -> Found:
    deep = d.form.name == "DepthToSpace"
    shape = (d.integer(1, 2), d.choose(4, 8), d.integer(1, 3), d.integer(1, 3))
    if not deep:
        shape = (shape[0], d.integer(1, 3), 2 * shape[2], 2 * shape[3])
    value = d.leaf("input", shape)
    mode = {"mode": d.choose("DCR", "CRD")} if d.has("mode") else {}
    return {"input": value, "blocksize": 2, **mode}


@rule("Trilu")
def trilu(d: NodeDraw) -> Found:
    value = d.ranked("input", 2)
    return {"input": value, "k": np.array(d.integer(-3, 3), np.int64) if d.flip() else None}


@rule("ReverseSequence")
def reverse_sequence(d: NodeDraw) -> Found:
    value = d.ranked("input", 2, empty=False)
    batch = d.integer(0, 1)
    lengths = d.growth.generator.integers(1, value.shape[1 - batch] + 1, (value.shape[batch],))
    return {"input": value, "batch_axis": batch, "time_axis": 1 - batch, "sequence_lens": lengths.astype(np.int64)}


@rule("Shape")
def shape(d: NodeDraw) -> Found:
    value = d.pick("data")
    bounds = {name: d.integer(-value.rank, value.rank) for name in ("start", "end") if d.has(name) and d.flip()}
    return {"data": value, "start": None, "end": None, **bounds} if d.has("start") else {"data": value}


@rule("ConstantOfShape")
def constant_of_shape(d: NodeDraw) -> Found:
    kind = d.choose("float32", "int64", "int32", "bool")
    value = numpy_helper.from_array(np.array([d.choose(0, 1)], BY_NAME[kind].numpy))
    return {"input": np.array(d.shape(0, 4), np.int64), "value": value if d.flip() else None}


@rule("Range")
def arange(d: NodeDraw) -> Found:
    kind = d.type("start")
    start, delta, count = d.integer(-3, 3), d.choose(1, 2, -1, -2), d.integer(0, 9)
    numbers = [start, start + delta * count, delta]
    if kind.startswith("u"):
        raise Unsuitable
    names = ("start", "limit", "delta")
    return {name: d.given(name, np.asarray(number)) for name, number in zip(names, numbers)}


@rule("EyeLike")
def eye(d: NodeDraw) -> Found:
    value = d.ranked("input", 2, 2)
    kind = d.choose(None, "float32", "int64", "int32")
    return {"input": value, "k": d.integer(-2, 2), "dtype": None if kind is None else BY_NAME[kind].onnx}
