"""onnxruntime's WebGPU provider; nodes that it does not have run on its CPU provider."""

from __future__ import annotations

import numpy as np

from bench.workers.protocol import Job, Opened, serve


def load() -> object:
    import onnxruntime

    return onnxruntime


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    wanted = ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(job.model, options, providers=wanted)
    if wanted[0] not in session.get_providers():
        raise RuntimeError("the WebGPU provider found no adapter")
    facts = {"version": onnxruntime.__version__, "device": "WebGPU"}
    return Opened(lambda: session.run(job.output_names, feeds), facts)


if __name__ == "__main__":
    serve(open_model, load)
