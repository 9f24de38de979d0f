"""Operands of convolutions, pools, resizing and sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .node import NodeDraw, rule
from .oracle import Known
from .source import Unsuitable

Found = dict[str, Any]


def image(d: NodeDraw, name: str, low: int = 3, high: int = 5) -> Known:
    """A tensor of batch, channels and one to three spatial axes, none empty."""

    def shape() -> tuple[int, ...]:
        rank = d.choose(4, 3, 4, 5)
        rank = min(max(rank, low), high)
        most = 9 if rank < 5 else 5
        return (d.integer(1, 2), d.choose(1, 3, 4, 8), *(d.integer(2, most) for _ in range(rank - 2)))

    return d.pick(name, lambda value: low <= value.rank <= high and 0 not in value.shape, shape)


def window(d: NodeDraw, sizes: tuple[int, ...]) -> tuple[list[int], Found]:
    """A kernel that fits into ``sizes`` and its attributes."""
    kernel = [d.integer(1, min(size, 3)) for size in sizes]
    found: Found = {"kernel_shape": kernel, "auto_pad": None, "dilations": None}
    if d.flip():
        found["strides"] = [d.choose(1, 2, 3) for _ in sizes]
    if "dilations" in d.form.attributes and d.rarely() and all(2 * k - 1 <= size for k, size in zip(kernel, sizes)):
        found["dilations"] = [d.choose(1, 2) for _ in sizes]
    if d.rarely(5) and not found["dilations"]:
        # where a stride is larger than the kernel, onnxruntime's padding is negative and its pools disagree
        larger = any(stride > size for stride, size in zip(found.get("strides", kernel), kernel))
        found["auto_pad"] = "VALID" if larger else d.choose("SAME_UPPER", "SAME_LOWER", "VALID")
    elif d.flip():
        found["pads"] = [d.integer(0, k - 1) for k in kernel * 2]
    # under VALID onnxruntime rounds up as well, and the specification does not
    found["ceil_mode"] = 0 if found["auto_pad"] == "VALID" else int(d.rarely(3))
    return kernel, {name: value for name, value in found.items() if name in d.form.attributes}


@rule("Conv", "ConvInteger")
@rule("FusedConv", domain="com.microsoft")
def convolution(d: NodeDraw) -> Found:
    data, weight = d.form.inputs[0].name, d.form.inputs[1].name
    value = image(d, data)
    channels = value.shape[1]
    kernel, found = window(d, value.shape[2:])
    group = d.choose(1, 1, channels)
    out = d.choose(1, 4, 5, 8) if group == 1 else channels * d.choose(1, 2)
    if math.prod(value.shape[2:]) * out * value.shape[0] > 4096:
        raise Unsuitable
    found.update({data: value, weight: d.leaf(weight, (out, channels // group, *kernel)), "group": group})
    if d.form.input("B"):
        found["B"] = d.leaf("B", (out,)) if d.flip() else None
    if d.form.name == "FusedConv":
        found["activation"] = d.choose("Relu", "Sigmoid", "Tanh")
    if d.form.name == "ConvInteger":
        found["x_zero_point"] = np.asarray(d.integer(0, 5), value.dtype) if d.flip() else None
    return found


@rule("ConvTranspose")
def transposed_convolution(d: NodeDraw) -> Found:
    value = image(d, "X", 3, 4)
    channels = value.shape[1]
    group = d.choose(1, 1, channels)
    kernel = [d.integer(1, 3) for _ in value.shape[2:]]
    strides = [d.choose(1, 2, 3) for _ in kernel]
    out = d.choose(1, 2, 4)
    found: Found = {"X": value, "W": d.leaf("W", (channels, out, *kernel)), "group": group, "strides": strides}
    if d.flip():
        found["pads"] = [d.integer(0, min(k - 1, 1)) for k in kernel * 2]
    if d.rarely():
        found["output_padding"] = [d.integer(0, stride - 1) for stride in strides]
    if d.rarely():
        found["dilations"] = [d.choose(1, 2) for _ in kernel]
    return {**found, "B": d.leaf("B", (out * group,)) if d.flip() else None, "auto_pad": None}


@rule("DeformConv")
def deformed_convolution(d: NodeDraw) -> Found:
    value = image(d, "X", 4, 4)
    n, channels, h, w = value.shape
    kernel = [d.integer(1, min(size, 3)) for size in (h, w)]
    out, rows, columns = d.choose(1, 4), h - kernel[0] + 1, w - kernel[1] + 1
    taps = kernel[0] * kernel[1]
    return {
        "X": value,
        "W": d.leaf("W", (out, channels, *kernel)),
        "offset": d.leaf("offset", (n, 2 * taps, rows, columns), -1, 1),
        "B": d.leaf("B", (out,)) if d.flip() else None,
        "mask": d.leaf("mask", (n, taps, rows, columns)) if d.flip() else None,
        "kernel_shape": kernel,
        "group": 1,
        "offset_group": 1,
    }


@rule("MaxPool", "AveragePool", "LpPool")
def pool(d: NodeDraw) -> Found:
    value = image(d, "X")
    _, found = window(d, value.shape[2:])
    if d.form.name == "LpPool":
        found["p"] = d.choose(2, 1)
    if d.form.name == "MaxPool" and "storage_order" in d.form.attributes:
        found["storage_order"] = 0
    return {"X": value, **found}


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d: NodeDraw) -> Found:
    return {"X": image(d, "X"), **({"p": 2} if d.has("p") else {})}


@rule("MaxUnpool")
def unpool(d: NodeDraw) -> Found:
    n, c, h, w = d.integer(1, 2), d.integer(1, 3), d.integer(1, 4), d.integer(1, 4)
    rows, columns = d.growth.generator.integers(0, 2, (2, n, c, h, w))
    plane = np.arange(n * c).reshape(n, c, 1, 1) * (4 * h * w)
    places = plane + (2 * np.arange(h).reshape(h, 1) + rows) * (2 * w) + 2 * np.arange(w) + columns
    return {"X": d.leaf("X", (n, c, h, w)), "I": places.astype(np.int64), "kernel_shape": [2, 2], "strides": [2, 2]}


@rule("Col2Im")
def col2im(d: NodeDraw) -> Found:
    block = [d.integer(1, 2), d.integer(1, 3)]
    size = [d.integer(2, 5), d.integer(3, 6)]
    strides = [d.choose(1, 2), 1]
    windows = [(s - b) // stride + 1 for s, b, stride in zip(size, block, strides)]
    shape = (d.integer(1, 2), d.integer(1, 3) * math.prod(block), math.prod(windows))
    return {
        "input": d.leaf("input", shape),
        "image_shape": np.array(size, np.int64),
        "block_shape": np.array(block, np.int64),
        "strides": strides,
    }


@rule("Resize")
def resize(d: NodeDraw) -> Found:
    """Sizes or scales, with all that version 11 and later say of them."""
    value = image(d, "X", 4, 4)
    if value.dtype not in ("float32", "float16", "uint8", "int8"):
        raise Unsuitable
    scales = [1.0, 1.0, d.choose(2.0, 1.0, 0.5, 1.5, 3.0), d.choose(2.0, 1.0, 0.5, 2.5)]
    mode = d.choose("nearest", "linear", *(("cubic",) if d.version >= 11 else ()))
    if value.dtype in ("uint8", "int8"):
        mode = "nearest"  # others are cut to integers, which few factors do not make a jump
    found: Found = {"X": value, "mode": mode}
    if d.version < 11:
        return {**found, "scales": np.array(scales, np.float32)}
    if d.version < 13:
        found["roi"] = np.array([], np.float32)
    found["coordinate_transformation_mode"] = d.choose(
        "half_pixel",
        "asymmetric",
        "align_corners",
        "pytorch_half_pixel",
        *(("half_pixel_symmetric",) if d.version >= 19 else ()),
    )
    if mode == "nearest":
        found["nearest_mode"] = d.choose("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        found["cubic_coeff_a"] = d.choose(-0.75, -0.5)
        found["exclude_outside"] = d.integer(0, 1)
    else:
        found["exclude_outside"] = 0
    sizes = [max(int(size * scale), 1) for size, scale in zip(value.shape, scales)]
    if d.version >= 13 and d.flip():
        return {**found, **_axes(d), "sizes": np.array(sizes, np.int64)}
    return {**found, **_axes(d), "scales": np.array(scales, np.float32)}


def _axes(d: NodeDraw) -> Found:
    plain = dict.fromkeys(("axes", "keep_aspect_ratio_policy", "antialias", "extrapolation_value"))
    return {name: value for name, value in plain.items() if d.has(name)}


@rule("Upsample")
def upsample(d: NodeDraw) -> Found:
    value = image(d, "X", 4, 4)
    scales = [1.0, 1.0, d.choose(2.0, 1.0, 3.0), d.choose(2.0, 1.0)]
    if value.dtype not in ("float32", "float16") and 3.0 in scales:
        raise Unsuitable  # thirds are cut to integers, which is a jump
    given = scales if "scales" in d.form.attributes else np.array(scales, np.float32)
    return {"X": value, "scales": given, "mode": d.choose("nearest", "linear")}


@rule("GridSample")
def grid_sample(d: NodeDraw) -> Found:
    value = image(d, "X", 4, 4)
    modes = ("bilinear", "nearest", "bicubic") if d.version < 20 else ("linear", "nearest", "cubic")
    return {
        "X": value,
        "grid": d.leaf("grid", (value.shape[0], d.integer(1, 3), d.integer(1, 4), 2), -1, 1),
        "mode": d.choose(*modes),
        "padding_mode": d.choose("zeros", "border", "reflection"),
        "align_corners": d.integer(0, 1),
    }
