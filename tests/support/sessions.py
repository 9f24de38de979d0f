"""Whole models in sessions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import shaderloom

Feeds = dict[str, np.ndarray]


def run_session(path: Path, feeds: Feeds, device: object, **options: object) -> tuple[list[np.ndarray], dict]:
    """Return the outputs of a session that verifies each pass, and its report."""
    with shaderloom.InferenceSession(path, device=device, cache=False, options={"verify": True}, **options) as session:
        results = session.run(None, feeds)
        return results, session.report()


def assert_all_on_device(report: dict) -> None:
    """Fail if a node of the model went to the cpu."""
    placement = report["placement"]
    assert placement["cpu"] == 0
    assert placement["wgpu"] + placement["folded"] == report["nodes"]
