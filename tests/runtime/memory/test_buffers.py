"""Staging buffers: made ahead for a run to come, borrowed and given back.  Covers: runtime/memory/buffers."""

from __future__ import annotations

import pytest

from shaderloom.runtime.memory.buffers import StagingPool
from shaderloom.runtime.plan.caps import MemoryAccount


@pytest.fixture
def pool(device):
    account = MemoryAccount(1 << 30)
    pool = StagingPool(device, account)
    yield pool, account
    pool.close()
    assert account.used == 0


def test_a_reserved_buffer_serves_the_run_to_come(pool):
    staging, account = pool
    staging.reserve(4000)
    used = account.used
    assert used >= 4000
    buffer = staging.borrow(4000)
    assert account.used == used
    staging.give_back(buffer)
    staging.reserve(4000)
    assert account.used == used, "one is there"


def test_a_buffer_that_is_there_does_not_make_room(device):
    account = MemoryAccount(4096)
    staging = StagingPool(device, account)
    staging.give_back(staging.borrow(800))
    staging.reserve(8000)
    assert account.used == 800
    staging.close()
    assert account.used == 0


def test_nothing_is_reserved_for_large_outputs_or_none(pool):
    staging, account = pool
    staging.reserve(0)
    staging.reserve((1 << 20) + 4)
    assert account.used == 0
    staging.give_back(staging.borrow((1 << 20) + 4))
