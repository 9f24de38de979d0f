"""Cast and CastLike.

Floats to integers truncate; integers wrap to the width of the target; anything to bool compares with zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime import dtypes
from ...runtime.dtypes import DType
from ...runtime.errors import UnsupportedError
from .. import expr as ex
from .. import index as ix
from ..evaluate import convert
from ..expr import Expr
from ..index import Undecidable
from ..ir import Node, Value
from ..sources import numpy_dtype
from .common import ANY, is_symbolic, wrap
from .elementwise import exactly
from .registry import Builder, Case, Inferred, Tensor, register


@dataclass(frozen=True, slots=True)
class CastAttributes:
    to: int = 0
    saturate: int = 1  #: concerns 8-bit floats alone
    round_mode: str = "up"  #: concerns 8-bit floats alone


@dataclass(frozen=True, slots=True)
class CastLikeAttributes:
    saturate: int = 1
    round_mode: str = "up"


def convert_expression(value: Expr, source: DType, target: DType) -> Expr:
    """``value`` of element type ``source`` as an element of type ``target``."""
    if source.is_float and target.is_integer and target.bits < 32:
        # through i32 also for unsigned targets: negative numbers wrap instead of saturating
        value = ex.cast(value, "i32")
    result = ex.cast(value, target.compute)
    fits = source.is_integer and source.bits < target.bits and (target.is_signed or not source.is_signed)
    return result if fits or source is dtypes.BOOL else wrap(result, target)


def _infer_cast(node: Node) -> Inferred:
    return [(dtypes.from_onnx(node.attributes.to), node.operand(0).shape)]


def _element(node: Node, args: Sequence[Expr]) -> Expr:
    target = dtypes.from_onnx(node.attributes.to)
    if not target.on_device:
        raise UnsupportedError(f"no device holds element type {target}", origin=node.origin)
    return convert_expression(args[0], node.operand(0).dtype, target)


def cast_known(operand: np.ndarray, target: DType) -> np.ndarray:
    """Known elements in another type; raises :class:`Undecidable` where symbolic integers have no such form."""
    if not is_symbolic(operand):
        if target.name == "string" or operand.dtype.kind not in "iufbV":
            raise Undecidable("strings")
        return convert(operand, numpy_dtype(target))
    if target.name == "bool":
        return np.asarray(np.frompyfunc(lambda element: not ix.equal(element, 0), 1, 1)(operand)).astype(np.bool_)
    if target.is_integer:
        low, high = _range(target)
        for element in operand.flat:
            element_low, element_high = ix.bounds(element)
            if element_low < low or element_high > high:
                raise Undecidable(f"whether {ix.text(element)} fits {target}")
        return operand
    if any(isinstance(element, ix.Index) for element in operand.flat):
        raise Undecidable(f"a dynamic dimension as {target}")
    return operand.astype(np.int64).astype(numpy_dtype(target))


def _range(dtype: DType) -> tuple[int, int]:
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)


def _cases() -> tuple[Case, ...]:
    onnx_code = {row.name: row.onnx for row in dtypes.BY_NAME.values()}
    numbers = exactly(-2.7, -1.0, -0.5, 0.0, 0.5, 1.0, 2.7, 100.9)
    integers = exactly(-(2**40) - 3, -129, -1, 0, 1, 127, 255, 70000, dtype="int64")
    narrow = exactly(0, 1, 127, 128, 255, dtype="uint8")
    targets = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
    cases = [Case((integers,), {"to": onnx_code[name]}) for name in targets if name != "float16"]
    cases += [Case((narrow,), {"to": onnx_code[name]}) for name in targets]
    cases += [Case((numbers,), {"to": onnx_code[name]}) for name in targets if not name.startswith("uint")]
    cases += [Case((Tensor((3, 5), "bool"),), {"to": onnx_code[name]}) for name in ("float32", "int64", "int8")]
    cases += [Case((Tensor((3, 5), "float16"),), {"to": 1}), Case((Tensor((0, 3)),), {"to": 7})]
    return tuple(cases)


register(
    name="Cast",
    infer=_infer_cast,
    cases=_cases(),
    attributes=CastAttributes,
    element=_element,
    types=(ANY,),
    fold=lambda node, operand: cast_known(operand, dtypes.from_onnx(node.attributes.to)),
)


def _infer_cast_like(node: Node) -> Inferred:
    return [(node.operand(1).dtype, node.operand(0).shape)]


def _expand_cast_like(builder: Builder, node: Node) -> Sequence[Value]:
    return [builder.op("Cast", node.operand(0), to=node.operand(1).dtype.onnx)]


register(
    name="CastLike",
    infer=_infer_cast_like,
    cases=(
        Case((exactly(-2.7, 0.0, 2.7), Tensor((1,), "int32"))),
        Case((Tensor((3,), "int64", -9, 9), Tensor((2, 2)))),
    ),
    attributes=CastLikeAttributes,
    expand=_expand_cast_like,
    types=(ANY,),
    fold=lambda node, operand, like: cast_known(operand, node.operand(1).dtype),
)
