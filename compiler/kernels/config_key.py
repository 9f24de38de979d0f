"""Facts that keys of problems share: element types of what a kernel loads, and what its epilogue does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..codegen.spec import Store
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim


def extent(size: Dim) -> str:
    """Format a size; of a dynamic one its upper bound with a mark (``<=N``)."""
    return str(size) if isinstance(size, int) else f"<={ix.bounds(size)[1]}"


def loaded_types(*values: Expr) -> str:
    """Return the storage types of what expressions load, ``none`` if they load nothing."""
    return "+".join(sorted({str(load.payload.dtype) for value in values for load in ex.loads(value)})) or "none"


def epilogue(stores: Iterable[Store]) -> str:
    """Return the class of an epilogue: the number of its loads, followed by ``f`` if it calls functions."""
    values = [store.value for store in stores]
    count = sum(1 for value in values for _ in ex.loads(value))
    costly = any(node.op in ex.EXPENSIVE_FUNCTIONS for value in values for node in ex.walk(value))
    return f"{min(count, 4)}{'f' if costly else ''}"


def window_of(attributes: Any) -> str:
    """Format kernel, strides and dilations of a convolution."""
    sizes = ("x".join(map(str, each)) for each in (attributes.kernel, attributes.strides, attributes.dilations))
    return "/".join(sizes)
