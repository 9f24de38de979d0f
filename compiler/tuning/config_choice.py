"""Choices that a compilation makes among configurations: asked by problem, answered by measurements or by a model.

Whatever has several legal configurations asks here with the *key* of its problem and its candidates, the best by the
analytic model first.  A key is text that tells the problem from every other one whose best configuration may differ:
the family, sizes, element types, the kind of epilogue.  It names no tensor and no model, so that what was measured in
one model serves in all.

An answer that was measured is used only if it is one of the candidates: what a database says can make a kernel slow,
never wrong, and it cannot break a limit of the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, TypeVar

from ...runtime.plan.facts import ANALYTIC, DecisionFacts

Choice = TypeVar("Choice")

#: A choice as JSON values
Encoded = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Known:
    """A measured answer: nanoseconds of the chosen configuration and of what the model would have taken."""

    choice: Encoded
    source: str
    nanoseconds: float
    analytic_nanoseconds: float


@dataclass(frozen=True)
class Answer:
    """What was answered to the question of one key.  ``candidates`` are all that were offered, in the model's order."""

    key: str
    choice: Encoded
    source: str
    nanoseconds: float | None = None  #: None where nothing was measured
    analytic_nanoseconds: float | None = None
    candidates: tuple[Any, ...] = field(default=(), repr=False)
    nodes: dict[str, None] = field(default_factory=dict, repr=False)  #: ONNX nodes, where a pass asked

    def facts(self) -> DecisionFacts:
        """Return the record of a plan."""
        return DecisionFacts(self.key, self.source, len(self.candidates), self.nanoseconds, self.analytic_nanoseconds)


def problem_key(family: str, **facts: object) -> str:
    """The key of a problem; facts keep the order in which they are given."""
    return " ".join((family, *(f"{name}={value}" for name, value in facts.items())))


def encode(choice: Any) -> dict[str, Any]:
    """A configuration as JSON values; equal configurations, and only those, are encoded alike."""
    if is_dataclass(choice) and not isinstance(choice, type):
        return {"form": type(choice).__name__, **asdict(choice)}
    return {"form": "value", "value": choice}


def describe(choice: Encoded) -> str:
    """An encoded choice for people."""
    facts = ", ".join(f"{name} {value}" for name, value in choice.items() if name != "form")
    return str(choice.get("value")) if choice.get("form") == "value" else f"{choice.get('form')}({facts})"


class Choices:
    """The answers of one compilation.  ``known`` are measurements by key; without them the model answers alone."""

    def __init__(self, known: Mapping[str, Known] | None = None) -> None:
        self._known = known or {}
        self.answers: dict[str, Answer] = {}  #: by key, in the order of the questions

    def choose(self, key: str, candidates: Sequence[Choice], nodes: Iterable[object] = ()) -> Choice:
        """One of ``candidates``, of which there must be one: the measured best, else the first.

        A pass gives the ONNX ``nodes`` for which it asks.
        """
        chosen = self._choose(key, candidates)
        self.answers[key].nodes.update(dict.fromkeys(map(str, nodes)))
        return chosen

    def _choose(self, key: str, candidates: Sequence[Choice]) -> Choice:
        present = self.answers.get(key)
        if present is not None:
            return next((item for item in candidates if encode(item) == present.choice), candidates[0])
        chosen = candidates[0]
        known = self._known.get(key)
        if known is not None:
            for item in candidates:
                if encode(item) == known.choice:
                    self.answers[key] = Answer(
                        key,
                        known.choice,
                        known.source,
                        known.nanoseconds,
                        known.analytic_nanoseconds,
                        tuple(candidates),
                    )
                    return item
        self.answers[key] = Answer(key, encode(chosen), ANALYTIC, candidates=tuple(candidates))
        return chosen

    def again(self) -> Choices:
        """Return the same measurements without an answer yet, for another compilation."""
        return Choices(self._known)

    def transcript(self) -> dict[str, Encoded | None]:
        """What each question got from the measurements: with equal transcripts a compilation gives equal plans."""
        return {key: None if known is None else known.choice for key, known in self._asked()}

    def is_current(self, transcript: Mapping[str, Encoded | None]) -> bool:
        """Whether the measurements at hand would answer the questions of an earlier compilation alike."""
        for key, choice in transcript.items():
            known = self._known.get(key)
            if (None if known is None else known.choice) != choice:
                return False
        return True

    def _asked(self) -> list[tuple[str, Known | None]]:
        return [(key, self._known.get(key)) for key in self.answers]
