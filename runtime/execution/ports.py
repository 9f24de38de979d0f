"""Inputs and outputs of a plan: the symbols that feeds imply, sizes for given symbols, constant outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Union

import numpy as np

from ..memory.tensor import Tensor, border_bytes
from ..plan.dimension import DimExpr, evaluate
from ..plan.dtypes import BY_NAME, interface_dtype, padded_bytes, to_border
from ..plan.errors import InputError, InternalError, LimitError
from ..plan.plan import ConstantOutput, Plan, Port
from ..plan.record import record

#: What a caller may feed, once checked
Feed = Union[np.ndarray, Tensor]


@record
class PortSize:
    """A port for given symbol values.  ``border`` bytes hold the elements, kernels may touch ``padded`` bytes."""

    dtype: str
    shape: tuple[int, ...]
    elements: int
    border: int
    padded: int


def port_size(port: Port, shape: tuple[int, ...], tensor_cap: int) -> PortSize:
    """Return the size of a port whose shape is ``shape``.

    Raises :class:`LimitError` for a tensor of more than ``tensor_cap`` elements.
    """
    elements = math.prod(shape)
    if elements > tensor_cap:
        raise LimitError(
            f"the tensor has {elements:,} elements; the cap is {tensor_cap:,}",
            tensor=port.name,
            hint="raise caps.tensor_elements",
        )
    dtype = BY_NAME[port.dtype]
    return PortSize(port.dtype, shape, elements, border_bytes(elements, dtype), padded_bytes(elements, dtype))


def bind_symbols(plan: Plan, feeds: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the values of the plan's symbols that the shapes of the feeds imply, in the plan's order.

    Raises :class:`InputError` if a feed is missing, or its dtype or shape does not fit the plan.
    """
    symbols: dict[str, int] = {}
    derived: list[tuple[Port, int, DimExpr, int]] = []
    for port in plan.inputs:
        feed = feeds.get(port.name)
        if feed is None:
            raise InputError("no value was given", tensor=port.name)
        dtype = BY_NAME[port.dtype]
        feed_dtype = feed.element_type if isinstance(feed, Tensor) else feed.dtype.name
        if feed_dtype != dtype.numpy and feed_dtype != interface_dtype(dtype).name:
            raise InputError(f"has dtype {feed_dtype}, expected {dtype.numpy}", tensor=port.name)
        shape = feed.shape
        if shape == port.shape:
            continue
        if len(shape) != len(port.shape):
            raise InputError(f"has rank {len(shape)}, expected {len(port.shape)}", tensor=port.name)
        for axis, (size, dim) in enumerate(zip(shape, port.shape)):
            if size == dim or (isinstance(dim, str) and symbols.setdefault(dim, size) == size):
                continue
            derived.append((port, axis, dim, size))
    for symbol in plan.symbols:
        value = symbols.get(symbol.name)
        if value is None:
            raise InternalError(f"no input of the plan has '{symbol.name}' as a dimension")
        if not symbol.range.allows(value):
            raise InputError(
                f"'{symbol.name}' is {value}; it was declared {symbol.range}", hint=symbol.range.refusal(value)
            )
    for port, axis, dim, size in derived:
        expected_size = evaluate(dim, symbols)
        if size != expected_size:
            raise InputError(f"dimension {axis} is {size}, expected {expected_size}", tensor=port.name)
    return tuple(symbols[symbol.name] for symbol in plan.symbols)


def constant_array(constant: ConstantOutput) -> np.ndarray:
    """Return the value of an output that was computed at compile time."""
    source = constant.source
    if source.data is None:
        raise InternalError(f"the constant output '{constant.output}' has no inline data")
    dtype = BY_NAME[source.dtype]
    if dtype.narrow:  # the bits above the width may be set
        return to_border(np.frombuffer(source.data, dtype.storage), dtype).reshape(source.shape)
    return np.frombuffer(source.data, interface_dtype(dtype)).reshape(source.shape)
