"""The table of plans that stay loaded, without a device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest

from shaderloom import notices
from shaderloom.execution.loaded_plans import LoadedPlans
from shaderloom.execution.one_plan import SEEN_SHAPES
from shaderloom.execution.plan_bound import LEAST_PLANS, PLAN_BYTES, RELOADS
from shaderloom.execution.resources import KeyStats, SessionStats
from shaderloom.model.compiled import CompiledPlan
from shaderloom.model.feeds import ShapeKey
from shaderloom.runtime.plan.errors import InputError

from ...support.plans import two_call_plan


@dataclass
class Executor:
    """What the table does with an executor."""

    device_bytes: int = 0
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Resources:
    """Resources whose executors take 2 ms to prepare."""

    stats: SessionStats = field(default_factory=SessionStats)
    open: list[Executor] = field(default_factory=list)
    most: int = 0
    bytes: int = 0  #: of the executors to come

    def load(self, compiled: CompiledPlan, *, is_range: bool) -> tuple[Any, KeyStats]:
        self.open.append(Executor(self.bytes))
        self.most = max(self.most, sum(not executor.closed for executor in self.open))
        return self.open[-1], KeyStats(compiled.milliseconds, compiled.from_disk, 2.0, is_range)


def key(size: int) -> ShapeKey:
    return ShapeKey((("x", (size,)),))


def load(plans: LoadedPlans, size: int) -> Any:
    return plans.load(key(size), CompiledPlan(two_call_plan(), False, 5.0, trusted=True))


def test_the_least_recently_used_plan_goes_before_a_new_one_is_loaded():
    resources = Resources()
    plans = LoadedPlans(resources, 2)
    first, second = load(plans, 1), load(plans, 2)
    assert plans.find(key(1)) is first and plans.last is first
    third = load(plans, 3)
    assert second.executor.closed and second not in plans
    assert plans.find(key(2)) is None
    assert plans.find(key(1)) is first and plans.find(key(3)) is third
    assert resources.most == 2
    assert (resources.stats.hits, resources.stats.evictions) == (3, 1)


def test_concrete_shapes_lead_to_their_plan_while_it_is_loaded():
    plans = LoadedPlans(Resources(), 1)
    shapes = (("x", (1,)),)
    ready = load(plans, 1)
    plans.note(shapes, ready)
    assert plans.find_seen(shapes) is ready
    load(plans, 2)
    assert plans.find_seen(shapes) is None


def test_the_oldest_concrete_shapes_are_forgotten():
    plans = LoadedPlans(Resources(), 1)
    ready = load(plans, 1)
    for size in range(SEEN_SHAPES + 1):
        plans.note((("x", (size,)),), ready)
    assert plans.find_seen((("x", (0,)),)) is None
    assert plans.find_seen((("x", (1,)),)) is ready


def test_statistics_keep_a_row_for_each_key():
    resources = Resources()
    plans = LoadedPlans(resources, 1)
    ready = load(plans, 7)
    load(plans, 8)
    row = resources.stats.keys[str(key(7))]
    assert row is ready.stats and (row.compile_ms, row.from_disk, row.prepare_ms) == (5.0, False, 2.0)
    assert resources.stats.last_key == str(key(8))


def test_clearing_closes_everything():
    resources = Resources()
    plans = LoadedPlans(resources, 3)
    for size in (1, 2):
        load(plans, size)
    plans.clear()
    assert plans.last is None and plans.find(key(1)) is None
    assert all(executor.closed for executor in resources.open)


def test_beyond_the_first_plans_bytes_are_bounded():
    """As many as are always kept stay whatever their size; more only while all are below the bound."""
    resources = Resources(bytes=PLAN_BYTES)
    plans = LoadedPlans(resources, 3 * LEAST_PLANS)
    for size in range(LEAST_PLANS + 2):
        load(plans, size)
    assert resources.stats.evictions == 2
    resources.bytes = 0
    for size in range(100, 100 + 3 * LEAST_PLANS):
        load(plans, size)
    assert sum(not executor.closed for executor in resources.open) == 3 * LEAST_PLANS


def test_plans_that_come_and_go_are_warned_about_once():
    plans = LoadedPlans(Resources(), 2)
    notices.forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(RELOADS):
            for size in range(3):
                load(plans, size)
    (warning,) = caught
    assert "2 at most" in str(warning.message) and "plans=" in str(warning.message)


def test_no_plan_at_all_is_refused():
    with pytest.raises(InputError, match="at least one plan"):
        LoadedPlans(Resources(), 0)
