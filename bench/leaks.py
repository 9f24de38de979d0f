"""What many runs and many sessions leave behind: resident memory, Python objects, objects of wgpu-native.

python -m bench.leaks [--device NAME] [--runs N] [--sessions N]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import shaderloom

from .overhead import chain
from .session_report import save

#: the first part of the repeats fills caches and pools and does not count
WARM_SHARE = 20


@dataclass(frozen=True)
class MemoryGrowth:
    """MemoryGrowth from the end of the first twentieth to the end."""

    what: str
    repeats: int
    growth: int  #: bytes of resident memory
    objects: int  #: that Python's collector tracks
    device: str  #: kinds of wgpu-native's objects whose number has changed


def resident_bytes() -> int:
    """Resident memory that is not a file's and that is in use: the C library first returns what has been freed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc
        trim(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell the memory of a process")


def device_objects() -> dict[str, int]:
    from wgpu.backends.wgpu_native._helpers import generate_report

    return {kind: counts["kept"] for kind, counts in generate_report()["hub"].items()}


def measure(what: str, repeats: int, step: Callable[[], None]) -> MemoryGrowth:
    warm = repeats // WARM_SHARE
    for _ in range(warm):
        step()
    gc.collect()
    memory, objects, device = resident_bytes(), len(gc.get_objects()), device_objects()
    for _ in range(repeats - warm):
        step()
    gc.collect()
    after = device_objects()
    changed = [f"{kind} {after[kind] - device[kind]:+}" for kind in after if after[kind] != device[kind]]
    grown = MemoryGrowth(
        what, repeats, resident_bytes() - memory, len(gc.get_objects()) - objects, ", ".join(changed) or "the same"
    )
    print(f"{what}, {repeats:,}: {grown.growth / 1e3:,.0f} kB, {grown.objects:+} objects, device: {grown.device}")
    return grown


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.leaks")
    parser.add_argument("--device")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=500)
    arguments = parser.parse_args()
    device = shaderloom.open_device(arguments.device)
    model = chain(5).SerializeToString()
    x = np.zeros((16, 16), np.float32)
    results = []

    def open_and_close() -> None:
        with shaderloom.InferenceSession(model, device=device, cache=folder) as opened:
            opened.run(None, {"x": x})

    with tempfile.TemporaryDirectory() as folder:
        results.append(measure("sessions opened and closed", arguments.sessions, open_and_close))
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        tensor = shaderloom.Tensor.from_numpy(x, device)

        def device_run() -> None:
            session.run(None, {"x": tensor}, outputs={"y": "gpu-buffer"})[0].dispose()

        def array_run() -> None:
            session.run(None, {"x": x})

        results.append(measure("runs, tensors in and out", arguments.runs, device_run))
        session.synchronize()
        results.append(measure("runs, arrays in and out", arguments.runs, array_run))

    save("leaks", {"device": device.name, "results": [asdict(item) for item in results]})


if __name__ == "__main__":
    main()
