"""Operators that prepare features: Scaler, Normalizer, Imputer, Binarizer, ArrayFeatureExtractor, FeatureVectorizer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Builder, Indices, Inferred, register
from . import scores
from .scores import DOMAIN, FEATURES


def _per_feature(node: Node, numbers: Sequence[float], what: str) -> None:
    """Raise :class:`ShapeError` unless there is one number, or one for each feature."""
    _, features = scores.row_sizes(node)
    fits = len(numbers) == 1 or checks.may_equal(features, len(numbers))
    checks.require(fits, node, f"{len(numbers)} {what} for {ix.text(features)} features")


# -- Scaler -----------------------------------------------------------------------------------------------------------


@record
class ScalerAttributes:
    offset: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()


def _infer_scaler(node: Node) -> Inferred:
    offset, scale = node.attributes.offset, node.attributes.scale
    checks.require(len(offset) == len(scale) > 0, node, f"{len(offset)} offsets and {len(scale)} scales")
    _per_feature(node, scale, "scales")
    return [(FLOAT32, node.operand(0).shape)]


def _expand_scaler(builder: Builder, node: Node) -> Sequence[Value]:
    value = builder.op("Cast", node.operand(0), to=FLOAT32.onnx)
    centred = builder.op("Sub", value, scores.floats(builder, node.attributes.offset))
    return [builder.op("Mul", centred, scores.floats(builder, node.attributes.scale))]


register(
    name="Scaler",
    domain=DOMAIN,
    infer=_infer_scaler,
    attributes=ScalerAttributes,
    expand=_expand_scaler,
    types=(FEATURES,),
)


# -- Normalizer -------------------------------------------------------------------------------------------------------


@record
class NormalizerAttributes:
    norm: str = "MAX"


def _infer_normalizer(node: Node) -> Inferred:
    checks.require_choice(node, "norm", ("MAX", "L1", "L2"))
    scores.row_sizes(node)
    return [(FLOAT32, node.operand(0).shape)]


def _expand_normalizer(builder: Builder, node: Node) -> Sequence[Value]:
    """Divide each row by its norm; a row whose norm is zero stays as it is."""
    value = builder.op("Cast", node.operand(0), to=FLOAT32.onnx)
    norm, last = node.attributes.norm, scores.axes(builder, -1)
    if norm == "L2":
        total = builder.op("ReduceSumSquare", value, last, keepdims=1)
        size = builder.op("Sqrt", total)
    elif norm == "L1":
        total = size = builder.op("ReduceL1", value, last, keepdims=1)
    else:  # the largest element, not the largest magnitude
        total = size = builder.op("ReduceMax", value, last, keepdims=1)
    is_zero = builder.op("Equal", total, builder.scalar(0.0, total))
    return [builder.op("Where", is_zero, value, builder.op("Div", value, size))]


register(
    name="Normalizer",
    domain=DOMAIN,
    infer=_infer_normalizer,
    attributes=NormalizerAttributes,
    expand=_expand_normalizer,
    types=(FEATURES,),
)


# -- Imputer ----------------------------------------------------------------------------------------------------------


@record
class ImputerAttributes:
    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0


def _imputed(node: Node) -> Sequence[float] | Sequence[int]:
    attributes: ImputerAttributes = node.attributes
    is_float = node.operand(0).dtype.is_float
    return attributes.imputed_value_floats if is_float else attributes.imputed_value_int64s


def _infer_imputer(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require(len(_imputed(node)) > 0, node, f"the node has no value to impute in {value.dtype}")
    _per_feature(node, _imputed(node), "imputed values")
    return [(value.dtype, value.shape)]


def _expand_imputer(builder: Builder, node: Node) -> Sequence[Value]:
    value, attributes = node.operand(0), node.attributes
    replaced = attributes.replaced_value_float if value.dtype.is_float else attributes.replaced_value_int64
    if isinstance(replaced, float) and math.isnan(replaced):
        is_missing = builder.op("IsNaN", value)
    else:
        is_missing = builder.op("Equal", value, builder.scalar(replaced, value))
    imputed = np.asarray(_imputed(node), np.float32 if value.dtype.is_float else np.int64)
    fitted = builder.op("Cast", builder.constant(imputed), to=value.dtype.onnx)
    return [builder.op("Where", is_missing, fitted, value)]


register(
    name="Imputer",
    domain=DOMAIN,
    infer=_infer_imputer,
    attributes=ImputerAttributes,
    expand=_expand_imputer,
    types=(FEATURES,),
)


# -- Binarizer --------------------------------------------------------------------------------------------------------


@record
class BinarizerAttributes:
    threshold: float = 0.0


def _expand_binarizer(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    wide = builder.op("Cast", value, to=FLOAT32.onnx)
    above = builder.op("Greater", wide, builder.scalar(node.attributes.threshold, wide))
    return [builder.op("Cast", above, to=value.dtype.onnx)]


register(
    name="Binarizer",
    domain=DOMAIN,
    infer=checks.same_as_input(),
    attributes=BinarizerAttributes,
    expand=_expand_binarizer,
    types=(FEATURES,),
)


# -- ArrayFeatureExtractor --------------------------------------------------------------------------------------------


def _features(node: Node) -> Sequence[Dim]:
    return [node.operand(0).shape[-1]]


def _infer_extractor(node: Node) -> Inferred:
    value, indices = node.operand(0), node.operand(1)
    checks.require(value.rank >= 1, node, "the data is a scalar")
    checks.require(not checks.is_size(indices.elements, 0), node, "there are no indices")
    rows = value.shape[:-1] if value.rank > 1 else (1,)
    return [(value.dtype, (*rows, indices.elements))]


def _expand_extractor(builder: Builder, node: Node) -> Sequence[Value]:
    value, indices = node.operand(0), builder.op("Reshape", node.operand(1), scores.axes(builder, -1))
    if value.rank == 1:
        value = builder.op("Unsqueeze", value, scores.axes(builder, 0))
    return [builder.op("Gather", value, indices, axis=-1)]


register(
    name="ArrayFeatureExtractor",
    domain=DOMAIN,
    infer=_infer_extractor,
    expand=_expand_extractor,
    indices=(Indices(1, _features, wraps=False),),
    types=(FEATURES, frozenset({"int64"})),
)


# -- FeatureVectorizer ------------------------------------------------------------------------------------------------


@record
class FeatureVectorizerAttributes:
    inputdimensions: tuple[int, ...] = ()


def _infer_vectorizer(node: Node) -> Inferred:
    values = [value for value in node.inputs if value is not None]
    widths = node.attributes.inputdimensions
    checks.require(len(widths) == len(values), node, f"{len(widths)} widths for {len(values)} inputs")
    for value, width in zip(values, widths):
        if value.rank != 2 or not checks.may_equal(value.shape[1], width):
            # onnxruntime cuts longer rows, and fills shorter ones with zeros
            reason = f"an input of shape {checks.describe_shape(value.shape)} for {width} features"
            raise UnsupportedError(reason, origin=node.origin, hint="give each input the features that it declares")
    rows = checks.broadcast_shapes(node, [value.shape[:1] for value in values])
    return [(FLOAT32, (*rows, sum(widths)))]


def _expand_vectorizer(builder: Builder, node: Node) -> Sequence[Value]:
    values = [builder.op("Cast", value, to=FLOAT32.onnx) for value in node.inputs if value is not None]
    return [builder.op("Concat", *values, axis=1)]


register(
    name="FeatureVectorizer",
    domain=DOMAIN,
    infer=_infer_vectorizer,
    attributes=FeatureVectorizerAttributes,
    expand=_expand_vectorizer,
    types=(FEATURES,),
)
