"""Decoders in Shaderloom: one tensor as past and present of each cache, logits on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.decoders import DECODERS, RUNS, Decoder, Run
from bench.workers.turns import OpenedRuntime, serve


def main() -> None:
    import shaderloom
    from shaderloom.runtime.device.opening import open_device

    device = open_device()

    def open_model(job: dict[str, Any], _: dict[str, np.ndarray]) -> OpenedRuntime:
        session = shaderloom.InferenceSession(job["model"], device=device, cache=False)
        decoder = DECODERS[job["decoder"]]
        facts: dict[str, Any] = {}
        modes = {run.name: _lazy(run, decoder, session, device, facts) for run in RUNS}
        return OpenedRuntime(modes, lambda: [modes[RUNS[0].name]().numpy()], facts, session.close)

    serve(open_model, {"version": shaderloom.__version__, "device": device.name})


def _lazy(run: Run, decoder: Decoder, session: Any, device: Any, facts: dict[str, Any]) -> Callable[[], Any]:
    """Return a function that makes tensors the first time, then runs and returns the logits when they are there."""
    from shaderloom import Tensor

    bound: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def once() -> Any:
        if not bound:
            names = [port.name for port in session.get_inputs() if port.name.startswith("past.")]
            cache = run.cache(decoder)
            caches = {name: Tensor.from_numpy(cache, device) for name in names}
            logits = np.full((1, run.tokens, decoder.vocabulary), np.nan, np.float16)
            small = {name: Tensor.from_numpy(array, device) for name, array in run.feeds().items()}
            targets = {name.replace("past.", "present."): tensor for name, tensor in caches.items()}
            targets["logits"] = Tensor.from_numpy(logits, device)
            bound.append(({**small, **caches}, targets))
            session.run(list(targets), bound[0][0], outputs=targets)
            facts.setdefault("calls", session.report().get("calls"))
        inputs, targets = bound[0]
        session.run(list(targets), inputs, outputs=targets)
        device.wait()
        return targets["logits"]

    return once


if __name__ == "__main__":
    main()
