"""Shaderloom on a GPU in halves: a file of halves, and a file of float32 as it is and with ``precision="float16"``."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workers.gpu_shaderloom import runs_on_device
from bench.workers.turns import OpenedRuntime, serve


def main() -> None:
    import shaderloom
    from shaderloom.runtime.device.opening import open_device

    device = open_device()

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        halves = shaderloom.SessionOptions()
        halves.precision = "float16"
        sessions = {
            "float32": shaderloom.InferenceSession(job["float32"], device=device, cache=False),
            "precision": shaderloom.InferenceSession(job["float32"], halves, device=device, cache=False),
            "file": shaderloom.InferenceSession(job["model"], device=device, cache=False),
        }
        modes = {mode: runs_on_device(session, feeds)[0] for mode, session in sessions.items()}

        def close() -> None:
            for session in sessions.values():
                session.close()

        facts = {"calls": {mode: session.report()["calls"] for mode, session in sessions.items()}}
        return OpenedRuntime(modes, lambda: sessions["file"].run(None, feeds), facts, close)

    serve(open_model, {"version": shaderloom.__version__, "device": device.name})


if __name__ == "__main__":
    main()
