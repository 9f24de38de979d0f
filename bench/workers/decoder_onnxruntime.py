"""Decoders in onnxruntime's WebGPU plugin, validation off, caches bound in place; its CPU provider is the reference.

The plugin does not wait for the device, so the smallest output is copied to the host behind each run: that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.decoders import DECODERS, RUNS, Decoder, Run
from bench.workers.turns import OpenedRuntime, serve


def main() -> None:
    import onnxruntime as ort
    import onnxruntime_ep_webgpu as plugin

    ort.register_execution_provider_library("webgpu", plugin.get_library_path())
    chosen = next(device for device in ort.get_ep_devices() if "WebGpu" in device.ep_name)

    def options() -> Any:
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        return settings

    def open_model(job: dict[str, Any], _: dict[str, np.ndarray]) -> OpenedRuntime:
        decoder = DECODERS[job["decoder"]]
        reference = ort.InferenceSession(job["model"], options(), providers=["CPUExecutionProvider"])
        np.savez(job["reference"], _logits(reference, decoder, RUNS[0]))
        del reference
        device = options()
        device.add_provider_for_devices([chosen], {"validationMode": "disabled"})
        session = ort.InferenceSession(job["model"], device)
        modes = {run.name: _lazy(ort, session, chosen, decoder, run) for run in RUNS}
        return OpenedRuntime(modes, lambda: [_logits(session, decoder, RUNS[0])])

    import importlib.metadata

    version = f"{ort.__version__} with plugin {importlib.metadata.version('onnxruntime-ep-webgpu')}"
    serve(open_model, {"version": version, "device": "WebGPU"})


def _logits(session: Any, decoder: Decoder, run: Run) -> np.ndarray:
    names = [port.name for port in session.get_inputs() if port.name.startswith("past.")]
    return session.run(["logits"], {**run.feeds(), **dict.fromkeys(names, run.cache(decoder))})[0]


def _lazy(ort: Any, session: Any, device: Any, decoder: Decoder, run: Run) -> Callable[[], Any]:
    """Return a function that binds tensors the first time, then runs and waits."""
    memory = device.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    bound: list[tuple[Any, Any, Any]] = []

    def on_device(array: np.ndarray) -> Any:
        value = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype, memory_info=memory)
        ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(array)], [value])
        return value

    def bind() -> tuple[Any, Any, Any]:
        binding = session.io_binding()
        for name, array in run.feeds().items():  # the lengths that come from the mask are computed on the host
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        names = [port.name for port in session.get_inputs() if port.name.startswith("past.")]
        cache = run.cache(decoder)
        caches = {name: on_device(cache) for name in names}
        for name, value in caches.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past.", "present."), value)
        logits = on_device(np.zeros((1, run.tokens, decoder.vocabulary), np.float16))
        binding.bind_ortvalue_output("logits", logits)
        smallest = min((logits, caches[names[0]]), key=lambda value: np.prod(value.shape()))
        return binding, smallest, ort.OrtValue.ortvalue_from_shape_and_type(smallest.shape(), np.float16)

    def once() -> None:
        if not bound:
            bound.append(bind())
        binding, smallest, host = bound[0]
        session.run_with_iobinding(binding)
        ort.copy_tensors([smallest], [host])

    return once


if __name__ == "__main__":
    main()
