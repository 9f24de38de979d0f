"""The node cases of the ONNX backend suite on the default device.

A run takes a random sample, the same for a seed; ``--all-node-cases`` takes all of them.  Cases that are expected to be
refused or to fail must do so: a pass that nobody expected is an error, too.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from .support.node_cases import AT_FAULT, REFUSED, Outcome, node_cases, run_case, why_left_out

PARTS = 16
#: Cases of a part that a short run takes
SAMPLE = 24
SEED = 20261128


def _part(number: int, everything: bool) -> list:
    cases = node_cases()[number::PARTS]
    if everything:
        return list(cases)
    concerned = [case for case in cases if why_left_out(case.model) is None]
    return random.Random(SEED + number).sample(concerned, min(SAMPLE, len(concerned)))


def _unexpected(outcome: Outcome) -> bool:
    if outcome.name in AT_FAULT:
        return outcome.kind != "wrong"
    if outcome.name in REFUSED:
        return outcome.kind != "refused" or REFUSED[outcome.name] not in outcome.reason
    return outcome.kind not in ("passed", "left out")


@pytest.mark.parametrize("number", range(PARTS))
def test_node_cases(number: int, device, request: pytest.FixtureRequest):
    outcomes = [run_case(case, device) for case in _part(number, request.config.getoption("--all-node-cases"))]
    counted = Counter(outcome.kind for outcome in outcomes)
    print(dict(counted))
    unexpected = [f"{each.name} is {each.kind}: {each.reason}" for each in outcomes if _unexpected(each)]
    assert not unexpected, "\n".join(unexpected)
    assert counted["passed"]


def test_tables_name_cases_that_concern_us():
    """What is in a table exists, and is not left out for another reason anyway."""
    cases = {case.name: case for case in node_cases()}
    for name in (*REFUSED, *AT_FAULT):
        assert name in cases, f"the suite has no {name}"
        assert why_left_out(cases[name].model) is None, f"{name} is left out: {why_left_out(cases[name].model)}"
