"""Shaderloom and many pictures: loops, tensors that stay on the device, and pools.

``loop of 1``, ``loop of 32``  ``session.run`` with numpy in and out
``device``                     batches of tensors, the device is waited for once
``map``                        ``Pool.map`` over pictures of one row on the first GPU

With ``--gpus`` pools alone: ``map``, and ``map, 2 GPUs`` and so on.  GPUs are numbered by the PCI bus, and have the
adapters that Ray's workers would take; it is looked at which cards' memory grows.

``program_us`` is the processor time of this program for a picture of each map, and ``locked_us`` what is left of it
without the copy of a picture: at most as long the interpreter's lock is held for it, which bounds the pictures a
second of one program, however many cards and cores there are.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.workers.turns import OpenedRuntime, serve

#: Pictures of one time: of a loop of single rows, of a loop of batches, and of a pool for each GPU
SINGLE, BATCHED, POOLED = 32, 256, 8192


def main() -> None:
    import shaderloom
    from shaderloom.distributed.assigned_device import assigned_adapter, card_memory

    scales = "--gpus" in sys.argv
    adapters = shaderloom.list_adapters()
    cards = sum(not each.is_software for each in adapters if each.backend == adapters[0].backend)
    numbers = [assigned_adapter([card], adapters) for card in range(max(cards, 1))]
    devices = [adapters[0].index if number is None else number for number in numbers]

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        opened = contextlib.ExitStack()
        (name, pictures), batch = next(iter(feeds.items())), job["batch"]
        rows = [{name: pictures[number : number + 1]} for number in range(len(pictures))]
        modes: dict[str, Callable[[], Any]] = {}
        counts: dict[str, int] = {}
        if not scales:
            session = opened.enter_context(shaderloom.InferenceSession(job["model"], device=devices[0]))
            batches = [{name: pictures[first : first + batch]} for first in range(0, len(pictures), batch)]
            on_device = _on_device(session, shaderloom.Tensor, batches)
            modes["loop of 1"] = lambda: [session.run(None, row) for row in rows[:SINGLE]]
            modes[f"loop of {batch}"] = lambda: [session.run(None, each) for each in batches[: BATCHED // batch]]
            modes["device"] = lambda: on_device(BATCHED // batch)
            counts = {"loop of 1": SINGLE, f"loop of {batch}": BATCHED, "device": BATCHED}
        growth = []
        program: dict[str, float] = {}
        for count in [count for count in (1, 2, 4, 8) if count <= len(devices)] if scales else [1]:
            before = [card_memory(card) or 0 for card in range(cards)]
            pool = opened.enter_context(shaderloom.Pool(job["model"], devices[:count], batch=batch))
            way = "map" if count == 1 else f"map, {count} GPUs"
            counts[way] = POOLED * count
            modes[way] = _mapped(pool, rows, POOLED * count)
            for _ in range(2):  # plans are compiled and sizes measured
                begun = time.process_time()
                modes[way]()
                program[way] = (time.process_time() - begun) / counts[way] * 1e6
            growth.append([((card_memory(card) or 0) - earlier) / 1e6 for card, earlier in enumerate(before)])
        outputs = [np.concatenate(arrays) for arrays in zip(*(modes["map"]()[: len(rows)]))]
        used = [card < 1 << number for number in range(len(growth)) for card in range(cards)]
        right = used == [each > 0 for of in growth for each in of]
        copying = _copying_us(pictures[:batch])
        facts = {"pictures": counts, "growth_mb": growth, "right_cards": right, "program_us": program}
        facts["locked_us"] = {way: each - copying for way, each in program.items()}
        return OpenedRuntime(modes, lambda: outputs, facts, opened.close)

    serve(open_model, {"version": shaderloom.__version__, "device": adapters[devices[0]].name, "gpus": cards})


def _on_device(session: Any, tensor: Any, batches: Sequence[dict[str, np.ndarray]]) -> Callable[[int], None]:
    """Return a function that runs so many batches of tensors of the device and waits for the last."""
    inputs = {name: tensor.from_numpy(array, session.device) for name, array in batches[0].items()}
    names = [port.name for port in session.get_outputs()]
    arrays = session.run(None, batches[0])
    targets = {name: tensor.from_numpy(array, session.device) for name, array in zip(names, arrays)}

    def run(count: int) -> None:
        for _ in range(count):
            session.run(names, inputs, outputs=targets)
        session.device.wait()

    run(1)
    for name, array in zip(names, arrays):
        if not np.allclose(targets[name].numpy(), array, rtol=1e-5, atol=1e-5, equal_nan=False):
            raise RuntimeError(f"output {name} differs between arrays and tensors")
    return run


def _copying_us(pictures: np.ndarray) -> float:
    """Return the processor time of copying a picture, the least of some."""
    target, times = np.empty_like(pictures), []
    for _ in range(20):
        begun = time.process_time()
        target[...] = pictures
        times.append(time.process_time() - begun)
    return min(times[1:]) / len(pictures) * 1e6


def _mapped(pool: Any, rows: Sequence[dict[str, np.ndarray]], count: int) -> Callable[[], list[list[np.ndarray]]]:
    return lambda: list(pool.map(rows[number % len(rows)] for number in range(count)))


if __name__ == "__main__":
    main()
