"""Decisions that a compilation makes among configurations: asked by problem, made by measurements or by a cost model.

Whatever has several legal configurations asks here with the *key* of its problem and its candidates, the best by the
cost model first.  A key is text that tells the problem from every other one whose best configuration may differ: the
family, sizes, element types, the kind of epilogue.  It names no tensor and no model, so that what was measured in one
model serves in all.

A tuning record is used only if its configuration is one of the candidates: what a database says can make a kernel slow,
never wrong, and it cannot break a limit of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, is_dataclass
from typing import Any, TypeVar

from ...runtime.plan.facts import ANALYTIC, DecisionFacts
from ...runtime.plan.notes import Alternative
from ...runtime.plan.record import fields_by_name, record

#: A configuration that is offered for a problem: a frozen dataclass, or a plain value
Candidate = TypeVar("Candidate")

#: A candidate as JSON values
EncodedCandidate = Mapping[str, Any]

#: Alternatives that a plan notes for a decision
_NOTED = 8


@record
class TuningRecord:
    """A measured configuration: its nanoseconds, and those of the configuration that the cost model prefers."""

    candidate: EncodedCandidate
    source: str
    nanoseconds: float
    analytic_nanoseconds: float


@record(slots=False)
class Decision:
    """The configuration that was chosen for a problem.  ``candidates`` are all that were offered, the model's best
    first; ``cost`` returns what the model ordered them by, None for one that a rule placed.
    """

    key: str
    candidate: EncodedCandidate
    source: str
    nanoseconds: float | None = None  #: None where nothing was measured
    analytic_nanoseconds: float | None = None
    candidates: tuple[Any, ...] = field(default=(), repr=False)
    nodes: dict[str, None] = field(default_factory=dict, repr=False)  #: ONNX nodes, where a pass asked
    cost: Callable[[Any], float | None] | None = field(default=None, repr=False, compare=False)

    def facts(self) -> DecisionFacts:
        """Return the record of a plan."""
        return DecisionFacts(self.key, self.source, len(self.candidates), self.nanoseconds, self.analytic_nanoseconds)

    def alternatives(self) -> tuple[Alternative, ...]:
        """Return the first candidates with their costs relative to the best, up to the chosen one at least."""
        chosen = next(number for number, item in enumerate(self.candidates) if encode(item) == self.candidate)
        shown = self.candidates[: max(_NOTED, chosen + 1)]
        costs = [None if self.cost is None else self.cost(item) for item in shown]
        best = min((cost for cost in costs if cost is not None), default=None)
        return tuple(
            Alternative(
                describe(encode(item)),
                None if cost is None or best is None else float(f"{cost / best:.4g}"),
                number == chosen,
            )
            for number, (item, cost) in enumerate(zip(shown, costs))
        )


def problem_key(family: str, **facts: object) -> str:
    """Return the key of a problem; facts keep the order in which they are given."""
    return " ".join((family, *(f"{name}={value}" for name, value in facts.items())))


def encode(candidate: Any) -> dict[str, Any]:
    """Return a configuration as JSON values; equal configurations, and only those, are encoded alike."""
    if is_dataclass(candidate) and not isinstance(candidate, type):
        return {"form": type(candidate).__name__, **fields_by_name(candidate)}
    return {"form": "value", "value": candidate}


def describe(candidate: EncodedCandidate) -> str:
    """Return an encoded candidate as text for people."""
    facts = ", ".join(f"{name} {value}" for name, value in candidate.items() if name != "form")
    return str(candidate.get("value")) if candidate.get("form") == "value" else f"{candidate.get('form')}({facts})"


class Choices:
    """The decisions of one compilation.  ``records`` are measurements by key; without them the cost model decides."""

    def __init__(self, records: Mapping[str, TuningRecord] | None = None) -> None:
        self._records = records or {}
        self.decisions: dict[str, Decision] = {}  #: by key, in the order of the questions
        self.tiled: set[str] = set()  #: variables of sizes of few rows, to whose ranges configurations were fitted

    def choose(
        self,
        key: str,
        candidates: Sequence[Candidate],
        nodes: Iterable[object] = (),
        cost: Callable[[Candidate], float | None] | None = None,
    ) -> Candidate:
        """Return one of ``candidates``, which are not empty: the measured best, else the first.

        A pass gives the ONNX ``nodes`` for which it asks.  ``cost`` is what ordered the candidates, for people.
        """
        decision = self.decisions.get(key)
        if decision is None:
            decision = self.decisions[key] = self._decide(key, candidates, cost)
        decision.nodes.update(dict.fromkeys(map(str, nodes)))
        return next((item for item in candidates if encode(item) == decision.candidate), candidates[0])

    def _decide(
        self, key: str, candidates: Sequence[Candidate], cost: Callable[[Candidate], float | None] | None
    ) -> Decision:
        record = self._records.get(key)
        if record is None or not any(encode(item) == record.candidate for item in candidates):
            return Decision(key, encode(candidates[0]), ANALYTIC, candidates=tuple(candidates), cost=cost)
        return Decision(
            key,
            record.candidate,
            record.source,
            record.nanoseconds,
            record.analytic_nanoseconds,
            tuple(candidates),
            cost=cost,
        )

    def measure_like(self, other: Choices) -> bool:
        """Return whether both decide by the same measurements."""
        return self._records == other._records

    def without_decisions(self) -> Choices:
        """Return the same measurements without a decision yet, for another compilation."""
        return Choices(self._records)

    def decision_log(self) -> dict[str, EncodedCandidate | None]:
        """Return the measured configuration of each problem that was asked for, None for those without a measurement.

        With equal logs a compilation gives equal plans.
        """
        return {key: self._measured(key) for key in self.decisions}

    def is_current(self, log: Mapping[str, EncodedCandidate | None]) -> bool:
        """Return whether the current measurements would answer an earlier compilation's queries in the same way."""
        return all(self._measured(key) == candidate for key, candidate in log.items())

    def _measured(self, key: str) -> EncodedCandidate | None:
        record = self._records.get(key)
        return None if record is None else record.candidate
