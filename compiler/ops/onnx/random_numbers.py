"""Random numbers: every element is a hash of the seed and its position, so any order of computation gives the same.

A node without a seed is seeded by its position in the model.  Numbers are those of this generator, not of another
runtime's with the same seed; a session gives the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import FLOAT32, DType
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.activation_functions import number
from ..math.nodes import in_type
from ..registry import Builder, Inferred, Read, register

_OUTPUTS = frozenset({"float32", "float16", "bfloat16"})
_STEP = 0x9E3779B9  #: 2^32 over the golden ratio: keeps streams apart


# -- the generator ---------------------------------------------------------------------------------------------------


@record
class RandomAttributes:
    """``kind`` is uniform, in [0, 1), or normal, of mean 0 and deviation 1; ``seed`` has 32 bits."""

    kind: str
    seed: int
    shape: Shape


def _infer_random(node: Node) -> Inferred:
    return [(FLOAT32, node.attributes.shape)]


def _bits(value: int) -> Expr:
    return ex.const(value, "u32")


def _mixed(value: Expr) -> Expr:
    """Hash 32 bits by a bijection whose results look independent (C. Wellons, "lowbias32")."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        value = ex.binary("xor", value, ex.binary("shr", value, _bits(shift))) * _bits(factor)
    return ex.binary("xor", value, ex.binary("shr", value, _bits(16)))


def _uniform(position: Expr, seed: int, stream: int) -> Expr:
    """Return 24 random bits as a number in [0, 1)."""
    key = (seed + stream * _STEP) & 0xFFFFFFFF
    hashed = _mixed(ex.binary("xor", _mixed(position + _bits(key)), _bits(key ^ 0xA511E9B3)))
    return ex.cast(ex.binary("shr", hashed, _bits(8)), "f32") * number(2.0**-24)


def _read_random(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: RandomAttributes = node.attributes
    flat: Dim = 0
    for size, coordinate in zip(attributes.shape, coordinates):
        flat = ix.add(ix.multiply(flat, size), coordinate)
    position = ex.cast(ex.coordinate(flat), "u32")
    first = _uniform(position, attributes.seed, 0)
    if attributes.kind == "uniform":
        return first
    # Box and Muller; 1 - u is in (0, 1], whose logarithm is finite
    radius = ex.unary("sqrt", number(-2.0) * ex.unary("log", number(1.0) - first))
    return radius * ex.unary("cos", number(2.0 * math.pi) * _uniform(position, attributes.seed, 1))


register(
    name="Random",
    domain="loom",
    infer=_infer_random,
    attributes=RandomAttributes,
    gather=_read_random,
    reads=4,
)


def _seed(node: Node) -> int:
    """Return the bits of the seed, or a number that is unique to the node within the model."""
    seed = node.attributes.seed
    if seed is not None:
        return int(np.float32(seed).view(np.uint32))
    return (1 + (node.origin.index if node.origin else 0)) * _STEP & 0xFFFFFFFF


def random(builder: Builder, node: Node, kind: str, shape: Shape) -> Value:
    """Build a tensor of random f32 numbers; :class:`RandomAttributes` describes its ``kind``."""
    return builder.op("Random", domain="loom", kind=kind, seed=_seed(node), shape=shape)


# -- the operators ---------------------------------------------------------------------------------------------------


@record
class NormalAttributes:
    """``shape`` is given for RandomNormal, not for RandomNormalLike; ``dtype`` 0 is that of the input, or f32."""

    dtype: int = 0
    mean: float = 0.0
    scale: float = 1.0
    seed: float | None = None
    shape: tuple[int, ...] = ()


@record
class UniformAttributes:
    """Numbers are from ``low`` to ``high``; ``shape`` and ``dtype`` are like those of :class:`NormalAttributes`."""

    dtype: int = 0
    high: float = 1.0
    low: float = 0.0
    seed: float | None = None
    shape: tuple[int, ...] = ()


def _result(node: Node) -> tuple[DType, Shape]:
    like = node.operand(0) if node.inputs else None
    code = node.attributes.dtype or (like.dtype.onnx if like is not None else FLOAT32.onnx)
    dtype = dtypes.from_onnx(code)
    if dtype.name not in _OUTPUTS:
        if node.attributes.dtype:
            raise UnsupportedError.of_attribute(node.op, "dtype", dtype.name, _OUTPUTS, origin=node.origin)
        raise UnsupportedError.of_type(node.op, 0, dtype.name, _OUTPUTS, origin=node.origin)
    return dtype, node.attributes.shape if like is None else like.shape


def _expand_normal(builder: Builder, node: Node) -> Sequence[Value]:
    dtype, shape = _result(node)
    value = random(builder, node, "normal", shape)
    scaled = builder.op("Mul", value, builder.scalar(node.attributes.scale, value))
    return [in_type(builder, builder.op("Add", scaled, builder.scalar(node.attributes.mean, value)), dtype)]


def _expand_uniform(builder: Builder, node: Node) -> Sequence[Value]:
    dtype, shape = _result(node)
    low, high = node.attributes.low, node.attributes.high
    value = random(builder, node, "uniform", shape)
    scaled = builder.op("Mul", value, builder.scalar(high - low, value))
    return [in_type(builder, builder.op("Add", scaled, builder.scalar(low, value)), dtype)]


for _name in ("RandomNormal", "RandomNormalLike"):
    register(name=_name, infer=lambda node: [_result(node)], attributes=NormalAttributes, expand=_expand_normal)
for _name in ("RandomUniform", "RandomUniformLike"):
    register(name=_name, infer=lambda node: [_result(node)], attributes=UniformAttributes, expand=_expand_uniform)


@record
class BernoulliAttributes:
    dtype: int = 0
    seed: float | None = None


def _infer_bernoulli(node: Node) -> Inferred:
    value = node.operand(0)
    return [(dtypes.from_onnx(node.attributes.dtype or value.dtype.onnx), value.shape)]


def _expand_bernoulli(builder: Builder, node: Node) -> Sequence[Value]:
    """Draw 1 with the probability in the input, else 0."""
    value = in_type(builder, node.operand(0), FLOAT32)
    drawn = builder.op("Less", random(builder, node, "uniform", value.shape), value)
    return [builder.op("Cast", drawn, to=node.attributes.dtype or node.operand(0).dtype.onnx)]


register(
    name="Bernoulli",
    infer=_infer_bernoulli,
    attributes=BernoulliAttributes,
    expand=_expand_bernoulli,
    types=(FLOATS,),
)


@record
class MultinomialAttributes:
    dtype: int = 6
    sample_size: int = 1
    seed: float | None = None


def _infer_multinomial(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require(value.rank == 2, node, f"the input has rank {value.rank}")
    return [(dtypes.from_onnx(node.attributes.dtype), (value.shape[0], node.attributes.sample_size))]


def _expand_multinomial(builder: Builder, node: Node) -> Sequence[Value]:
    """Draw classes as the position of the largest log probability plus Gumbel noise."""
    value = in_type(builder, node.operand(0), FLOAT32)
    batch, classes = value.shape
    uniform = random(builder, node, "uniform", (batch, node.attributes.sample_size, classes))
    half_step = builder.scalar(2.0**-25, value)  # neither 0 nor 1, whose logarithms have none
    surprise = builder.op("Neg", builder.op("Log", builder.op("Add", uniform, half_step)))
    noise = builder.op("Neg", builder.op("Log", surprise))
    axis = builder.constant(np.array([1], np.int64))
    drawn = builder.op("ArgMax", builder.op("Add", builder.op("Unsqueeze", value, axis), noise), axis=2, keepdims=0)
    return [builder.op("Cast", drawn, to=node.attributes.dtype)]


register(
    name="Multinomial",
    infer=_infer_multinomial,
    attributes=MultinomialAttributes,
    expand=_expand_multinomial,
    types=(FLOATS,),
)
