"""Conditions and counts computed on the host from small integers, without the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...compiler.staging.partial_compile import Advance, StagingContext, advance
from ...compiler.staging.program_graph import PendingNode
from ...runtime.plan.dtypes import to_border
from ..steps import Env
from ..values import RuntimeValue
from .context import ProgramContext
from .state import stage_input

#: Limits of evaluation on the host: elements of a value, and nodes
FOLDED_ELEMENTS, FOLDED_NODES = 64, 32


class HostEvaluator:
    """Evaluates nodes of one program with the operators' rules of constant folding."""

    def __init__(self, context: ProgramContext) -> None:
        self._context = context

    def evaluate(self, nodes: Sequence[PendingNode], names: Sequence[str], env: Env) -> dict[str, np.ndarray] | None:
        """Return the values of ``names``, which ``nodes`` compute; None where a node has no folding rule for them."""
        context = self._context
        reads = {name for item in nodes for name in item.reads if name in env}
        result = advance(
            "host",
            nodes,
            {name: stage_input(env[name], True) for name in reads},
            StagingContext(context.scope.constants, context.limits, context.open_branch),
        )
        values: dict[str, np.ndarray] = {}
        for name in names:
            value = result.values.get(name)
            if value is None or value.static_value is None or value.static_value.dtype == object:
                return None
            values[name] = to_border(value.static_value, value.dtype)
        return values

    def foldable(self, wanted: Sequence[str], reached: Advance, env: Env) -> tuple[list[PendingNode], list[str]]:
        """Return the nodes that the host can run now to compute some of the ``wanted`` names, in order, and those
        names.
        """
        nodes: set[PendingNode] = set()
        names: list[str] = []
        for name in wanted:
            needed = _small_ancestors(name, reached, env)
            if needed and self.evaluate(needed, [name], env) is not None:
                names.append(name)
                nodes.update(needed)
        return [item for item in reached.done if item in nodes], names


def _small_ancestors(name: str, reached: Advance, env: Env) -> list[PendingNode]:
    """Return the backward slice of a value if it is short and reads only small values on the host.

    Integers and bools only: floats would be rounded differently than on the device.
    """
    needed, nodes = {name}, []
    for item in reversed(reached.done):
        if needed.intersection(item.outputs):
            nodes.append(item)
            needed.update(item.reads)
    for read_name in needed:
        value = env.get(read_name)
        if value is not None and not (value.on_host and _is_small_integer(value)):
            return []
    return nodes[::-1] if len(nodes) <= FOLDED_NODES else []


def _is_small_integer(value: RuntimeValue) -> bool:
    dtype = value.dtype
    return dtype is not None and not dtype.is_float and value.host.size <= FOLDED_ELEMENTS
