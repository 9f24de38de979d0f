"""Comparisons of sizes that only a run decides: what is known on either side of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from ..compiler.symbolic import polynomial as ix
from ..compiler.symbolic.polynomial import Comparison, Dim, Undecidable
from ..runtime.plan.record import record

#: Comparisons of a program, those of all sides and attempts counted
MOST_COMPARISONS = 256


@record
class Decided:
    """What the comparisons before a step have decided: ``sizes`` stand for atoms that they equal there, ``answers`` are
    those to comparisons.
    """

    sizes: Mapping[ix.Atom, Dim] = field(default_factory=dict)
    answers: Mapping[Comparison, bool] = field(default_factory=dict)

    def after(self, comparison: Comparison, holds: bool) -> Decided:
        """Return what is decided on one side of a further comparison."""
        test, left, right = comparison
        solved = _solution(ix.add(left, ix.multiply(right, -1))) if test == "equal" and holds else None
        if solved is None:
            return Decided(self.sizes, {**self.answers, comparison: holds})
        replaced = dict([solved])
        answers = {
            (test, ix.transform(left, replaced.get), ix.transform(right, replaced.get)): holds
            for (test, left, right), holds in self.answers.items()
        }
        sizes = {atom: ix.transform(size, replaced.get) for atom, size in self.sizes.items()}
        return Decided({**sizes, **replaced}, answers)


def comparison_in(error: BaseException | None) -> Comparison | None:
    """Return the comparison that an error is about, or the cause of it; None if it is about something else."""
    while error is not None and not isinstance(error, Undecidable):
        error = error.__cause__
    return None if error is None else error.comparison


def comparison_text(comparison: Comparison, holds: bool) -> str:
    """Return a comparison as text, or the opposite of it where it does not hold."""
    test, left, right = comparison
    sign = {("equal", True): "==", ("equal", False): "!=", ("less", True): "<", ("less", False): ">="}[test, holds]
    return f"{ix.text(left)} {sign} {ix.text(right)}"


def _solution(difference: Dim) -> tuple[ix.Atom, Dim] | None:
    """Return an atom, and what it is where ``difference`` is zero: for all other sizes within the bounds that it has.

    A number is preferred, then the atom with the widest bounds; None if there is no such atom.
    """
    best = sorted(_solutions(difference), key=lambda each: (isinstance(each[1], ix.Index), each[0].low - each[0].high))
    return best[0] if best else None


def _solutions(difference: Dim) -> Iterator[tuple[ix.Atom, Dim]]:
    for monomial, coefficient in difference.terms if isinstance(difference, ix.Index) else ():
        if len(monomial) != 1 or abs(coefficient) != 1:
            continue
        (atom,) = monomial
        rest = ix.add(difference, ix.multiply(ix.of_atom(atom), -coefficient))
        size = ix.multiply(rest, -coefficient)
        low, high = ix.bounds(size)
        if atom not in ix.atoms(size) and atom.low <= low and high <= atom.high:
            yield atom, size
