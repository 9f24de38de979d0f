"""Overhead of ``run``: the time of the host for plans of many tiny kernels.

    python -m bench.overhead [--drivers NAMES] [--rounds N]

Runs with tensors on the device in and out are queued without waiting; the median time of one call of ``run`` is the
overhead.  A software driver computes the kernels on the same cores meanwhile, so the time that the calling thread
itself computes is shown too: Mesa's does not accept a submission before the one before it has been computed, so there
the median time is that of the kernels.  So is the time that it computes for runs of a plan with a declared dimension,
each at a size that was not there lately with an input of its own.  The runs of one size and those of new ones take
turns.  A least-squares line through the sizes splits the host's time into a part for each dispatch and a part for each
run.  Each driver is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import shaderloom

from .runtimes import DRIVERS
from .session_report import save

#: calls of the plans that are measured
SIZES = (1, 10, 30, 100)
#: rows of the inputs, and of those whose size is new
ROWS, NEW_ROWS = 16, range(8, 136)
#: the queue is drained after so many runs, outside the measured time
QUEUED = 20


@dataclass(frozen=True)
class Overhead:
    """Median microseconds for one run of a plan with ``calls`` dispatches."""

    calls: int
    queued_us: float  #: tensors in and out, nothing awaited
    host_us: float  #: of these, what the calling thread computed
    new_size_us: float  #: what it computed for a run with a new size of a declared dimension
    numpy_us: float  #: arrays in and out, completion included


def chain(calls: int, rows: int | str = ROWS) -> onnx.ModelProto:
    """Running sums in a row over alternating axes: one kernel each, and no two neighbours share a pipeline."""
    shape = [rows, 16]
    constants = [helper.make_tensor(f"axis{axis}", TensorProto.INT64, [], [axis]) for axis in (0, 1)]
    nodes = []
    for index in range(calls):
        source = "x" if index == 0 else f"v{index - 1}"
        nodes.append(helper.make_node("CumSum", [source, f"axis{index % 2}"], [f"v{index}"]))
    nodes[-1].output[0] = "y"
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "chain", [port("x", TensorProto.FLOAT, shape)], [port("y", TensorProto.FLOAT, shape)], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(calls: int, rounds: int) -> Overhead:
    """Measure one size; raises if the plan does not have the number of dispatches that is claimed."""
    with shaderloom.InferenceSession(chain(calls), preferred_output_location="gpu-buffer") as session:
        x = np.zeros((ROWS, 16), np.float32)
        feeds = {"x": shaderloom.Tensor.from_numpy(x, session.device)}
        session.run(None, feeds)
        reported = session.report()["calls"]
        if reported != calls:
            raise RuntimeError(f"the plan has {reported} calls instead of {calls}")
        queued, host, new_sizes = _turns(session, feeds, calls, rounds)
        both: list[float] = []
        for _ in range(rounds * 2):
            start = time.perf_counter()
            session.run(None, {"x": x}, outputs={"y": "cpu"})
            both.append(time.perf_counter() - start)
    times = queued, host, new_sizes, both
    return Overhead(calls, *(statistics.median(each) * 1e6 for each in times))


def _queued(session: shaderloom.InferenceSession, feeds: Iterator[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the time of each of a few queued runs, and what the calling thread computed of it, in seconds."""
    queued: list[float] = []
    host: list[float] = []
    for _ in range(QUEUED):
        feed = next(feeds)
        start, computed = time.perf_counter(), time.thread_time()
        (result,) = session.run(None, feed)
        queued.append(time.perf_counter() - start)
        host.append(time.thread_time() - computed)
        result.dispose()
    session.synchronize()
    return queued, host


def _turns(
    session: shaderloom.InferenceSession, feed: dict[str, Any], calls: int, rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Return the times of :func:`_queued` for one feed, and the host's for sizes that were not there lately."""
    ranges = {"n": (2, NEW_ROWS.stop)}
    queued: list[float] = []
    host: list[float] = []
    new_sizes: list[float] = []
    with shaderloom.InferenceSession(
        chain(calls, "n"), preferred_output_location="gpu-buffer", dynamic=ranges
    ) as general:
        inputs = [np.zeros((rows, 16), np.float32) for rows in NEW_ROWS]
        feeds = [{"x": shaderloom.Tensor.from_numpy(x, general.device)} for x in inputs]
        general.run(None, feeds[-1])
        repeated, order = itertools.repeat(feed), itertools.cycle(random.Random(0).sample(feeds, len(feeds)))
        for _ in range(rounds):
            each_queued, each_host = _queued(session, repeated)
            queued += each_queued
            host += each_host
            new_sizes += _queued(general, order)[1]
    return queued, host, new_sizes


def fit(results: Sequence[Overhead]) -> tuple[float, float]:
    """(microseconds of each dispatch, microseconds of each run) that the host computes."""
    slope, offset = np.polyfit([item.calls for item in results], [item.host_us for item in results], 1)
    return float(slope), float(offset)


def measure_here(rounds: int) -> dict[str, Any]:
    """All sizes on the first adapter that this process sees, as JSON values."""
    name = shaderloom.open_device(None).name
    results = [measure(calls, rounds) for calls in SIZES]
    each, run = fit(results)
    return {"device": name, "results": [asdict(item) for item in results], "call_us": each, "run_us": run}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.overhead")
    parser.add_argument("--drivers", help="comma-separated; default: all that are there")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--here", action="store_true", help="measure in this process and print JSON")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure_here(arguments.rounds)))
        return
    present = [name for name, driver in DRIVERS.items() if driver.manifests and driver.is_present]
    names = arguments.drivers.split(",") if arguments.drivers else present or ["system"]
    devices = []
    for name in names:
        printed = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "bench.overhead", "--here", "--rounds", str(arguments.rounds)],
            env={**os.environ, **DRIVERS[name].environment()},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        devices.append(json.loads(printed.splitlines()[-1]))
        print(devices[-1]["device"])
        for item in devices[-1]["results"]:
            print(
                f"{item['calls']:4} calls: {item['queued_us']:8.1f} us queued, of which the host computes "
                f"{item['host_us']:8.1f}; {item['new_size_us']:8.1f} at a new size; {item['numpy_us']:9.1f} with arrays"
            )
        print(f"{devices[-1]['call_us']:.2f} us each call + {devices[-1]['run_us']:.1f} us each run")
    save("overhead", {"device": "; ".join(device["device"] for device in devices), "devices": devices})


if __name__ == "__main__":
    main()
