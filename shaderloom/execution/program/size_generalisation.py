"""Open sizes of a stage (:mod:`...model.open_sizes`), as the compiler and the inputs of its plan have them.

A plan derives its dimensions from the shapes of its inputs.  One that only a compiled-in integer determines gets an
input of its own, a *size input*: a tensor of that many rows, without elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...compiler.staging.partial_compile import StageInput
from ...compiler.symbolic import polynomial as ix
from ...compiler.symbolic.dimensions import dimension
from ...model.open_sizes import MOST_ELEMENTS, GeneralisedShape, open_dim
from ...runtime.plan.dtypes import UINT8
from ...runtime.plan.plan import Symbol
from ..steps import SizeInput


def open_stage_input(general: GeneralisedShape, name: str, value: StageInput) -> StageInput:
    """Return a value for the compiler, with its open sizes as symbols."""
    if value.static_value is None:
        sizes = tuple(map(ix.number, value.shape))
        return replace(value, shape=tuple(map(open_dim, general.replaced(name, sizes))))
    if not any((name, element) in general.sizes for element in range(min(value.static_value.size, MOST_ELEMENTS))):
        return value
    elements = np.empty(value.static_value.size, object)
    elements[:] = [open_dim(size) for size in general.replaced(name, value.static_value.reshape(-1).tolist())]
    return replace(value, static_value=elements.reshape(value.static_value.shape))


def size_inputs(general: GeneralisedShape, inputs: Mapping[str, StageInput]) -> dict[str, SizeInput]:
    """Return inputs, by name, for the symbols that no axis of the stage inputs determines."""
    exact = {place: size.symbol for place, size in general.sizes.items() if not size.offset}
    determined = {symbol for (name, _), symbol in exact.items() if inputs[name].static_value is None}
    return {
        f"rows of {symbol.name}": SizeInput(*place, symbol)
        for place, symbol in exact.items()
        if symbol not in determined
    }


def size_stage_input(symbol: Symbol) -> StageInput:
    """Return the value of a :class:`SizeInput` for the compiler."""
    return StageInput(UINT8, (dimension(symbol.name, *symbol.range), 0))
