"""onnxruntime's CPU provider on the host of a GPU, arrays in and out: also the reference of all outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workers.turns import OpenedRuntime, serve


def main() -> None:
    import onnxruntime as ort

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        np.savez(job["reference"], *session.run(None, feeds))
        return OpenedRuntime({"arrays": lambda: session.run(None, feeds)})

    serve(open_model, {"version": ort.__version__, "device": "CPU"})


if __name__ == "__main__":
    main()
