"""Fixtures of the tests of execution."""

from __future__ import annotations

import pytest

from shaderloom.execution.engine import WgpuEngine


@pytest.fixture
def calibrations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calibration runs of a test."""
    seen: list[str] = []
    measure = WgpuEngine.calibrate
    monkeypatch.setattr(WgpuEngine, "calibrate", lambda *given: (seen.append("run"), measure(*given))[1])
    return seen
