"""onnxruntime's WebGPU plugin on a GPU, and its CPU provider as the reference of all outputs.

``arrays``  numpy in and out, default settings
``best``    I/O binding, validation off; tensors on the device where the plugin gives memory there.  The plugin does not
            wait in ``synchronize_outputs``, so the smallest output is copied to the host: that waits
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workers.turns import OpenedRuntime, serve


def main() -> None:
    import onnxruntime as ort
    import onnxruntime_ep_webgpu as plugin

    ort.register_execution_provider_library("webgpu", plugin.get_library_path())
    chosen = next(device for device in ort.get_ep_devices() if "WebGpu" in device.ep_name)

    def make(path: str, settings: dict[str, str]) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.add_provider_for_devices([chosen], settings)
        return ort.InferenceSession(path, options)

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        reference = ort.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        np.savez(job["reference"], *reference.run(None, feeds))
        del reference
        plain = make(job["model"], {})
        bound = make(job["model"], {"validationMode": "disabled"})
        run, location = _bound(ort, bound, feeds, chosen)
        return OpenedRuntime(
            {"arrays": lambda: plain.run(None, feeds), "best": run},
            lambda: plain.run(None, feeds),
            {"best": location},
        )

    import importlib.metadata

    version = f"{ort.__version__} with plugin {importlib.metadata.version('onnxruntime-ep-webgpu')}"
    serve(open_model, {"version": version, "device": "WebGPU"})


def _bound(ort: Any, session: Any, feeds: dict[str, np.ndarray], device: Any) -> tuple[Any, str]:
    """A function that runs with I/O binding, and where inputs and outputs are."""
    names = [output.name for output in session.get_outputs()]
    shapes = [array.shape for array in session.run(None, feeds)]
    problems = []
    try:
        memory = device.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
        inputs = {}
        for name, array in feeds.items():
            value = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype, memory_info=memory)
            ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(array)], [value])
            inputs[name] = value
        outputs = [ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, memory_info=memory) for shape in shapes]
        binding = session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in zip(names, outputs):
            binding.bind_ortvalue_output(name, value)
        smallest = min(range(len(shapes)), key=lambda index: np.prod(shapes[index]))
        host = ort.OrtValue.ortvalue_from_shape_and_type(shapes[smallest], np.float32)

        def on_device() -> None:
            session.run_with_iobinding(binding)
            ort.copy_tensors([outputs[smallest]], [host])

        on_device()
        return on_device, "tensors on the device"
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}"[:200])
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for name in names:
        binding.bind_output(name, "cpu")

    def on_host() -> None:
        session.run_with_iobinding(binding)

    on_host()
    return on_host, f"bound in host memory ({'; '.join(problems)})"


if __name__ == "__main__":
    main()
