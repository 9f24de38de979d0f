"""Names of the integers that a program reads, by which ranges are declared and runs are refused."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from ..compiler.ir.graph import Value
from ..compiler.staging.partial_compile import Parts
from ..compiler.staging.program_graph import PendingNode
from ..compiler.symbolic.dimensions import serialise
from ..execution.program.context import ProgramModel
from .program_equality import Equalities


def numbered(base: str, count: int) -> list[str]:
    """Return names for the elements of a value."""
    return [base if count == 1 else f"{base}[{position}]" for position in range(count)]


def base_name(name: str, split: Sequence[PendingNode], parts: Parts, equal: Equalities) -> str:
    """Return the name of a value for its elements: that of the value, of what an operator gives whose elements are
    counted, or of the operand that an operator makes sizes of.  ``parts`` are those of nodes that are split, ``split``
    the nodes that others stand for now.
    """
    counted = [item.outputs[0] for item in split if any(name in part.outputs for part in parts.get(item, ()))]
    for part in itertools.chain.from_iterable(parts.values()):
        if name in part.outputs and part.node.definition is not None and part.node.definition.names_sizes is not None:
            return equal.source(part.inputs[part.node.definition.names_sizes])
    return counted[0] if counted else equal.source(name)


def of_outputs(
    symbols: list[str], program: ProgramModel, values: Mapping[str, Value], taken: Collection[str]
) -> tuple[str, ...]:
    """Return names for symbols, none of which is ``taken``: those of the dimensions of outputs that they are among the
    ``values``, where declared.
    """
    named: set[str] = set()
    for port in program.imported.outputs:
        result = values.get(port.name)
        for size, dim in zip(result.shape, port.dims or ()) if result is not None else ():
            symbol = serialise(size)
            if isinstance(dim, str) and dim not in named and dim not in taken and symbol in symbols:
                symbols[symbols.index(symbol)] = dim
                named.add(dim)
    while not set(taken).isdisjoint(symbols):
        symbols = [f"{symbol} read" if symbol in taken else symbol for symbol in symbols]
    return tuple(symbols)
