"""Integers of a program that have few values: a branch for each, where no plan serves a range of them, such as axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

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


def comparisons(
    program: ProgramModel, scope: ProgramScope, name: str, dtype: DType, arrays: Sequence[np.ndarray]
) -> tuple[list[PendingNode], list[str]]:
    """Return nodes that compare the integers ``name`` with each of ``arrays``, and the names of the conditions."""
    nodes, conditions = [], []
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
