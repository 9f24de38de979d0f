"""Shaderloom on a GPU: arrays in and out, and tensors of the device in and out."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np

from bench.workers.turns import Opened, serve

#: Runs whose time to the last byte on the host shows whether single runs were really waited for
SETTLED_RUNS, SETTLED_ROUNDS = 50, 5
#: A GPU at rest takes a while to raise its clock: seconds from the start of the process
WARM_SECONDS = 6.0


def main() -> None:
    import shaderloom
    from shaderloom.runtime.device import open_device

    device = open_device()
    began_at = time.perf_counter()
    profiles = "--profile" in sys.argv

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> Opened:
        session = shaderloom.InferenceSession(job["model"], device=device, cache=False)
        names = [output.name for output in session.get_outputs()]
        arrays = session.run(None, feeds)
        inputs = {name: shaderloom.Tensor.from_numpy(array, device) for name, array in feeds.items()}
        targets = {name: shaderloom.Tensor.from_numpy(array, device) for name, array in zip(names, arrays)}

        def on_device() -> None:
            session.run(names, inputs, outputs=targets)
            device.wait()

        on_device()
        for name, array in zip(names, arrays):
            if not np.allclose(targets[name].numpy(), array, rtol=1e-5, atol=1e-5, equal_nan=False):
                raise RuntimeError(f"output {name} differs between arrays and tensors")
        end = began_at + WARM_SECONDS  # of the process: the clock is low until then
        while time.perf_counter() < end:
            on_device()
        smallest = min(targets.values(), key=lambda tensor: tensor.nbytes)
        settled_ms = math.inf
        for _ in range(SETTLED_ROUNDS):  # the clock may rise during the first
            began = time.perf_counter()
            for _ in range(SETTLED_RUNS):
                on_device()
            smallest.numpy()
            settled_ms = min(settled_ms, (time.perf_counter() - began) * 1e3 / SETTLED_RUNS)
        report = session.report()
        facts: dict[str, Any] = {name: report.get(name) for name in ("calls", "compile_ms", "prepare_ms")}
        facts["settled_ms"] = settled_ms
        if profiles:
            facts["profile"] = _profile(session, feeds)
        return Opened(
            {"arrays": lambda: session.run(None, feeds), "device": on_device},
            lambda: session.run(None, feeds),
            facts,
            session.close,
        )

    serve(open_model, {"version": shaderloom.__version__, "device": device.name})


def _profile(session: Any, feeds: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Microseconds of every call, the least of some runs, and what it computes."""
    for _ in range(20):
        session.run(None, feeds)
    ready = session._engine.ready({name: array.shape for name, array in feeds.items()})
    profiles = [ready.executor.profile(feeds) for _ in range(5)]
    kernels = {kernel.id: kernel for kernel in ready.compiled.plan.kernels}
    calls = []
    for times in zip(*(profile.calls for profile in profiles)):
        kernel = kernels[times[0].kernel]
        calls.append(
            {
                "us": min(each.nanoseconds for each in times) / 1e3,
                "template": kernel.template,
                "config": dict(kernel.config),
                "grid": [str(size) for size in times[0].call.grid],
                "flops": times[0].call.flops,
                "label": times[0].label,
            }
        )
    return calls


if __name__ == "__main__":
    main()
