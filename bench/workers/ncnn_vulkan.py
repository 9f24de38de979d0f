"""ncnn with its Vulkan backend, on a model that pnnx converted; f32 throughout, token ids as int32."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from bench.workers.protocol import Job, Opened, serve


def convert(job: Job, feeds: dict[str, np.ndarray]) -> None:
    """Write ``job.model`` (.param) and the .bin beside it."""
    folder = Path(job.model).parent
    suffix = {"float32": "f32", "int64": "i64"}
    shapes = ",".join(f"[{','.join(map(str, array.shape))}]{suffix[array.dtype.name]}" for array in feeds.values())
    # pnnx writes a dozen files beside its input.
    source = folder / "source.onnx"
    source.write_bytes(Path(job.source).read_bytes())
    command = [Path(sys.executable).with_name("pnnx"), source, f"inputshape={shapes}", "fp16=0",
               f"ncnnparam={job.model}", f"ncnnbin={Path(job.model).with_suffix('.bin')}"]  # fmt: skip
    result = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    source.unlink()
    if result.returncode or not Path(job.model).is_file():
        raise RuntimeError(f"pnnx failed: {(result.stderr or result.stdout).strip().splitlines()[-1:]}")


def load() -> object:
    import ncnn

    return ncnn


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import ncnn

    net = ncnn.Net()
    net.opt.use_vulkan_compute = True
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{option}", False)
    if net.load_param(job.model) or net.load_model(str(Path(job.model).with_suffix(".bin"))):
        raise RuntimeError("ncnn cannot load the converted model")
    narrow = {
        name: np.ascontiguousarray(array[0] if array.ndim > 1 else array, np.int32 if array.dtype.kind == "i" else None)
        for name, array in feeds.items()
    }
    names = list(net.input_names())

    def run() -> list[np.ndarray]:
        extractor = net.create_extractor()
        for name, array in zip(names, narrow.values(), strict=True):
            extractor.input(name, ncnn.Mat(array))
        results = []
        for name in net.output_names():
            status, result = extractor.extract(name)
            if status:
                raise RuntimeError(f"ncnn cannot compute the output '{name}'")
            results.append(np.array(result))
        return results

    device = ncnn.get_gpu_info(ncnn.get_default_gpu_index()).device_name()
    return Opened(run, {"version": ncnn.__version__, "device": device})


if __name__ == "__main__":
    serve(open_model, load)
