"""onnxruntime's WebGPU plugin in loops over many pictures, numpy in and out, and its CPU provider as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workers.turns import OpenedRuntime, serve

#: Pictures of one time
SINGLE, BATCHED = 16, 128


def main() -> None:
    import onnxruntime as ort
    import onnxruntime_ep_webgpu as plugin

    ort.register_execution_provider_library("webgpu", plugin.get_library_path())
    chosen = next(device for device in ort.get_ep_devices() if "WebGpu" in device.ep_name)

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        reference = ort.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        np.savez(job["reference"], *reference.run(None, feeds))
        del reference
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.add_provider_for_devices([chosen], {})
        session = ort.InferenceSession(job["model"], options)
        (name, pictures), batch = next(iter(feeds.items())), job["batch"]

        def loop(rows: int, count: int) -> list[Any]:
            return [session.run(None, {name: pictures[at : at + rows]}) for at in range(0, count, rows)]

        return OpenedRuntime(
            {"loop of 1": lambda: loop(1, SINGLE), f"loop of {batch}": lambda: loop(batch, BATCHED)},
            lambda: [np.concatenate(arrays) for arrays in zip(*loop(batch, len(pictures)))],
            {"pictures": {"loop of 1": SINGLE, f"loop of {batch}": BATCHED}},
        )

    import importlib.metadata

    version = f"{ort.__version__} with plugin {importlib.metadata.version('onnxruntime-ep-webgpu')}"
    serve(open_model, {"version": version, "device": "WebGPU"})


if __name__ == "__main__":
    main()
