"""Measure dispatches: by the device's timestamps, by processor time on software drivers, else by wall clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from ..compiler.target import target_of
from ..runtime.device import native
from ..runtime.device.device import Device
from ..runtime.execution.dispatch import Dispatch, encode
from ..runtime.memory.buffers import COPY_DST, COPY_SRC, MAP_READ, QUERY_RESOLVE, mapped

#: Duration in nanoseconds of one measurement, long enough to make its overhead and the clock's resolution negligible
_GPU_NS, _CPU_NS = 2_000_000, 20_000_000
_MOST_REPEATS = 500
#: Seconds of work until a GPU reaches its full clock: at first, and after a pause for compilation
_COLD_SECONDS, _WARM_SECONDS = 1.5, 0.03


class Timer:
    """Times dispatches of one device.

    ``method`` is ``timestamps`` or ``wall`` on GPUs.  On software drivers it is ``cpu``: processor time of the whole
    process, which other programs do not disturb, over the cores that the dispatch has workgroups for.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.software = device.profile.is_software
        self.repaid_runs = target_of(
            device.profile
        ).repaid_runs  #: number of runs within which compiling must pay off; 0: it is free
        stamps = "timestamp-query" in device.profile.features
        self.method = "cpu" if self.software else "timestamps" if stamps else "wall"
        self._cores = os.cpu_count() or 1
        self._is_warm = False
        self._empty = min(self._wall([]) for _ in range(5)) if self.method == "wall" else 0.0

    def once(self, dispatches: Sequence[Dispatch]) -> float:
        """Measure one pass over ``dispatches`` in nanoseconds, overheads included: a first estimate."""
        if self.method == "cpu":
            return self._cpu(dispatches)
        return self._stamps(dispatches) if self.method == "timestamps" else self._wall(dispatches)

    def first(self, dispatches: Sequence[Dispatch]) -> float:
        """Measure a first run in nanoseconds, possibly with compilation; driver compilers use one core."""
        return self.run(lambda: self._submit(dispatches))

    def run(self, work: Callable[[], object]) -> float:
        """Measure ``work`` in nanoseconds; it must wait until the device has finished."""
        clock = time.process_time_ns if self.software else time.perf_counter_ns
        start = clock()
        work()
        return float(clock() - start)

    def repeats(self, nanoseconds: float) -> int:
        """Return the number of repetitions of work of this duration that make up one measurement."""
        wanted = _CPU_NS if self.software else _GPU_NS
        return max(1, min(_MOST_REPEATS, round(wanted / max(nanoseconds, 1.0))))

    def steady(self, dispatches: Sequence[Dispatch], repeats: int) -> float:
        """Measure one pass over ``dispatches`` in nanoseconds, averaged over ``repeats`` passes in one submission."""
        many = [dispatch for _ in range(repeats) for dispatch in dispatches]
        return max(self.once(many) - self._empty, 1.0) / repeats

    def warm_up(self, dispatches: Sequence[Dispatch]) -> None:
        """Keep a GPU busy until it has raised its clock: long at first, then briefly."""
        end = time.perf_counter() + (0.0 if self.software else _WARM_SECONDS if self._is_warm else _COLD_SECONDS)
        self._is_warm = True
        while time.perf_counter() < end:
            self._wall([dispatch for _ in range(20) for dispatch in dispatches])

    def _submit(self, dispatches: Sequence[Dispatch]) -> None:
        device = self.device
        with device.guarded("measuring"):
            encoder = device.gpu.create_command_encoder()
            compute_pass = encoder.begin_compute_pass()
            encode(compute_pass, dispatches, use_native=native.AVAILABLE)
            compute_pass.end()
            commands = encoder.finish()
        device.submit([commands], "measuring")
        device.wait()

    def _wall(self, dispatches: Sequence[Dispatch]) -> float:
        start = time.perf_counter_ns()
        self._submit(dispatches)
        return float(time.perf_counter_ns() - start)

    def _cpu(self, dispatches: Sequence[Dispatch]) -> float:
        start = time.process_time_ns()
        self._submit(dispatches)
        spent = time.process_time_ns() - start
        workgroups = max((x * y * z for x, y, z in (dispatch.grid for dispatch in dispatches)), default=1)
        return spent / min(self._cores, workgroups)

    def _stamps(self, dispatches: Sequence[Dispatch]) -> float:
        device = self.device
        try:
            period = native.timestamp_period(device.queue)
        except native.MissingSymbolError:
            period = 1.0
        with device.guarded("measuring"):
            queries = device.gpu.create_query_set(type="timestamp", count=2)
            resolved = device.create_buffer(16, QUERY_RESOLVE | COPY_SRC, "timestamps")
            staging = device.create_buffer(16, MAP_READ | COPY_DST, "timestamps")
            encoder = device.gpu.create_command_encoder()
            compute_pass = encoder.begin_compute_pass(
                timestamp_writes={
                    "query_set": queries,
                    "beginning_of_pass_write_index": 0,
                    "end_of_pass_write_index": 1,
                }
            )
            encode(compute_pass, dispatches, use_native=native.AVAILABLE)
            compute_pass.end()
            encoder.resolve_query_set(queries, 0, 2, resolved, 0)
            encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, 16)
            device.submit([encoder.finish()], "measuring")
            with mapped(device, staging, 16) as view:
                begin, end = np.frombuffer(view, np.uint64).tolist()
            resolved.destroy()
            staging.destroy()
        return max(float(end - begin) * period, 0.0)
