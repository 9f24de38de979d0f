"""Memory and time of loading large models, against a bare upload of the same bytes and against onnxruntime.

    python -m bench.memory [--device NAME] [--sizes 1,4] [--folder DIR]

The models are chains of matrix products with weights of 64 MiB; every measurement has a process of its own.  Anonymous
memory (RssAnon) is sampled while the work runs: pages of mapped files do not count.  On a software driver device memory
is anonymous memory of the same process, so what a bare upload takes is subtracted.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .session_report import save

SIDE = 4096
WEIGHT_BYTES = SIDE * SIDE * 4
GIB = 1 << 30
ROUNDS = 3


def write_model(folder: Path, gibibytes: int, *, embedded: bool) -> Path:
    """A model of this size: data in a file beside it, or in the .onnx itself (below the limit of protobuf)."""
    import onnx
    from onnx import TensorProto, helper

    count = gibibytes * GIB // WEIGHT_BYTES - embedded  # a message must stay below 2 GiB, so one less where it counts
    port = helper.make_tensor_value_info
    nodes, weights = [], []
    data = folder / "weights.bin"
    generator = np.random.default_rng(0)
    with data.open("wb") as file:
        for index in range(count):
            array = generator.standard_normal((SIDE, SIDE), np.float32) / np.float32(SIDE**0.5)
            tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
            if embedded:
                tensor.raw_data = array.tobytes()
            else:
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", data.name), ("offset", file.tell()), ("length", array.nbytes)):
                    tensor.external_data.add(key=key, value=str(value))
                file.write(array.tobytes())
            weights.append(tensor)
            source, target = f"v{index}", "y" if index == count - 1 else f"v{index + 1}"
            nodes.append(helper.make_node("MatMul", ["x" if index == 0 else source, f"w{index}"], [target]))
    ports = [port("x", TensorProto.FLOAT, [1, SIDE])], [port("y", TensorProto.FLOAT, [1, SIDE])]
    graph = helper.make_graph(nodes, "chain", *ports, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell the anonymous memory of a process")


def watch(work: Callable[[], Any]) -> dict[str, float]:
    """Peak of anonymous memory above what there is now, and seconds, of one piece of work."""
    before = peak = anonymous_bytes()
    finished = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not finished.wait(0.002):
            peak = max(peak, anonymous_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    peak = max(peak, anonymous_bytes())
    finished.set()
    sampler.join()
    del result
    return {"peak": peak - before, "seconds": seconds}


def bare_upload(path: Path, device_name: str | None) -> dict[str, float]:
    """The bytes of the weights from the mapped file into buffers of the device, and nothing else."""
    from shaderloom.runtime.device.opening import open_device
    from shaderloom.runtime.memory.buffers import TENSOR, upload

    device = open_device(device_name)
    device.wait()
    source = path.parent / "weights.bin"
    if not source.stat().st_size:
        source = path

    def work() -> list[Any]:
        with source.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        buffers = []
        for start in range(0, len(view) // WEIGHT_BYTES * WEIGHT_BYTES, WEIGHT_BYTES):
            buffers.append(device.create_buffer(WEIGHT_BYTES, TENSOR, "bare"))
            for _ in upload(device, buffers[-1], view[start : start + WEIGHT_BYTES]):
                pass
        device.wait()
        return buffers

    return watch(work)


def load(path: Path, device_name: str | None) -> dict[str, float]:
    """A session with its weights on the device."""
    import shaderloom
    from shaderloom.model.model import Model  # the compiler's modules are not what is measured

    assert Model is not None
    import shaderloom.compiler.driver

    device = shaderloom.open_device(device_name)
    device.wait()

    def work() -> Any:
        session = shaderloom.InferenceSession(path, device=device, cache=False)
        session.prepare()
        session.synchronize()
        return session

    return watch(work)


def onnxruntime_cpu(path: Path, device_name: str | None) -> dict[str, float]:
    import onnxruntime

    return watch(lambda: onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]))


KINDS: dict[str, Callable[[Path, str | None], dict[str, float]]] = {
    "upload": bare_upload,
    "load": load,
    "onnxruntime": onnxruntime_cpu,
}


def measure(kind: str, path: Path, device: str | None) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.memory",
        "--child",
        kind,
        str(path),
        *(["--device", device] if device else []),
    ]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).resolve().parents[1]
    )
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return figures


def in_turns(path: Path, device: str | None) -> list[dict[str, float]]:
    """A bare upload and loading, in turns; of each the least time and the greatest peak."""
    rounds = [[measure(kind, path, device) for kind in ("upload", "load")] for _ in range(ROUNDS)]
    return [
        {"peak": max(item["peak"] for item in several), "seconds": min(item["seconds"] for item in several)}
        for several in zip(*rounds)
    ]


def warm(path: Path) -> None:
    """Read the files once, so that every measurement finds them in the page cache."""
    for file in path.parent.iterdir():
        with file.open("rb") as opened:
            while opened.read(1 << 24):
                pass


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.memory")
    parser.add_argument("--device")
    parser.add_argument("--sizes", default="1,4", help="GiB (1,4); 1 also with the weights embedded")
    parser.add_argument("--folder", type=Path, help="where the models are written and deleted")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        kind, path = arguments.child
        print(json.dumps(KINDS[kind](Path(path), arguments.device)))
        return
    results = []
    for size in map(int, arguments.sizes.split(",")):
        for embedded in (False, True) if size == 1 else (False,):
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                path = write_model(Path(folder), size, embedded=embedded)
                warm(path)
                upload, loading = in_turns(path, arguments.device)
                ort = _optional(path)
                name = f"{size} GiB, {'embedded' if embedded else 'external'}"
                results.append(
                    {
                        "model": name,
                        "upload_peak": upload["peak"],
                        "upload_seconds": upload["seconds"],
                        "load_peak": loading["peak"],
                        "load_seconds": loading["seconds"],
                        "onnxruntime": ort,
                    }
                )
                above, ratio = (loading["peak"] - upload["peak"]) / 1e6, loading["seconds"] / upload["seconds"]
                print(f"{name}: {above:,.0f} MB above a bare upload, {ratio:.2f} of its time")
                if ort:
                    print(f"    onnxruntime on the CPU: {ort['load_peak'] / 1e6:,.0f} MB")
    from shaderloom import open_device

    save("memory", {"device": open_device(arguments.device).name, "results": results})


def _optional(path: Path) -> dict[str, float] | None:
    """onnxruntime's figures, where it is installed."""
    try:
        figures = measure("onnxruntime", path, None)
    except subprocess.CalledProcessError:
        return None
    return {"load_peak": figures["peak"], "load_seconds": figures["seconds"]}


if __name__ == "__main__":
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    main()
