"""onnxruntime on the CPU with two threads."""

from __future__ import annotations

import numpy as np

from bench.workers.protocol import Job, Opened, serve


def load() -> object:
    import onnxruntime

    return onnxruntime


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    # Threads that spin after a run would take the cores from the runtime that is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    facts = {"version": onnxruntime.__version__, "device": "CPU"}
    return Opened(lambda: session.run(job.output_names, feeds), facts)


if __name__ == "__main__":
    serve(open_model, load)
