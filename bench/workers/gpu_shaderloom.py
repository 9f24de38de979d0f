"""Shaderloom on a GPU: arrays in and out, and tensors of the device in and out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workers.turns import OpenedRuntime, serve

#: Runs whose time to the last byte on the host shows whether single runs were really waited for
SETTLED_RUNS = 20


def main() -> None:
    import shaderloom
    from shaderloom.runtime.device.opening import open_device

    device = open_device()
    profiles = "--profile" in sys.argv

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        session = shaderloom.InferenceSession(job["model"], device=device, cache=False)
        on_device, targets = runs_on_device(session, feeds)
        smallest = min(targets.values(), key=lambda tensor: tensor.nbytes)

        def settled() -> None:
            """Runs as above, to the last byte on the host."""
            for _ in range(SETTLED_RUNS):
                on_device()
            smallest.numpy()

        report = session.report()
        facts: dict[str, Any] = {name: report.get(name) for name in ("calls", "compile_ms", "prepare_ms")}
        facts["settled_runs"] = SETTLED_RUNS
        if profiles:
            facts["profile"] = _profile(session, feeds)
        return OpenedRuntime(
            {"arrays": lambda: session.run(None, feeds), "device": on_device, "settled": settled},
            lambda: session.run(None, feeds),
            facts,
            session.close,
        )

    serve(open_model, {"version": shaderloom.__version__, "device": device.name})


def runs_on_device(session: Any, feeds: dict[str, np.ndarray]) -> tuple[Callable[[], None], dict[str, Any]]:
    """Return a function that runs a session on tensors and waits, and the tensors of its outputs.

    Raises RuntimeError if these differ from what a run with arrays returns.
    """
    import shaderloom

    device, names = session.device, [output.name for output in session.get_outputs()]
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
    return on_device, targets


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
