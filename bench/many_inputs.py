"""Items a second of a loop, of joined requests, of a pool, and of a table that is mapped; and memory of many items.

    python -m bench.many_inputs [--models A,B] [--devices llvmpipe,cpu] [--rounds N] [--seconds S] [--many N]

All ways take turns, one block of items each a round; a table has the medians, and of the ratios to the loop those of
the same rounds.  Every way is warm: plans are compiled, batch sizes measured, processes started.  A pool that joins
nothing, with one process, shows what a pool itself costs.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow
from onnx import TensorProto, helper
from pyarrow import parquet

import shaderloom
from shaderloom.mapping.job import MapJob, run_map
from shaderloom.mapping.parts import divide
from tests.support.models import filled_model

from .mobilenet_v3 import mobilenet_v3
from .session_report import save

Item = dict[str, np.ndarray]
SIZE = 96
CALLERS = 16
WINDOW = 128  #: futures of one caller


def five_kernels() -> onnx.ModelProto:
    """Running sums along a row and reductions in turn: five kernels of a few elements."""
    nodes, value = [], "x"
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    for number in range(5):
        output = "y" if number == 4 else f"v{number}"
        nodes.append(helper.make_node("CumSum", [value, "axis"], [output], reverse=number % 2))
        value = output
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 16]) for name in "xy"]
    graph = helper.make_graph(nodes, "five kernels", ports[:1], ports[1:], [axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mobilenet_v2() -> onnx.ModelProto:
    """Return the model with an open batch, for pictures of 96x96."""
    model = onnx.load(filled_model("mobilenet_v2"))
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = SIZE
    del model.graph.value_info[:]
    return model


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3_small": lambda: mobilenet_v3(SIZE),
    "five kernels": five_kernels,
}


def random_items(model: onnx.ModelProto, count: int) -> list[Item]:
    port = model.graph.input[0]
    sizes = [dim.dim_value for dim in port.type.tensor_type.shape.dim[1:]]
    generator = np.random.default_rng(0)
    return [{port.name: generator.standard_normal((1, *sizes), dtype=np.float32)} for _ in range(count)]


class Ways:
    """The ways to compute a list of items; each gives the first output of all."""

    def __init__(self, path: Path, device: str, items: Sequence[Item], opened: contextlib.ExitStack) -> None:
        self._path, self._items = path, items
        options: dict[str, Any] = {"providers": ["cpu"]} if device == "cpu" else {"device": device}
        devices: Any = "cpu" if device == "cpu" else [device]
        self.session = opened.enter_context(shaderloom.InferenceSession(str(path), **options))
        self.batched = opened.enter_context(self.session.batched())
        self._callers = opened.enter_context(ThreadPoolExecutor(CALLERS))
        self.single_pool = opened.enter_context(shaderloom.Pool(path, devices, batch=1))
        self.pool = opened.enter_context(shaderloom.Pool(path, devices))
        self._folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        ((name, first),) = items[0].items()
        self._columns = {name: "data"}
        rows = np.concatenate([item[name] for item in items]).reshape(len(items), first.size)
        data = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), first.size)
        parquet.write_table(pyarrow.table({"data": data}), self._folder / "items.parquet", row_group_size=128)
        self._outputs = 0
        self.by_name = {
            "loop": self.loop,
            f"loop, {CALLERS} callers": lambda: self._called(self.session),
            "batched": self.joined,
            "batched, one caller": lambda: [self.batched.run(None, item)[0] for item in self._items],
            f"batched, {CALLERS} callers": lambda: self._called(self.batched),
            "pool, one by one": lambda: self._pooled(self.single_pool),
            "pool": lambda: self._pooled(self.pool),
            "map from Parquet": self.mapped,
        }

    def loop(self) -> list[np.ndarray]:
        return [self.session.run(None, item)[0] for item in self._items]

    def joined(self) -> list[np.ndarray]:
        window: deque[Future[list[np.ndarray]]] = deque()
        outputs = []
        for item in self._items:
            if len(window) == WINDOW:
                outputs.append(window.popleft().result()[0])
            window.append(self.batched.submit(item))
        return outputs + [future.result()[0] for future in window]

    def _called(self, session: Any) -> list[np.ndarray]:
        outputs: list[Any] = [None] * len(self._items)

        def call(first: int) -> None:
            for number in range(first, len(self._items), CALLERS):
                outputs[number] = session.run(None, self._items[number])[0]

        list(self._callers.map(call, range(CALLERS)))
        return outputs

    def _pooled(self, pool: shaderloom.Pool) -> list[np.ndarray]:
        return [outputs[0] for outputs in pool.map(self._items)]

    def mapped(self) -> list[np.ndarray]:
        self._outputs += 1
        job = MapJob(
            self._path,
            (self._folder / "items.parquet",),
            self._folder / str(self._outputs),
            self._columns,
            format="npz",
        )
        run_map(job, lambda: contextlib.nullcontext(self.pool), {}, lambda what, done, total: None)
        parts = range(len(divide([len(self._items)], job.part_rows)))
        files = [np.load(job.output / f"part-{part:06}.npz") for part in parts]
        name = self.session.get_outputs()[0].name
        return [row[np.newaxis] for file in files for row in file[name]]


def compare(name: str, device: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return items a second of all ways, ratios to the loop, and differences from its results."""
    model = MODELS[name]()
    with contextlib.ExitStack() as opened:
        path = Path(opened.enter_context(tempfile.TemporaryDirectory())) / "model.onnx"
        onnx.save(model, path)
        count = _items_of(path, device, random_items(model, 32), seconds)
        ways = Ways(path, device, random_items(model, count), opened)
        expected = ways.loop()
        results: dict[str, dict[str, Any]] = {way: {"seconds": []} for way in ways.by_name}
        for way, run in ways.by_name.items():
            for _ in range(6):  # plans are compiled and sizes measured
                rows = run()
            results[way]["difference"] = max(float(np.abs(a - b).max()) for a, b in zip(rows, expected, strict=True))
            results[way]["equal"] = sum(np.array_equal(a, b) for a, b in zip(rows, expected, strict=True))
        for _ in range(rounds):
            for way, run in ways.by_name.items():
                start = time.perf_counter()
                run()
                results[way]["seconds"].append(time.perf_counter() - start)
        loop = results["loop"]["seconds"]
        for row in results.values():
            row["rate"] = count / statistics.median(row["seconds"])
            row["ratio"] = statistics.median(mine / its for mine, its in zip(loop, row["seconds"], strict=True))
            del row["seconds"]
        return {"model": name, "device": ways.pool.devices[0], "items": count, "ways": results}


def _items_of(path: Path, device: str, items: Sequence[Item], seconds: float) -> int:
    """Return how many items a loop computes in so many seconds, at least 64 and at most 4096."""
    options: dict[str, Any] = {"providers": ["cpu"]} if device == "cpu" else {"device": device}
    with shaderloom.InferenceSession(str(path), **options) as session:
        times = []
        for item in items:
            start = time.perf_counter()
            session.run(None, item)
            times.append(time.perf_counter() - start)
    return max(64, min(int(seconds / statistics.median(times)) // 32 * 32, 4096))


def memory_of(count: int, device: str) -> dict[str, Any]:
    """Return the resident kB of this process and of the pool's after a tenth of the items, and after all."""
    item = random_items(five_kernels(), 1)[0]
    with shaderloom.Pool(five_kernels(), [device]) as pool:
        measured = []
        for number, _ in enumerate(pool.map(item for _ in range(count)), 1):
            if number in (count // 10, count):
                measured.append([_resident("self"), *(_resident(str(process)) for process in pool.processes)])
        return {"items": count, "device": pool.devices[0], "before": measured[0], "after": measured[1]}


def _resident(process: str) -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.many_inputs")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--devices", default="llvmpipe,cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a loop in a round")
    parser.add_argument("--many", type=int, default=100_000, help="items whose memory is measured; 0: none")
    arguments = parser.parse_args()
    results = []
    for name in arguments.models.split(","):
        for device in arguments.devices.split(","):
            results.append(compare(name, device, arguments.rounds, arguments.seconds))
            for way, row in results[-1]["ways"].items():
                print(f"{name:20} {device:10} {way:18} {row['rate']:10.1f}/s {row['ratio']:6.2f}x {row['equal']} equal")
    memory = memory_of(arguments.many, arguments.devices.split(",")[0]) if arguments.many else None
    print(memory)
    device = "; ".join(dict.fromkeys(row["device"] for row in results))
    save("many inputs", {"device": device, "results": results, "memory": memory})


if __name__ == "__main__":
    main()
