"""Staging buffers, made ahead, borrowed and given back; what uploads hold in staging memory.

Covers: runtime/memory/buffers.py.
"""

from __future__ import annotations

import pytest

from shaderloom.runtime.memory import buffers
from shaderloom.runtime.memory.buffers import StagingPool, Uploads
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


@pytest.mark.parametrize("size", [4, 1 << 20, 100 << 20])
def test_uploads_hold_the_bytes_of_few_chunks_in_staging_memory(size, device, monkeypatch):
    """However large each of them is: many small weights are as many bytes as few large ones."""
    staged, most = 0, 0

    def write(device, buffer, offset, data):
        nonlocal staged, most
        staged += len(data)
        most = max(most, staged)

    def wait():
        nonlocal staged
        staged = 0

    monkeypatch.setattr(buffers, "write", write)
    monkeypatch.setattr(device, "wait", wait)
    uploads = Uploads(device)
    total = max(size, 200 << 20 if size > 4 else 4000)
    assert sum(sum(uploads.write(None, bytes(size), 0)) for _ in range(total // size)) == total // size * size
    assert most <= min(32 << 20, total)
