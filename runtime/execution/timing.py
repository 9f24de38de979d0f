"""Time of every call of a plan: timestamp queries where the device has them, else wall time around single calls."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from ..device import native
from ..device.device import Device
from ..memory.buffers import COPY_DST, COPY_SRC, MAP_READ, QUERY_RESOLVE, mapped
from ..plan.plan import KernelCall
from ..plan.record import record
from .dispatch import Dispatch, encode

#: Queries in one query set; WebGPU allows 4096
QUERIES = 4096


@record
class CallTime:
    """Time of one call on the device, of all repetitions together."""

    kernel: str  #: the kernel's id
    label: str
    nanoseconds: int
    call: KernelCall  #: the plan's own object; calls with an empty grid do not run and have no time


@record
class Profile:
    """Times of the calls of one run, in order.

    ``method`` is ``"timestamps"``, or ``"wall"``: time from submission to completion, which includes about 100
    microseconds of overhead a call.  Calls are separated for measuring, so their sum exceeds the time of a plain run.
    ``sizes`` are those of the plan's dynamic dimensions in the run.
    """

    method: str
    calls: tuple[CallTime, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def nanoseconds(self) -> int:
        return sum(call.nanoseconds for call in self.calls)


def measure(device: Device, dispatches: Sequence[Dispatch], *, use_native: bool) -> Profile:
    """Run the dispatches one by one and time each call."""
    if "timestamp-query" in device.profile.features:
        try:
            period = native.timestamp_period(device.queue)
        except native.MissingSymbolError:
            period = 1.0  # what the specification says; only native extensions report raw ticks
        times: list[int] = []
        for start in range(0, len(dispatches), QUERIES // 2):
            times += _timestamps(device, dispatches[start : start + QUERIES // 2], period, use_native)
        method = "timestamps"
    else:
        times = [_wall(device, dispatch, use_native) for dispatch in dispatches]
        method = "wall"
    calls = {id(dispatch.call): dispatch.call for dispatch in dispatches}
    sums = dict.fromkeys(calls, 0)
    for dispatch, value in zip(dispatches, times):
        sums[id(dispatch.call)] += value
    return Profile(
        method, tuple(CallTime(call.kernel[:12], call.label, sums[key], call) for key, call in calls.items())
    )


def _timestamps(device: Device, dispatches: Sequence[Dispatch], period: float, use_native: bool) -> list[int]:
    count = len(dispatches) * 2
    with device.guarded("measuring a run"):
        queries = device.gpu.create_query_set(type="timestamp", count=count)
        resolved = device.create_buffer(count * 8, QUERY_RESOLVE | COPY_SRC, "timestamps")
        staging = device.create_buffer(count * 8, MAP_READ | COPY_DST, "timestamps")
        encoder = device.gpu.create_command_encoder()
        for index, dispatch in enumerate(dispatches):
            compute_pass = encoder.begin_compute_pass(
                timestamp_writes={
                    "query_set": queries,
                    "beginning_of_pass_write_index": index * 2,
                    "end_of_pass_write_index": index * 2 + 1,
                }
            )
            encode(compute_pass, [dispatch], use_native=use_native)
            compute_pass.end()
        encoder.resolve_query_set(queries, 0, count, resolved, 0)
        encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, count * 8)
        device.submit([encoder.finish()], "measuring a run")
        with mapped(device, staging, count * 8) as view:
            ticks = np.frombuffer(view, np.uint64).astype(np.int64).reshape(-1, 2)
        resolved.destroy()
        staging.destroy()
    return [max(round(int(end - begin) * period), 0) for begin, end in ticks]


def _wall(device: Device, dispatch: Dispatch, use_native: bool) -> int:
    with device.guarded("measuring a run"):
        encoder = device.gpu.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        encode(compute_pass, [dispatch], use_native=use_native)
        compute_pass.end()
        commands = encoder.finish()
    device.wait()
    start = time.perf_counter_ns()
    device.submit([commands], "measuring a run")
    device.wait()
    return time.perf_counter_ns() - start
