"""Sizes in a program that is compiled: integers that are symbols, and inputs of stages that have the size of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..compiler.staging.partial_compile import Advance, StageInput
from ..compiler.staging.program_graph import PendingNode
from ..compiler.symbolic import polynomial as ix
from ..compiler.symbolic.dimensions import declared_dimension, dimension
from ..runtime.bundle.structure import most_of
from ..runtime.plan.dtypes import UINT8
from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.plan import Symbol
from ..runtime.plan.record import record
from ..runtime.plan.size_range import SizeRange


@record
class SizePort(StageInput):
    """An input of a stage that has no elements, but as many rows as a symbol says."""

    symbol: str = ""


def size_inputs(reached: Advance, symbol_of: Callable[[str], Symbol]) -> dict[str, SizePort]:
    """Return inputs by name for the symbols that no axis of the stage's inputs determines.

    Raises :class:`UnsupportedError` for a stage of more symbols than a plan has.
    """
    names = sorted(symbols_of(reached))
    most = most_of("plan", "symbols")
    if len(names) > most:
        raise UnsupportedError(
            f"a stage depends on {len(names)} sizes that runs decide; {most} at most",
            origin=reached.done[-1].origin,
            hint="export the model with fewer of them",
        )
    determined = {size for value in reached.inputs.values() if value.static_value is None for size in value.shape}
    rows = {}
    for name in names:
        symbol = symbol_of(name)
        size = dimension(name, *symbol.range)
        if size not in determined:
            port = f"rows of {name}"
            while port in reached.values:
                port += " again"
            rows[port] = SizePort(UINT8, (size, 0), symbol=name)
    return rows


def partly_known(reached: Advance) -> set[PendingNode]:
    """Return the nodes that join integers which are known and some which are not, for a value that is wanted: the
    latter alone need to be read.
    """
    producers = {name: item for item in reached.done for name in item.outputs}
    items: set[PendingNode] = set()
    queue = [producers[name] for name in reached.wanted if name in producers]
    while queue:
        item = queue.pop()
        if item in items:
            continue
        items.add(item)
        queue += [producers[name] for name in item.inputs if name in producers]
    return {item for item in items if item.node.op == "Concat" and _is_partly_known(item, reached)}


def _is_partly_known(item: PendingNode, reached: Advance) -> bool:
    operands = [reached.values[name] for name in item.inputs]
    unknown = [operand for operand in operands if operand.static_value is None]
    is_read = all(operand.dtype.is_integer and operand.elements != 0 for operand in operands)
    return is_read and 0 < len(set(unknown)) < len(operands)


def symbols_of(reached: Advance) -> set[str]:
    """Return the names of the symbols in the shapes and elements of a stage's inputs."""
    sizes: set[Any] = set()
    fitted = [reached.values[name] for name in reached.inputs if name in reached.values]
    described = [(value.shape, value.static_value) for value in reached.inputs.values()]
    for shape, elements in [*described, *((value.shape, value.static_value) for value in fitted)]:
        sizes.update(shape)
        if elements is not None and elements.dtype == object:
            sizes.update(elements.reshape(-1))
    declared = (declared_dimension(name) for size in sizes if isinstance(size, ix.Index) for name in ix.variables(size))
    return {each.name for each in declared if each is not None}


def integers(value: StageInput, ranges: Mapping[str, SizeRange]) -> StageInput:
    """Return a value whose elements are integers of these ranges: symbols, of which some are shifted to be sizes."""
    elements = np.empty(len(ranges), object)
    elements[:] = [ix.add(dimension(symbol, *each.sizes), each.shift) for symbol, each in ranges.items()]
    if all(isinstance(element, int) for element in elements):
        elements = elements.astype(np.int64)
    return StageInput(value.dtype, value.shape, elements.reshape([ix.number(size) for size in value.shape]))
