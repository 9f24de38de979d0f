"""Precision constraints on values that cross the stages of a program in half precision.

Values cross from stage to stage in the types that the model declares, so float32 ones are not rounded there.  Inside a
stage they may be rounded: a stage must know the values that control later stages, positions, and masks that a constant
pushes beyond the range of float16.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...compiler.precision.exact_set import InterfaceConstraints
from ...compiler.staging.control_dependence import deciding_names, names_behind_integers
from ...compiler.staging.program_graph import PendingNode
from ...runtime.plan.facts import PrecisionFacts


class InterfaceFacts:
    """Integral and overflowing values among those that left stages, by qualified name."""

    def __init__(self) -> None:
        self._integral: set[str] = set()
        self._overflowing: dict[str, tuple[bool, bool]] = {}

    def learn(self, facts: PrecisionFacts) -> None:
        """Add a plan's facts about its outputs."""
        self._integral.update(facts.positions)
        self._overflowing.update(facts.overflowing)

    def add_aliases(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Declare each second name an alias of the first."""
        for source, target in pairs:
            if source in self._integral:
                self._integral.add(target)
            if source in self._overflowing:
                self._overflowing[target] = self._overflowing[source]

    def of_stage(
        self,
        inputs: Collection[str],
        outputs: Collection[str],
        pending: Sequence[PendingNode],
        control: Collection[str],
    ) -> InterfaceConstraints:
        """Return the constraints of a stage: ``pending`` are the nodes after it, ``control`` names are always exact."""
        return InterfaceConstraints(
            control=frozenset(deciding_names(pending, control).intersection(outputs)),
            exact=frozenset(names_behind_integers(pending).intersection(outputs)),
            integral=frozenset(self._integral.intersection(inputs)),
            overflowing={name: self._overflowing[name] for name in inputs if name in self._overflowing},
        )
