"""The trace that ``SessionOptions.enable_profiling`` asks for, as onnxruntime writes it: a list of Chrome's events."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..runtime.execution.timing import Profile
from ..runtime.plan.errors import unwritable
from ..runtime.plan.plan import Plan

#: Runs one model: feeds and targets give results
Run = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


class RunTrace:
    """Times of the runs of one session; times of events are in microseconds from ``start_ns``."""

    def __init__(self) -> None:
        self.start_ns = time.time_ns()
        self.feeds: Mapping[str, Any] | None = None
        self._zero = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []

    def timed(self, run: Run) -> Run:
        """Return ``run`` with the time it takes recorded; its feeds are kept until the next."""

        def timed(feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, Any]:
            start = self._now()
            results = run(feeds, targets)
            self._events.append(self._event("Session", "model_run", start, self._now() - start, {}))
            self.feeds = feeds
            return results

        return timed

    def write(self, prefix: str, stages: Sequence[tuple[Plan, Profile]]) -> str:
        """Write the runs, and the kernels of ``stages`` after them; return the name of the file."""
        from ..plans.profiling import summarise_stages

        events, start = list(self._events), self._now()
        for call in summarise_stages([stages]).calls if stages else ():
            details = {"op_name": call.template, "provider": "WebGpuExecutionProvider", "nodes": list(call.origins)}
            taken = call.nanoseconds / 1e3
            events.append(self._event("Node", f"{call.label or call.template}_kernel_time", start, taken, details))
            start += taken
        path = f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{self.start_ns // 1_000_000 % 1000:03}.json"
        try:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(events, file)
        except OSError as error:
            raise unwritable(path, error, "set profile_file_prefix") from error
        return path

    def _now(self) -> float:
        return (time.perf_counter_ns() - self._zero) / 1e3

    @staticmethod
    def _event(category: str, name: str, start: float, taken: float, details: dict[str, Any]) -> dict[str, Any]:
        thread = threading.get_native_id()
        event = {"cat": category, "pid": os.getpid(), "tid": thread, "dur": taken, "ts": start, "ph": "X"}
        return {**event, "name": name, "args": details}
