"""Run time by call: every call measured, joined with the plan's facts about it.

Rows are JSON values.  Times are medians over several runs, in nanoseconds; ``share`` is of the sum over all calls.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.execution.timing import Profile
from ..runtime.plan.dimension import evaluate
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record

if TYPE_CHECKING:
    from ..runtime.execution.roofline import Roofline


@record(slots=False)
class CallProfile:
    """One call of a plan with its time.

    ``roofline`` is the share of the device's peak; None where it is not measured, or exceeds 1: the traffic of a kernel
    whose data lies in caches is not bounded by that of memory.
    """

    position: int
    kernel: str
    template: str
    label: str
    origins: tuple[str, ...]
    nanoseconds: int
    share: float
    flops: int
    bytes: int
    roofline: float | None
    stage: int | None = None  #: of a model in stages: which of its plans, from 1
    iterations: int = 1  #: how often the call ran: more than once in the body of a loop

    @property
    def flops_per_second(self) -> float:
        return self.flops / max(self.nanoseconds, 1) * 1e9

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / max(self.nanoseconds, 1) * 1e9

    def to_json(self) -> dict[str, Any]:
        staged = {} if self.stage is None else {"stage": self.stage, "iterations": self.iterations}
        return {
            **staged,
            "call": self.position,
            "kernel": self.kernel,
            "template": self.template,
            "label": self.label,
            "origins": list(self.origins),
            "ns": self.nanoseconds,
            "share": self.share,
            "flops": self.flops,
            "bytes": self.bytes,
            "roofline": self.roofline,
        }


@record(slots=False)
class PlanProfile:
    """All executed calls, in order; ``method`` as in :class:`~.timing.Profile`."""

    method: str
    runs: int
    calls: tuple[CallProfile, ...]

    @property
    def nanoseconds(self) -> int:
        return sum(call.nanoseconds for call in self.calls)

    @property
    def by_time(self) -> list[CallProfile]:
        """The calls, slowest first."""
        return sorted(self.calls, key=lambda call: (-call.nanoseconds, call.position))

    def by_template(self) -> list[tuple[str, int, int]]:
        """Return (template, calls, nanoseconds), the most expensive first."""
        sums: dict[str, tuple[int, int]] = {}
        for call in self.calls:
            count, total = sums.get(call.template, (0, 0))
            sums[call.template] = (count + 1, total + call.nanoseconds)
        rows = [(template, count, total) for template, (count, total) in sums.items()]
        return sorted(rows, key=lambda row: (-row[2], row[0]))


def summarise(
    plan: Plan, profiles: Sequence[Profile], symbols: Mapping[str, int], roofline: Roofline | None = None
) -> PlanProfile:
    """Join the profiles of several runs with the plan; ``symbols`` are the dynamic dimensions of these runs."""
    templates = {kernel.key: kernel.template for kernel in plan.kernels}
    medians = [
        round(statistics.median(run.calls[number].nanoseconds for run in profiles))
        for number in range(len(profiles[0].calls))
    ]
    total = max(sum(medians), 1)
    positions = {id(call): position for position, call in enumerate(plan.calls)}
    rows = []
    for time, measured in zip(medians, profiles[0].calls):
        call = measured.call
        flops, moved = evaluate(call.flops, symbols), evaluate(call.bytes, symbols)
        least = None if roofline is None else roofline.least_seconds(flops, moved)
        rows.append(
            CallProfile(
                positions[id(call)],
                call.kernel[:12],
                templates[call.kernel],
                call.label,
                call.origins,
                time,
                time / total,
                flops,
                moved,
                _reached(least, time),
            )
        )
    return PlanProfile(profiles[0].method, len(profiles), tuple(rows))


def summarise_stages(runs: Sequence[Sequence[tuple[Plan, Profile]]], roofline: Roofline | None = None) -> PlanProfile:
    """Summarise runs that may execute several plans, each call by its median time over the runs; executions of one plan
    within a run are added up.
    """
    if len({plan.key for plan, _ in runs[0]}) == 1 and all(len(run) == 1 for run in runs):
        plan = runs[0][0][0]
        return summarise(plan, [run[0][1] for run in runs], runs[0][0][1].sizes, roofline)
    plans = {plan.key: plan for run in runs for plan, _ in run}
    rows: list[CallProfile] = []
    for number, plan in enumerate(plans.values(), 1):
        executions = [[profile for each, profile in run if each.key == plan.key] for run in runs]
        added = [_added(profiles) for profiles in executions if profiles]
        executed = [profile.sizes for profile in max(executions, key=len)]
        summary = summarise(plan, added, executed[0]) if added[0].calls else None
        for row in summary.calls if summary is not None else ():
            call = plan.calls[row.position]
            works = [(evaluate(call.flops, sizes), evaluate(call.bytes, sizes)) for sizes in executed]
            least = None if roofline is None else sum(roofline.least_seconds(*work) for work in works)
            rows.append(
                replace(
                    row,
                    stage=number,
                    iterations=len(executed),
                    flops=sum(flops for flops, _ in works),
                    bytes=sum(moved for _, moved in works),
                    roofline=_reached(least, row.nanoseconds),
                )
            )
    total = max(sum(row.nanoseconds for row in rows), 1)
    method = next((profile.method for run in runs for _, profile in run), "timestamps")
    return PlanProfile(method, len(runs), tuple(replace(row, share=row.nanoseconds / total) for row in rows))


def _reached(least: float | None, nanoseconds: int) -> float | None:
    """Return the share of the peak for the ``least`` seconds that the device needs, None for more than all of it."""
    share = None if least is None else least / max(nanoseconds, 1) * 1e9
    return share if share is not None and share <= 1 else None


def _added(profiles: Sequence[Profile]) -> Profile:
    """Add up the times of several executions of one plan."""
    first = profiles[0]
    times = [sum(profile.calls[number].nanoseconds for profile in profiles) for number in range(len(first.calls))]
    return Profile(
        first.method, tuple(replace(call, nanoseconds=time) for call, time in zip(first.calls, times, strict=True))
    )


def symbol_values(plan: Plan, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the sizes of the plan's dynamic dimensions in a run with these inputs."""
    from ..runtime.execution.ports import bind_symbols

    return dict(zip((symbol.name for symbol in plan.symbols), bind_symbols(plan, feeds)))


def chrome_trace(profile: PlanProfile, device: str, title: str) -> dict[str, Any]:
    """Return the profile in Chrome's trace event format, which Perfetto opens.

    Calls follow one another in the order of the plan, without the gaps that measuring introduces.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": f"{title} on {device}"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": f"kernels ({profile.method})"}},
    ]
    start = 0
    for call in profile.calls:
        events.append(
            {
                "ph": "X",
                "name": call.label or call.template,
                "cat": call.template,
                "pid": 1,
                "tid": 1,
                "ts": start / 1e3,  # microseconds
                "dur": call.nanoseconds / 1e3,
                "args": {
                    "call": call.position,
                    "kernel": call.kernel,
                    "ONNX nodes": list(call.origins),
                    "GFLOP/s": round(call.flops_per_second / 1e9, 3),
                    "GB/s": round(call.bytes_per_second / 1e9, 3),
                },
            }
        )
        start += call.nanoseconds
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"method": profile.method}}
