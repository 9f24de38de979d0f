"""Fixtures of the tests of runs."""

from __future__ import annotations

import pytest

from shaderloom.runtime.execution import recording


@pytest.fixture
def encoded(monkeypatch) -> list[int]:
    """Grows by one with every list of commands that is encoded."""
    calls: list[int] = []
    original = recording.Recording.encode

    def encode(self, device, *, use_native):
        calls.append(len(self.dispatches))
        return original(self, device, use_native=use_native)

    monkeypatch.setattr(recording.Recording, "encode", encode)
    return calls
