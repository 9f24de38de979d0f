"""The node cases of the ONNX backend suite on the default device.

Cases that are expected to be refused or to differ must do so: a pass that nobody expected is an error, too.
"""

from __future__ import annotations

from collections import Counter

import pytest

from .support.node_cases import NOT_COMPARABLE, REFUSED, Outcome, node_cases, run_case, why_left_out

PARTS = 16
#: Fewer cases than this that pass mean that something common to many of them is broken
LEAST = 1_500


def _unexpected(outcome: Outcome) -> bool:
    if outcome.name in NOT_COMPARABLE:
        return outcome.kind != "wrong"
    if outcome.name in REFUSED:
        return outcome.kind != "refused" or REFUSED[outcome.name] not in outcome.reason
    return outcome.kind not in ("passed", "left out")


@pytest.mark.parametrize("number", range(PARTS))
def test_node_cases(number: int, device):
    outcomes = [run_case(case, device) for case in node_cases()[number::PARTS]]
    counted = Counter(outcome.kind for outcome in outcomes)
    print(dict(counted))
    unexpected = [f"{each.name} is {each.kind}: {each.reason}" for each in outcomes if _unexpected(each)]
    assert not unexpected, "\n".join(unexpected)
    assert counted["passed"] > LEAST // PARTS // 2


def test_most_cases_concern_a_device():
    concerned = [case.name for case in node_cases() if why_left_out(case.model) is None]
    assert len(concerned) - len(REFUSED) - len(NOT_COMPARABLE) >= LEAST


def test_tables_name_cases_that_concern_us():
    """What is in a table exists, and is not left out for another reason anyway."""
    cases = {case.name: case for case in node_cases()}
    for name in (*REFUSED, *NOT_COMPARABLE):
        assert name in cases, f"the suite has no {name}"
        assert why_left_out(cases[name].model) is None, f"{name} is left out: {why_left_out(cases[name].model)}"
