"""Batches that wait before each step, so that what a test does meanwhile is done before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shaderloom.generate.slots import SlotBatch

from .patience import PATIENCE


@contextmanager
def held_steps() -> Iterator[threading.Event]:
    """Hold every step until the block ends; the event says that one has begun, and so that the batch has texts."""
    begun, go = threading.Event(), threading.Event()
    original = SlotBatch.step

    def step(self: SlotBatch) -> Any:
        begun.set()
        assert go.wait(PATIENCE)
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlotBatch, "step", step)
        try:
            yield begun
        finally:
            go.set()
