"""Whole models in sessions, and what sessions hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shaderloom
from shaderloom.compiler.tuning import packed_tiles
from shaderloom.execution.engine import WgpuEngine
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.plan.plan import Plan

from .comparison import assert_model_close

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


def check_on_device(path: Path, feeds: Feeds, device: object) -> None:
    """Compare a model with onnxruntime; none of its nodes may go to the cpu."""
    results, report = run_session(path, feeds, device)
    assert_all_on_device(report)
    assert_model_close(results, path, feeds)


def multiplying_bytes(device: Device) -> Device:
    """Return a device as the compiler sees one that multiplies bytes faster than floats."""
    return Device(device.gpu, replace(device.profile, kind="discrete", adapter="NVIDIA"), device.adapter)


def leave_groups_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the activations of small products be rounded, too: a GPU would multiply them in groups of rows."""
    monkeypatch.setattr(packed_tiles, "takes_groups", lambda *sizes: False)


def byte_products(session: shaderloom.InferenceSession) -> int:
    """Return the calls of a session's last plan that multiply bytes; no product with a weight of few bits may be left
    of those that multiply floats."""
    labels = [call["label"] for call in session.report()["call_list"]]
    assert not any("PackedMatMul" in label for label in labels)
    return sum("ByteMatMul" in label for label in labels)


def note_checks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list of whether each shader that is compiled from now on has bounds checks."""
    asked = []
    original = Device.create_module

    def create_module(self: Device, wgsl: str, *, checked: bool, label: str, max_bytes: int) -> object:
        asked.append(checked)
        return original(self, wgsl, checked=checked, label=label, max_bytes=max_bytes)

    monkeypatch.setattr(Device, "create_module", create_module)
    return asked


def engine_of(session: shaderloom.InferenceSession) -> WgpuEngine:
    """Return what runs the session: its memory and its compiled plans are no part of the API."""
    return session._engine


def plans_of(session: shaderloom.InferenceSession) -> list[Plan]:
    """Return the plans that the session compiled."""
    return list(engine_of(session).program.plans())
