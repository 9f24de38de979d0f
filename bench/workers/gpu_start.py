"""One process from its start to its first output: ``gpu_start.py RUNTIME MODEL INPUTS.npz STARTED``.

``STARTED`` is the time at which the process was started, in seconds since the epoch.  Prints JSON: seconds until the
runtime was imported, the session created, and the first outputs there, and the milliseconds of a later run.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

RUNS = 30


def open_shaderloom(path: str) -> Callable[[], Any]:
    import shaderloom

    session_type = shaderloom.InferenceSession
    return lambda: session_type(path)


def open_onnxruntime(path: str) -> Callable[[], Any]:
    import onnxruntime as ort
    import onnxruntime_ep_webgpu as plugin

    ort.register_execution_provider_library("webgpu", plugin.get_library_path())
    chosen = next(device for device in ort.get_ep_devices() if "WebGpu" in device.ep_name)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_provider_for_devices([chosen], {})
    return lambda: ort.InferenceSession(path, options)


def main() -> None:
    runtime, path, inputs, started = sys.argv[1:]
    make = {"shaderloom": open_shaderloom, "onnxruntime": open_onnxruntime}[runtime](path)
    times = [time.time()]
    session = make()
    times.append(time.time())
    import numpy as np

    with np.load(inputs) as arrays:
        feeds = {port.name: arrays[port.name] for port in session.get_inputs()}
    session.run(None, feeds)
    times.append(time.time())
    later = []
    for _ in range(RUNS):
        start = time.perf_counter()
        session.run(None, feeds)
        later.append((time.perf_counter() - start) * 1e3)
    imported, created, first = (moment - float(started) for moment in times)
    print(json.dumps({"imported": imported, "created": created, "first": first, "run_ms": statistics.median(later)}))


if __name__ == "__main__":
    main()
