"""Runs that are awaited, that call back, and that a closed session refuses.

Covers: shaderloom/api/async_run.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

import numpy as np
import pytest

import shaderloom
from shaderloom.runtime.plan.errors import ClosedError, InputError

from ...support.patience import PATIENCE


def test_runs_are_awaited(session, x):
    async def work() -> list[np.ndarray]:
        runs = [session.run_async(["z"], {"x": x * step}) for step in range(8)]
        return [(await run)[0] for run in runs]

    for step, result in enumerate(asyncio.run(work())):
        np.testing.assert_allclose(result, np.maximum(x * step + np.array([1, 2, 3], np.float32), 0), rtol=1e-6)
    run = session.run_async(["z"], {"x": x})
    np.testing.assert_allclose(run.result(30)[0], session.run(["z"], {"x": x})[0])
    assert run.done()
    with pytest.raises(InputError):
        session.run_async(["z"], {"x": x.astype(np.float64)}).result(30)


def test_errors_reach_the_callback(session, x):
    finished = threading.Event()
    called: list[object] = []

    def callback(results, user_data, error):
        called.extend([results, user_data, error])
        finished.set()

    assert session.run_async(["z"], {"x": x.astype(np.float64)}, callback, 7) is None
    assert finished.wait(PATIENCE)
    assert called[:2] == [[], 7]
    assert "float64" in called[2]


def test_a_closed_session_starts_nothing(device, model, x):
    session = shaderloom.InferenceSession(model, device=device, cache=False)
    runs = [session.run_async(None, {"x": x}) for _ in range(8)]
    session.close()
    for run in runs:  # whatever was in flight ends
        with contextlib.suppress(ClosedError):
            np.testing.assert_allclose(run.result(30)[0], x + np.array([1, 2, 3], np.float32))
    with pytest.raises(ClosedError):
        session.run_async(None, {"x": x})
