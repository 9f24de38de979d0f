"""Texts in onnxruntime's WebGPU plugin, validation off, as a program writes that loop by hand: caches bound in place.

Each mode is a text behind a prompt that is there.  The most probable token is found on the device, by an operator that
is added to the model (*on the device*), or on the host, which gets the logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.decoders import DECODERS, TEXT, Decoder
from bench.workers.turns import OpenedRuntime, serve

#: Rows of the caches
CAPACITY = 1024


def main() -> None:
    import importlib.metadata

    import onnxruntime as ort
    import onnxruntime_ep_webgpu as plugin

    ort.register_execution_provider_library("webgpu", plugin.get_library_path())
    chosen = next(device for device in ort.get_ep_devices() if "WebGpu" in device.ep_name)

    def open_model(job: dict[str, Any], _: dict[str, np.ndarray]) -> OpenedRuntime:
        memory = chosen.memory_info(ort.OrtDeviceMemoryType.DEFAULT)

        def texts(model: str) -> BoundTexts:
            options = ort.SessionOptions()
            options.log_severity_level = 3
            options.add_provider_for_devices([chosen], {"validationMode": "disabled"})
            return BoundTexts(ort, ort.InferenceSession(model, options), memory, DECODERS[job["decoder"]])

        on_host, on_device = texts(job["model"]), texts(with_choice(job["model"]))
        np.savez(job["reference"], on_host.read_prompt())
        on_device.read_prompt()
        modes = {"on the host": on_host.text, "on the device": on_device.text}
        return OpenedRuntime(modes, facts={"tokens": on_host.text()})

    version = f"{ort.__version__} with plugin {importlib.metadata.version('onnxruntime-ep-webgpu')}"
    serve(open_model, {"version": version, "device": "WebGPU"})


def with_choice(path: str) -> str:
    """Write a model beside another, with the greatest logit's token [batch, tokens] as one more output ``token``."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    model.graph.node.append(onnx.helper.make_node("ArgMax", ["logits"], ["token"], axis=-1, keepdims=0))
    token = onnx.helper.make_tensor_value_info("token", onnx.TensorProto.INT64, ["batch", "sequence"])
    model.graph.output.append(token)
    written = path.replace(".onnx", "-with-choice.onnx")
    onnx.save(model, written)
    return written


class BoundTexts:
    """A session with its caches on the device; with an output ``token`` its logits stay there, too."""

    def __init__(self, ort: Any, session: Any, memory: Any, decoder: Decoder) -> None:
        self._session = session
        self._prompt = TEXT.ids(decoder)
        self._chooses = any(port.name == "token" for port in session.get_outputs())
        self._binding = session.io_binding()
        zeros = np.zeros(decoder.cache(CAPACITY), np.float16)
        for name in [port.name for port in session.get_inputs() if port.name.startswith("past.")]:
            cache = ort.OrtValue.ortvalue_from_shape_and_type(zeros.shape, zeros.dtype, memory_info=memory)
            ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(zeros)], [cache])
            self._binding.bind_ortvalue_input(name, cache)
            self._binding.bind_ortvalue_output(name.replace("past.", "present."), cache)
        self._bind_results()
        #: where logits stay that nobody reads
        shape = (1, 1, decoder.vocabulary)
        self._unread = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float16, memory_info=memory)

    def read_prompt(self) -> np.ndarray:
        """Return what the host gets behind the last token of the prompt: logits [1, 1, vocabulary], or a token."""
        result = self._run(self._prompt, len(self._prompt))[:, -1:]
        self._bind_results()  # of other shapes
        if self._chooses:
            self._binding.bind_ortvalue_output("logits", self._unread)
        return result

    def _bind_results(self) -> None:
        self._binding.bind_output("logits", "cpu")
        if self._chooses:
            self._binding.bind_output("token", "cpu")

    def _run(self, ids: list[int], length: int) -> np.ndarray:
        """Run the last tokens of a text of so many; return what the host gets, logits or tokens."""
        run = self._binding
        run.bind_cpu_input("input_ids", np.array([ids]))
        run.bind_cpu_input("attention_mask", np.ones((1, length), np.int64))
        self._session.run_with_iobinding(run)
        return run.get_outputs()[-1].numpy()  # they are in the order in which they were bound

    def text(self) -> list[int]:
        """Return a text behind the prompt, whose rows are in the caches but for the last."""
        tokens = self._prompt[-1:]
        for length in range(len(self._prompt), len(self._prompt) + TEXT.count):
            result = self._run(tokens[-1:], length)
            tokens.append(int(result[0, 0] if self._chooses else result[0, 0].astype(np.float32).argmax()))
        return tokens[1:]


if __name__ == "__main__":
    main()
