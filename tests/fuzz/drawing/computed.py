"""Operands of given elements that the model computes from its inputs: a plan cannot know them while it is compiled.

Each way is a few nodes whose result is the array that is asked for, from an input that is made for it.  :func:`decided`
also says which input decides otherwise, so that a model can be run with the other decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from shaderloom.runtime.plan.dtypes import BY_NAME

from .forms import NARROW
from .oracle import Known
from .source import Unsuitable, choose

if TYPE_CHECKING:
    from .growth import Growth

#: Adds nodes to a graph; gives their result, and the input's elements for other elements of the result
Way = Callable[["Growth", np.ndarray], tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]]


def computed(growth: Growth, array: np.ndarray) -> Known:
    """A value of exactly these elements, computed from an input."""
    return _compute(growth, array, None)


def decided(growth: Growth, array: np.ndarray, other: np.ndarray) -> Known:
    """A value of these elements that decides about branches or steps: a constant, an input, or computed from one.

    ``other`` are elements with which the model is run as well.
    """
    way = growth.source.integer(0, 3)
    if way == 0 or growth.inputs_only:
        return growth.add(array, True)
    if way > 1:
        return _compute(growth, array, other)
    value = growth.add(array, False)
    _switch(growth, value, other)
    return value


def _compute(growth: Growth, array: np.ndarray, other: np.ndarray | None) -> Known:
    array = np.asarray(array)
    result, source, elements = choose(growth.source, _ways(array))(growth, array)
    if result.array.dtype != array.dtype or not np.array_equal(result.array, array):
        raise Unsuitable
    if other is not None:
        _switch(growth, source, elements(np.asarray(other)))
    return result


def _switch(growth: Growth, source: Known, other: np.ndarray) -> None:
    from .growth import Switch

    growth.shared.switches.append(Switch(source.name, other))


def _ways(array: np.ndarray) -> list[Way]:
    if array.dtype == np.bool_:
        return [_inverted, _converted, _compared]
    if array.dtype.name in NARROW or array.dtype.kind not in "iuf":
        return [_gathered]
    ways = [_added, _converted, _gathered]
    if array.dtype == np.int64 and array.size == 1 and array.min() >= 0:
        ways += [_counted, _found]
    return ways


def _inverted(growth: Growth, array: np.ndarray) -> tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]:
    source = growth.add(~array, False)
    return growth.apply("Not", source), source, np.logical_not


def _compared(growth: Growth, array: np.ndarray) -> tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]:
    """3 or -2 above 1/2."""

    def elements(wanted: np.ndarray) -> np.ndarray:
        return np.where(wanted, 3.0, -2.0).astype(np.float32)

    source = growth.add(elements(array), False)
    bound = growth.add(np.array(0.5, np.float32), True)
    return growth.apply("Greater", source, bound), source, elements


def _added(growth: Growth, array: np.ndarray) -> tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]:
    step = growth.add(np.ones(array.shape[-1:], array.dtype), True)

    def elements(wanted: np.ndarray) -> np.ndarray:
        return np.asarray(wanted + step.array, array.dtype)

    source = growth.add(elements(array), False)
    return growth.apply("Sub", source, step), source, elements


def _converted(growth: Growth, array: np.ndarray) -> tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]:
    kind = choose(growth.source, [np.float32, np.int32])
    if kind == np.int32 and array.dtype.kind == "f":
        raise Unsuitable

    def elements(wanted: np.ndarray) -> np.ndarray:
        return np.asarray(wanted).astype(kind)

    source = growth.add(elements(array), False)
    return growth.apply("Cast", source, to=BY_NAME[array.dtype.name].onnx), source, elements


def _gathered(growth: Growth, array: np.ndarray) -> tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]:
    """One entry of an input that has several."""
    row = growth.source.integer(0, 2)

    def elements(wanted: np.ndarray) -> np.ndarray:
        return np.stack([wanted if at == row else np.zeros_like(wanted) for at in range(3)])

    source = growth.add(elements(array), False)
    return growth.apply("Gather", source, growth.add(np.array(row), True), axis=0), source, elements


#: the largest number that is counted
MOST_COUNTED = 40


def _mask(wanted: np.ndarray) -> np.ndarray:
    """As many true elements as the number says; the size is the same for all numbers."""
    mask = np.zeros(MOST_COUNTED + 3, np.bool_)
    mask[1 : 1 + int(wanted.reshape(-1)[0])] = True
    return mask


def _counted(growth: Growth, array: np.ndarray) -> tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]:
    """The number of true elements, as a sum."""
    if array.max() > MOST_COUNTED or array.ndim > 1:
        raise Unsuitable
    source = growth.add(_mask(array), False)
    ones = growth.apply("Cast", source, to=BY_NAME["int64"].onnx)
    if growth.opset < 13:
        return growth.apply("ReduceSum", ones, axes=[0], keepdims=array.ndim), source, _mask
    axes = growth.add(np.array([0]), True)
    return growth.apply("ReduceSum", ones, axes, keepdims=array.ndim), source, _mask


def _found(growth: Growth, array: np.ndarray) -> tuple[Known, Known, Callable[[np.ndarray], np.ndarray]]:
    """The number of true elements, as the size of what looks for them."""
    if array.max() > MOST_COUNTED or array.ndim > 1:
        raise Unsuitable
    source = growth.add(_mask(array), False)
    shape = growth.apply("Shape", growth.apply("NonZero", source))
    return growth.apply("Gather", shape, growth.add(np.full(array.shape, 1), True), axis=0), source, _mask
