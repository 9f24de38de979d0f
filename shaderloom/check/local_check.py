"""Recompute single kernels of a run in numpy, from the operands that they had on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.dataflow import post_order
from ..plans.instrument import Observation
from .comparison import Difference, compare

if TYPE_CHECKING:
    from ..compiler.ir.graph import Value
    from ..compiler.kernels.groups import Group
    from ..compiler.passes.lowering import Lowering

#: Types that kernels compute in float32
_FLOATS = ("float32", "float16", "bfloat16")


class LocalCheck:
    """Recomputes kernels in numpy, from the operands that they had on the device."""

    def __init__(
        self, lowering: Lowering, feeds: Mapping[str, np.ndarray], observed: Mapping[int, Observation]
    ) -> None:
        from ..compiler.symbolic.dimensions import dimension_variable
        from ..plans.profiling import symbol_values

        self._fusion = lowering.fusion
        self._running = [group for group in self._fusion.groups if not group.constant]
        self._places = {  #: calls that compute values, and the numbers of these among the results
            value: (number, place)
            for number, group in enumerate(self._running)
            for place, value in enumerate(group.outputs)
        }
        self._feeds = feeds
        self._observed = observed
        sizes = symbol_values(lowering.plan, feeds)
        self._sizes = {
            dimension_variable(symbol.name, symbol.low, symbol.step): sizes[symbol.name] // symbol.step
            for symbol in lowering.plan.symbols
        }
        self._weights: dict[Value, np.ndarray] = {}
        self._generator: np.random.Generator | None = None

    def compare(self, call: int) -> Difference | None:
        """Return the largest difference between the call's results and those of its nodes; None if the call did not
        run.
        """
        if call not in self._observed:
            return None
        group = self._running[call]
        differences = [
            compare(_comparable(value, array), _comparable(value, self._compute(group, value)))
            for value, (_, array) in zip(group.outputs, self._observed[call].results, strict=True)
        ]
        return max(differences, key=lambda difference: difference.error)

    def noise(self, call: int) -> float:
        """Return the change of the call's result when each operand is scaled by 1 plus or minus its last bit.

        All elements of an operand are scaled in the same direction: errors of sums of similar numbers have one sign,
        and do not cancel.
        """
        expected = self._compute(self._running[call])
        self._generator = np.random.default_rng(0)
        try:
            moved = self._compute(self._running[call])
        finally:
            self._generator = None
        error = compare(moved, expected).error
        return error if np.isfinite(error) else 0.0

    def _compute(self, group: Group, result: Value | None = None) -> np.ndarray:
        """Evaluate the group's nodes in numpy and return its output, or ``result`` if that is passed."""
        from ..compiler.reference.interpreter import run_node

        arrays: dict[Value, np.ndarray] = {}
        ordered = sorted(dict.fromkeys(group.nodes), key=_depths(group.nodes).__getitem__)
        for node in ordered:
            operands = [
                None if value is None else arrays[value] if value in arrays else self._moved(self._operand(value))
                for value in node.inputs
            ]
            arrays.update(zip(node.outputs, run_node(node, operands, self._sizes)))
        return arrays[group.output if result is None else result]

    def _moved(self, array: np.ndarray) -> np.ndarray:
        """Return the operand, scaled by one unit in the last place of float32 while :meth:`noise` runs."""
        if self._generator is None or array.dtype.name not in _FLOATS:
            return array
        sign = self._generator.choice((-1.0, 1.0))
        return (array.astype(np.float64) * (1 + sign * np.finfo(np.float32).eps)).astype(np.float32)

    def _operand(self, value: Value) -> np.ndarray:
        """Return an operand of a group: a constant, a transformed weight, an input, or the observed result of another
        call.
        """
        if value.constant is not None:
            return value.constant.read()
        if value.producer is None:
            return self._feeds[value.name]
        if value in self._places:
            call, place = self._places[value]
            return self._observed[call].results[place][1]
        if value not in self._weights:
            group = self._fusion.materialised.get(value)
            self._weights[value] = self._of_sizes(value) if group is None else self._compute(group, value)
        return self._weights[value]

    def _of_sizes(self, value: Value) -> np.ndarray:
        """Return an operand that lies nowhere: numbers that follow from the sizes of the run."""
        from ..compiler.reference.interpreter import run_node

        assert value.producer is not None, "it is no constant"
        operands = [None if operand is None else self._operand(operand) for operand in value.producer.inputs]
        return run_node(value.producer, operands, self._sizes)[value.output_index]


def _comparable(value: Value, array: np.ndarray) -> np.ndarray:
    """Return what a kernel's result must have in common with numpy's: of parts of a range, their range."""
    from ..compiler.rewriting.rules import operator_key

    if value.producer is None or operator_key(value.producer) != "loom.PartialRange":
        return array
    return np.array([array.max(initial=0.0), array.min(initial=0.0)], array.dtype)


def _depths(nodes: Sequence[Any]) -> dict[Any, int]:
    """Return the length of the longest dependency chain among ``nodes`` that ends at each node."""
    depths: dict[Any, int] = {}
    inside = set(nodes)

    def before(node: Any) -> list[Any]:
        return [value.producer for value in node.inputs if value is not None and value.producer in inside]

    for node in post_order(nodes, before):
        depths[node] = 1 + max((depths[producer] for producer in before(node)), default=0)
    return depths
