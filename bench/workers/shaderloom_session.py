"""Shaderloom, as a program uses it: the disk cache is on, the compiler runs in the first run."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workers.protocol import Job, Opened, serve

#: Parts of a session's report that go into the results
REPORTED = ("compile_ms", "from_disk", "prepare_ms", "calls", "planned_bytes", "lower_bound_bytes")


def load() -> object:
    import shaderloom

    return shaderloom.InferenceSession


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import shaderloom

    session = shaderloom.InferenceSession(job.model)

    def finish() -> dict[str, Any]:
        report = session.report()
        parts = {name: report.get(name) for name in REPORTED}
        parts["kernels"] = len(report["kernels"])
        session.close()
        return parts

    facts = {"version": shaderloom.__version__, "device": session.device.name}
    return Opened(lambda: session.run(job.output_names, feeds), facts, finish)


if __name__ == "__main__":
    serve(open_model, load)
