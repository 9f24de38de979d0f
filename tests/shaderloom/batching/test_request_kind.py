"""Whether joining pays is measured.

Covers: shaderloom/batching/request_kind, shaderloom/batching/handover.
"""

from __future__ import annotations

import math

import pytest

from shaderloom.batching import request_kind
from shaderloom.batching.batch_sizes import AnySize
from shaderloom.batching.handover import handover_seconds
from shaderloom.batching.request_kind import RequestKind


@pytest.fixture
def kind() -> RequestKind:
    """A kind of requests whose hand-over takes 0.1 s."""
    return RequestKind(("y",), {"x": 0}, {"y": 0}, AnySize(16), lambda: 0.1)


def measure(kind: RequestKind, seconds: dict[int, float]) -> None:
    for rows, time in seconds.items():
        for _ in range(9):
            kind.sizes.note(rows, time)


def test_single_callers_and_full_batches_wait_for_nobody(kind):
    assert not kind.joins(1, 1)
    assert not kind.joins(16, 4)
    assert kind.joins(1, 2) and kind.joins(15, math.inf)


@pytest.mark.parametrize(("alone", "pays"), [(1.0, True), (0.2, True), (0.11, False)])
def test_a_batch_has_to_gain_what_handing_over_takes(alone, pays, kind):
    measure(kind, {1: alone, 8: 0.8 * alone})
    kind.judge(8, 8)
    assert kind.joins(1, 8) == pays


def test_rows_of_a_request_run_together_anyway(kind):
    measure(kind, {1: 1.0, 4: 1.0, 8: 1.0})
    kind.judge(1, 4)
    kind.judge(2, 8)
    assert kind.joins(4, 2)
    measure(kind, {8: 1.9})
    kind.judge(2, 8)
    assert not kind.joins(4, 2)


def test_nothing_is_judged_by_few_times(kind):
    measure(kind, {1: 0.15})
    for _ in range(3):
        kind.judge(8, 8)
        assert kind.joins(1, 8)
        kind.sizes.note(8, 0.8)


def test_runs_that_are_shorter_than_handing_over_are_never_joined(kind):
    """Which single runs tell, without any batch; longer ones of several rows are judged by batches."""
    for _ in range(3):
        assert kind.joins(1, 8)
        kind.sizes.note(1, 0.1)
    kind.sizes.note(1, 0.1)
    assert not kind.joins(1, 8) and not kind.joins(1, math.inf)
    measure(kind, {4: 0.3})
    assert kind.joins(4, 2)


def test_more_callers_may_gain(kind):
    measure(kind, {1: 0.2, 2: 0.3, 16: 0.5})
    kind.judge(2, 2)
    assert not kind.joins(1, 4)
    assert kind.joins(1, 5)
    kind.judge(16, 16)
    assert kind.joins(1, 2)


def test_a_refusal_is_tried_again(kind, monkeypatch):
    monkeypatch.setattr(request_kind, "_REFRESH", 100)
    measure(kind, {1: 0.15, 16: 0.9})
    kind.judge(16, 16)
    answers = [kind.joins(1, 16) for _ in range(101)]
    assert answers == [False] * 100 + [True]
    kind.judge(16, 16)
    assert kind.joins(1, 16)  # until it is measured again
    measure(kind, {16: 0.9})
    kind.judge(16, 16)
    assert not kind.joins(1, 16)


def test_handing_over_is_measured_once():
    assert 0 < handover_seconds() == handover_seconds()
