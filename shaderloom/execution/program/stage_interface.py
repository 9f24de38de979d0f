"""What the stages of a program in half precision must know of each other.

Values cross from stage to stage as the model declares them, so float32 ones are not rounded there.  Inside a stage they
may be: what decides about later stages, positions, and masks that a constant sends beyond the range must be known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...compiler.precision.float16_storage import Borders
from ...compiler.staging.control_dependence import deciding_names, names_behind_integers
from ...compiler.staging.program_graph import PendingNode
from ...runtime.plan.facts import PrecisionFacts


class BorderFacts:
    """Positions and far values among those that left stages, by qualified name."""

    def __init__(self) -> None:
        self._positions: set[str] = set()
        self._far: dict[str, tuple[bool, bool]] = {}

    def learn(self, facts: PrecisionFacts) -> None:
        """Add what a plan states about its outputs."""
        self._positions.update(facts.positions)
        self._far.update(facts.overflowing)

    def same(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Each second name is another one of the value that has the first."""
        for source, target in pairs:
            if source in self._positions:
                self._positions.add(target)
            if source in self._far:
                self._far[target] = self._far[source]

    def of_stage(
        self,
        inputs: Collection[str],
        outputs: Collection[str],
        pending: Sequence[PendingNode],
        deciding: Collection[str],
    ) -> Borders:
        """What a stage must know: ``pending`` are the nodes behind it, ``deciding`` names decide in any case."""
        return Borders(
            deciding=frozenset(deciding_names(pending, deciding).intersection(outputs)),
            exact=frozenset(names_behind_integers(pending).intersection(outputs)),
            positions=frozenset(self._positions.intersection(inputs)),
            far={name: self._far[name] for name in inputs if name in self._far},
        )
