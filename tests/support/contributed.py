"""What contributed operators compute that onnxruntime's CPU provider lacks: plain numpy, in double precision.

Written from the descriptions of the operators and of the models that they come from, and as unlike the compiler's own
decompositions as such short formulas can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .expert_mixture import mixture, sigmoid

Operands = Sequence[Any]
Attributes = Mapping[str, Any]
Results = list[np.ndarray]


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _biased(x: Operands) -> np.ndarray:
    """The sum with the bias, which must not be larger than the input."""
    total = x[0] + x[1]
    if total.shape != x[0].shape:
        raise ValueError(f"a bias of shape {x[1].shape} for {x[0].shape}")
    return total


def _joined(value: np.ndarray, x: Operands, position: int) -> np.ndarray:
    """With an optional operand of the same shape: those of skip connections do not broadcast."""
    other = x[position] if len(x) > position else None
    if other is not None and other.shape != value.shape:
        raise ValueError(f"shapes {value.shape} and {other.shape}")
    return value if other is None else value + other


def _bias_add(x: Operands, attributes: Attributes) -> Results:
    return [_joined(_biased(x), x, 2)]


def _bias_split_gelu(x: Operands, attributes: Attributes) -> Results:
    left, right = np.split(_biased(x), 2, -1)
    return [left * right * (1 + _erf(right / math.sqrt(2))) / 2]


def _bias_softmax(x: Operands, attributes: Attributes) -> Results:
    total = _biased(x)
    axis = attributes.get("axis", 1) % total.ndim
    return [_softmax(total.reshape(*total.shape[:axis], -1)).reshape(total.shape)]


def _bias_dropout(x: Operands, attributes: Attributes) -> Results:
    return [_joined(_biased(x), x, 2), np.ones(x[0].shape, np.bool_)]


def _group_norm(x: Operands, attributes: Attributes) -> Results:
    """Group by group, channels last inside."""
    value, last = x[0], attributes.get("channels_last", 1)
    value = value if last else np.moveaxis(value, 1, -1)
    size = value.shape[-1] // attributes["groups"]
    result = np.empty_like(value)
    for image in range(len(value)):
        for start in range(0, value.shape[-1], size):
            part = value[image, ..., start : start + size]
            result[image, ..., start : start + size] = (part - part.mean()) / np.sqrt(
                part.var() + attributes.get("epsilon", 1e-5)
            )
    result = result * x[1] + x[2]
    result = result * sigmoid(result) if attributes["activation"] else result
    return [result if last else np.moveaxis(result, -1, 1)]


def _skip_group_norm(x: Operands, attributes: Attributes) -> Results:
    skip = x[3] if x[3].ndim == x[0].ndim else x[3].reshape(len(x[3]), *[1] * (x[0].ndim - 2), -1)
    total = x[0] + skip + (x[4] if len(x) > 4 and x[4] is not None else 0.0)
    return [*_group_norm([total, *x[1:3]], attributes), total]


def _correlated(value: np.ndarray, weight: np.ndarray, attributes: Attributes) -> np.ndarray:
    """[N, H, W, C] with [M, h, w, C / group], window by window."""
    group, strides = attributes.get("group", 1), attributes.get("strides", [1, 1])
    top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
    value = np.pad(value, [(0, 0), (top, bottom), (left, right), (0, 0)])
    h, w = weight.shape[1:3]
    rows, columns = ((value.shape[1 + at] - weight.shape[1 + at]) // strides[at] + 1 for at in (0, 1))
    result = np.zeros((len(value), rows, columns, len(weight)))
    for row in range(rows):
        for column in range(columns):
            y, x = row * strides[0], column * strides[1]
            for filters in range(len(weight)):
                first = filters // (len(weight) // group) * weight.shape[3]
                seen = value[:, y : y + h, x : x + w, first : first + weight.shape[3]]
                result[:, row, column, filters] = (seen * weight[filters]).sum((1, 2, 3))
    return result


def _nhwc_conv(x: Operands, attributes: Attributes) -> Results:
    return [_correlated(x[0], x[1], attributes) + (x[2] if len(x) > 2 and x[2] is not None else 0.0)]


def _nhwc_fused_conv(x: Operands, attributes: Attributes) -> Results:
    result = _nhwc_conv([x[0], np.moveaxis(x[1], 1, -1), *x[2:3]], attributes)[0]
    result = _joined(result, x, 3)
    slope = {"": 1.0, "Relu": 0.0, "LeakyRelu": (attributes.get("activation_params") or [0.01])[0]}
    return [np.where(result > 0, result, result * slope[_text(attributes.get("activation", ""))])]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _relative_position_bias(x: Operands, attributes: Attributes) -> Results:
    """The loops of the model T5, for one pair of positions at a time."""
    table, queries, keys = x[0], int(np.ravel(x[1])[0]), int(np.ravel(x[2])[0])
    result = np.zeros((1, table.shape[1], queries, keys))
    for query in range(queries):
        for key in range(keys):
            count, bucket, away = len(table), 0, key - query
            if attributes.get("is_bidirectional", 0):
                count //= 2
                bucket = count if away > 0 else 0
                away = abs(away)
            else:
                away = max(-away, 0)
            exact = count // 2
            if away < exact:
                bucket += away
            else:
                ratio = math.log(away / exact) / math.log(attributes["max_distance"] / exact)
                bucket += min(exact + int(ratio * (count - exact) + 1e-6), count - 1)
            result[0, :, query, key] = table[bucket]
    return [result]


def _gated_relative_position_bias(x: Operands, attributes: Attributes) -> Results:
    query, added, positions, weight, bias, scale = x[:6]
    batch, length, hidden = query.shape
    heads = attributes["num_heads"]
    split = (query + added).reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)
    gates = sigmoid((split @ weight + bias).reshape(batch, heads, length, 2, -1).sum(-1))
    first, second = gates[..., :1], gates[..., 1:]
    return [(first * (second * scale - 1) + 2) * positions]


def _gemma_rotary(x: Operands, attributes: Attributes) -> Results:
    angles = x[0][:, None]
    return [x[at] * np.cos(angles) + x[at + 1] * np.sin(angles) for at in (1, 3)]


def _quantised_mean(x: Operands, attributes: Attributes) -> Results:
    """Integers in, integers out; half way goes to even."""
    dtype = x[0].dtype
    first, second = (0 if len(x) <= at or x[at] is None else int(x[at]) for at in (2, 4))
    floats = (x[0].astype(np.float64) - first) * np.float64(x[1])
    average = floats.mean(tuple(attributes["axes"]) or None, keepdims=bool(attributes.get("keepdims", 1)))
    limits = np.iinfo(dtype)
    return [np.clip(np.rint(average / np.float64(x[3])) + second, limits.min, limits.max).astype(dtype)]


def _moe(x: Operands, attributes: Attributes) -> Results:
    padded = [*x, *[None] * (8 - len(x))]
    weights = [each for each in padded[2::2] if each is not None]
    return [mixture(x[0], x[1], weights, padded[3::2], attributes)]


def _numbers(packed: np.ndarray, bits: int, size: int) -> np.ndarray:
    """The ``size`` numbers of ``bits`` bits in the bytes of the last axis, from the low bits of the first on."""
    digits = np.unpackbits(packed, axis=-1, bitorder="little")[..., : size * bits]
    return digits.reshape(*packed.shape[:-1], size, bits) @ (1 << np.arange(bits))


def _quantised_moe(x: Operands, attributes: Attributes) -> Results:
    padded, block = [*x, *[None] * (15 - len(x))], attributes.get("block_size", 0)
    weights = []
    for number, (packed, scales, zeros) in enumerate(zip(padded[2:11:3], padded[3:11:3], padded[11:14])):
        if packed is None:
            continue
        bits = attributes.get(f"fc{number + 1}_expert_weight_bits", attributes.get("expert_weight_bits", 4))
        codes = _numbers(packed, bits, packed.shape[-1] * 8 // bits)
        blocks = codes.reshape(*scales.shape[:2], -1, block or codes.shape[-1])
        scales = scales.reshape(*blocks.shape[:3])
        offset = 2 ** (bits - 1)
        if zeros is not None:
            offset = _numbers(zeros, bits, scales.shape[-1 if block else 1]).reshape(scales.shape)[..., None]
        weights.append(((blocks - offset) * scales[..., None]).reshape(codes.shape))
    return [mixture(x[0], x[1], weights, padded[4:11:3], attributes, padded[14])]


def _product_of_codes(x: Operands, attributes: Attributes) -> Results:
    value, packed, scales, zeros, groups, bias = [*x, *[None] * (6 - len(x))]
    assert value is not None and packed is not None and scales is not None
    terms, bits, size = attributes["K"], attributes.get("bits", 4), attributes["block_size"]
    codes = _numbers(packed, bits, size).reshape(len(packed), -1)[:, :terms]
    offset, scales = np.full(packed.shape[:2], 2.0 ** (bits - 1)), scales.reshape(packed.shape[:2])
    if zeros is not None:
        offset = _numbers(zeros, bits, scales.shape[1]) if zeros.dtype == np.uint8 else zeros
    block = np.arange(terms) // size if groups is None else groups
    weight = (codes - offset.reshape(scales.shape)[:, block]) * scales[:, block]
    return [value @ weight.T + (0.0 if bias is None else bias)]


_TABLE: dict[str, Callable[[Operands, Attributes], Results]] = {
    "BiasAdd": _bias_add,
    "BiasSplitGelu": _bias_split_gelu,
    "BiasSoftmax": _bias_softmax,
    "BiasDropout": _bias_dropout,
    "GroupNorm": _group_norm,
    "SkipGroupNorm": _skip_group_norm,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_fused_conv,
    "RelativePositionBias": _relative_position_bias,
    "GatedRelativePositionBias": _gated_relative_position_bias,
    "GemmaRotaryEmbedding": _gemma_rotary,
    "QLinearReduceMean": _quantised_mean,
    "MatMulNBits": _product_of_codes,
    "MoE": _moe,
    "QMoE": _quantised_moe,
}


def has(domain: str, op: str) -> bool:
    return domain == "com.microsoft" and op in _TABLE


def evaluate(op: str, operands: Sequence[np.ndarray | None], attributes: Attributes, outputs: int) -> Results:
    """The first ``outputs`` results; floats in the type of the data: the first operand, or what follows the angles."""
    first = operands[1 if op == "GemmaRotaryEmbedding" else 0]
    assert first is not None
    if op == "QLinearReduceMean":
        return _TABLE[op](operands, attributes)
    wide = [each if each is None or each.dtype.kind in "iub" else each.astype(np.float64) for each in operands]
    results = _TABLE[op](wide, attributes)[:outputs]
    return [each.astype(first.dtype) if each.dtype == np.float64 else each for each in results]
