"""Facts that keys of problems share: element types of what a kernel loads, and what its epilogue does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..codegen.spec import Store
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim

#: Functions that cost as much as many multiply-adds
_COSTLY = frozenset({"exp", "log", "tanh", "erf", "pow", "sin", "cos", "sqrt", "sigmoid"})


def extent(size: Dim) -> str:
    """A size; of a dynamic one its upper bound, marked."""
    return str(size) if isinstance(size, int) else f"<={ix.bounds(size)[1]}"


def loaded_types(*values: Expr) -> str:
    """Storage types of what expressions load, ``none`` if they load nothing."""
    return "+".join(sorted({str(load.payload.dtype) for value in values for load in ex.loads(value)})) or "none"


def epilogue(stores: Iterable[Store]) -> str:
    """The class of what happens to a result on its way to memory: ``N`` loads, ``f`` if functions are called."""
    values = [store.value for store in stores]
    count = sum(1 for value in values for _ in ex.loads(value))
    costly = any(node.op in _COSTLY for value in values for node in ex.walk(value))
    return f"{min(count, 4)}{'f' if costly else ''}"


def window_of(attributes: Any) -> str:
    """Kernel, strides and dilations of a convolution."""
    sizes = ("x".join(map(str, each)) for each in (attributes.kernel, attributes.strides, attributes.dilations))
    return "/".join(sizes)
