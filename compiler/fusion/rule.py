"""The form of fusion's rules: each keeps a pair of neighbours apart, and says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ...runtime.plan.record import record

Candidate = TypeVar("Candidate")


@record(slots=False)
class FusionRule(Generic[Candidate]):
    """A reason not to fuse: where ``check`` holds for a candidate, the pair stays apart with ``remark``.

    ``remark`` is formatted with the candidate as ``{c}``, as in ``"{c.user.op} has several outputs"``.
    """

    name: str
    check: Callable[[Candidate], bool]
    remark: str


def first_remark(rules: Sequence[FusionRule[Candidate]], candidate: Candidate) -> str | None:
    """Return the remark of the first rule that keeps a candidate apart; None if none does."""
    for rule in rules:
        if rule.check(candidate):
            return rule.remark.format(c=candidate)
    return None
