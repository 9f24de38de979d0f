"""onnxruntime with its WebGPU plugin."""

from __future__ import annotations

import numpy as np

from bench.workers.protocol import Job, Opened, serve


def load() -> None:
    import onnxruntime
    import onnxruntime_ep_webgpu

    onnxruntime.register_execution_provider_library("webgpu", onnxruntime_ep_webgpu.get_library_path())


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import onnxruntime

    chosen = next(device for device in onnxruntime.get_ep_devices() if "WebGpu" in device.ep_name)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_provider_for_devices([chosen], {})
    session = onnxruntime.InferenceSession(job.model, options)
    facts = {"version": onnxruntime.__version__, "device": "WebGPU"}
    return Opened(lambda: session.run(job.output_names, feeds), facts)


if __name__ == "__main__":
    serve(open_model, load)
