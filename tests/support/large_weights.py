"""Small models whose constants are larger than a device of small limits binds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
from onnx import helper

from shaderloom.runtime.plan.device_profile import DeviceProfile

from .kernels import make_model

node = helper.make_node
BINDING = "max-storage-buffer-binding-size"
RNG = np.random.default_rng(3)

Model = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def bytes_of(*shape: int, dtype: str = "uint8") -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def made(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    **constants: np.ndarray,
) -> Model:
    """A model of ``nodes``, and its feeds."""
    model = make_model(nodes, feeds, outputs, constants=constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model, dict(feeds)


def indices(rows: int, *shape: int) -> np.ndarray:
    """Rows from both ends, at the borders of parts, and counted from the end."""
    drawn = RNG.integers(-rows, rows, shape)
    drawn.reshape(-1)[:4] = [0, rows - 1, -1, -rows][: drawn.size]
    return drawn


def tied(rows: int, length: int = 5, *, dtype: str = "float32") -> Model:
    nodes = [
        node("Gather", ["w", "i"], ["e"]),
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("MatMul", ["e", "t"], ["y"]),
    ]
    return made(nodes, {"i": indices(rows, 1, length)}, w=floats(rows, 38, dtype=dtype))


def packed(rows: int, length: int = 2, *, bits: int = 4, zeros: bool = False) -> Model:
    """A tied embedding of packed codes."""
    size, block = 64, 32
    constants = {"c": bytes_of(rows, size // block, block * bits // 8), "s": floats(rows, size // block) / 8}
    row_bytes = size * bits // 8
    inputs = ["s"]
    if zeros:
        constants["z"] = bytes_of(rows, -(-size // block * bits // 8))
        inputs.append("z")
    constants["shape"] = np.array([rows, row_bytes])
    nodes = [
        node("Reshape", ["c", "shape"], ["f"]),
        node("GatherBlockQuantized", ["f", "i", *inputs], ["e"], domain="com.microsoft", bits=bits, block_size=block),
        node("MatMulNBits", ["e", "c", *inputs], ["y"], domain="com.microsoft", K=size, N=rows, block_size=block,
             bits=bits),
    ]  # fmt: skip
    return made(nodes, {"i": indices(rows, length, 1)}, **constants)


def windows() -> Model:
    """A model whose input, output and intermediate results take more than 16 KiB, the weight 20 KiB."""
    nodes = [node("Softmax", ["x"], ["p"], axis=1), node("MatMul", ["p", "w"], ["y"])]
    return made(nodes, {"x": floats(301, 64)}, w=floats(64, 80))


def declared_windows() -> Model:
    """That model for any number of rows, its dimension ``n``."""
    model, feeds = windows()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    return model, feeds


#: Stages that a value beyond 16 KiB goes through: a condition is computed from it, and both sides read it
STAGED_WINDOWS = """
<ir_version: 8, opset_import: ["" : 18]>
staged (float[301, 64] x, float[64, 80] w, float limit) => (float[301, 80] y, float[301, 64] p) {
    e = Exp(x)  p = Softmax<axis = 1>(e)  most = ReduceMax<keepdims = 0>(p)  c = Greater(most, limit)
    y = If (c) < then_branch = t () => (float[301, 80] r) { n = Neg(p)  r = MatMul(n, w) },
                 else_branch = f () => (float[301, 80] q) { s = Sin(p)  q = MatMul(s, w) } >
}
"""


def staged_windows(*, taken: bool) -> Model:
    """That model, and feeds that take one of its sides."""
    feeds = {"x": floats(301, 64), "w": floats(64, 80), "limit": np.array(0 if taken else 1, np.float32)}
    return onnx.parser.parse_model(STAGED_WINDOWS), feeds


#: Inputs and outputs of declared sizes beyond 16 KiB: rows of two are joined, rows are selected, an output is read
OPEN_WINDOWS = """
<ir_version: 8, opset_import: ["" : 18]>
open (float[n, 64] x, float[m, 64] z, int64[k] i)
    => (float[l, 64] y, float[k, 64] s, float[n, 64] e, float[n] t) <int64[1] axis = {1}> {
    e = Exp(x)  t = ReduceSum<keepdims = 0>(e, axis)  y = Concat<axis = 0>(x, z)  s = Gather(x, i)
}
"""
#: The declared sizes of that model
OPEN_SIZES = {"n": (1, 301), "m": (0, 150), "k": (1, 9)}


def open_windows(n: int, m: int) -> Model:
    """That model, and feeds of ``n`` and ``m`` rows."""
    return onnx.parser.parse_model(OPEN_WINDOWS), {"x": floats(n, 64), "z": floats(m, 64), "i": indices(n, 6)}


def limited(profile: DeviceProfile, limit: int, buffer: int | None = None) -> DeviceProfile:
    return replace(profile, limits={**profile.limits, BINDING: limit, "max-buffer-size": buffer or limit})
