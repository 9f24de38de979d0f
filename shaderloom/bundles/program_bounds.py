"""Integers that mean the same beyond the sizes of a tensor, such as an end of a Slice: they are read within these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from ..compiler.ir.graph import Value
from ..compiler.staging.program_graph import PendingNode, make_node
from ..compiler.symbolic import polynomial as ix
from ..execution.program.context import ProgramModel
from ..runtime.plan.dtypes import DType
from ..runtime.plan.errors import Origin

_NOWHERE = Origin("main", 0, "Max")


def bound_of(names: AbstractSet[str], pending: Sequence[PendingNode], values: Mapping[str, Value]) -> int | None:
    """Return the number beyond which, and beyond whose opposite, the integers ``names`` mean the same to all that reads
    them; None where there is no such number.
    """
    most = None
    for item in pending:
        read = {at for at, name in enumerate(item.inputs) if name in names}
        if not read and names.isdisjoint(item.captured):
            continue
        data = values.get(item.inputs[0]) if item.inputs else None
        if data is None or item.node.definition is None or not read.issubset(item.node.definition.bounded_inputs):
            return None
        most = max(most or 0, *(ix.bounds(size)[1] for size in data.shape), 0)
    return None if most is None else most + 1


def within(program: ProgramModel, name: str, dtype: DType, bound: int) -> tuple[list[PendingNode], str]:
    """Return nodes that bring integers into bounds on either side of 0, and the name of what they give."""
    least, most, raised, result = (f"{name} {text} {bound}" for text in ("from -", "to", "at least -", "within"))
    program.add_constant(least, np.array(-bound, dtype.numpy))
    program.add_constant(most, np.array(bound, dtype.numpy))
    nodes = [
        make_node("Max", program.scope, [name, least], [raised], _NOWHERE),
        make_node("Min", program.scope, [raised, most], [result], _NOWHERE),
    ]
    return nodes, result
