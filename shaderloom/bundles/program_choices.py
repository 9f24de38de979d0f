"""Integers of a program that have few values: a branch for each, where no plan serves a range of them, such as axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from ..compiler.ir.graph import Value
from ..compiler.staging.program_graph import PendingNode, ProgramScope, make_node
from ..execution.program.context import ProgramModel
from ..runtime.plan.dtypes import BOOL, INT32, DType
from ..runtime.plan.errors import Origin
from ..runtime.plan.size_range import SizeRange

#: Values of integers that are read together for each of which there may be a branch
MOST_CHOICES = 16

_NOWHERE = Origin("main", 0, "Equal")


def choices_of(ranges: Sequence[SizeRange | None]) -> list[tuple[int, ...]]:
    """Return the values of integers with these ranges; none if there are more than :data:`MOST_CHOICES`, or a range is
    not known.
    """
    listed = [sizes for sizes in ranges if sizes is not None]
    counts = [(sizes.high - sizes.low) // sizes.step + 1 for sizes in listed]
    if len(listed) < len(ranges) or math.prod(counts) > MOST_CHOICES:
        return []
    return list(itertools.product(*(range(sizes.low, sizes.high + 1, sizes.step) for sizes in listed)))


def axes_rank(
    names: AbstractSet[str], pending: Sequence[PendingNode], values: Mapping[str, Value], count: int
) -> int | None:
    """Return the rank of the tensors of which ``count`` integers are axes, to all that reads them under ``names``; None
    if they are something else, or choose from several ranks, or from too many axes.
    """
    ranks = set()
    for item in pending:
        if names.isdisjoint(item.reads):
            continue
        axes = None if item.node.definition is None else item.node.definition.axes
        if axes is None or [at for at, name in enumerate(item.inputs) if name in names] != [axes.position]:
            return None
        operands = [values.get(name) for name in item.inputs]
        if operands[0] is None:
            return None
        ranks.add(axes.rank(operands))
    (rank,) = ranks if len(ranks) == 1 else (0,)
    return rank if 0 < rank**count <= MOST_CHOICES else None


def comparisons(
    program: ProgramModel,
    scope: ProgramScope,
    name: str,
    dtype: DType,
    arrays: Sequence[np.ndarray],
    rank: int | None = None,
) -> tuple[list[PendingNode], list[str]]:
    """Return nodes that compare the integers ``name`` with each of ``arrays``, and the names of the conditions; axes of
    tensors of a ``rank`` are counted from the front first.
    """
    nodes, conditions = [], []
    if rank is not None:
        program.add_constant(f"{name} rank", np.array(rank, dtype.numpy))
        nodes.append(make_node("Mod", scope, [name, f"{name} rank"], [f"{name} from the front"], _NOWHERE))
        name = f"{name} from the front"
    for array in arrays:
        condition = f"{name} is {' '.join(map(str, array.reshape(-1).tolist()))}"
        value, equal, number, least = (f"{condition} {text}" for text in ("value", "equal", "number", "least"))
        program.add_constant(value, array.astype(dtype.numpy))
        nodes += [
            make_node("Equal", scope, [name, value], [equal], _NOWHERE),
            make_node("Cast", scope, [equal], [number], _NOWHERE, to=INT32.onnx),
            make_node("ReduceMin", scope, [number], [least], _NOWHERE, keepdims=0),
            make_node("Cast", scope, [least], [condition], _NOWHERE, to=BOOL.onnx),
        ]
        conditions.append(condition)
    return nodes, conditions
