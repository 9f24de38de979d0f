"""wonnx, on a model that onnxsim simplified: opset 13, the shapes of all tensors written down, Gemm weights as it wants
them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.workers.protocol import Job, Opened, serve


def convert(job: Job, feeds: dict[str, np.ndarray]) -> None:
    import onnx
    import onnxsim
    from onnx import numpy_helper

    model = onnx.load(job.source)
    shapes = {name: list(array.shape) for name, array in feeds.items()}
    model, _ = onnxsim.simplify(model, overwrite_input_shapes=shapes)
    # wonnx refuses newer opsets. onnx's converter has no way back for Relu, whose form is the same in 13, as are
    # those of the other operators that wonnx knows.
    model.opset_import[0].version = min(model.opset_import[0].version, 13)
    constants = {item.name: item for item in model.graph.initializer}
    for node in model.graph.node:
        transposed = next((item for item in node.attribute if item.name == "transB"), None)
        if node.op_type == "Gemm" and transposed is not None and transposed.i and node.input[1] in constants:
            weight = constants[node.input[1]]
            array = numpy_helper.to_array(weight)
            weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array.T), weight.name))
            transposed.i = 0
    onnx.save(onnx.shape_inference.infer_shapes(model), job.model)


def load() -> object:
    import wonnx

    return wonnx


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import importlib.metadata

    import wonnx

    session = wonnx.Session.from_path(str(Path(job.model)))
    inputs = {name: array.flatten() for name, array in feeds.items()}

    def run() -> list[np.ndarray]:
        results = session.run(inputs)
        return [np.asarray(results[name], np.float32) for name in job.output_names]

    return Opened(run, {"version": importlib.metadata.version("wonnx"), "device": "the loader's first adapter"})


if __name__ == "__main__":
    serve(open_model, load)
