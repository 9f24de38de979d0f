"""Tune choices of the graph: whether to transform a convolution, into how many parts to split a product.

Such a choice changes the set of calls, so whole plans are run: one for each rank of candidates, in which every problem
takes its candidate of that rank.  Problems are independent: each is charged the time of the calls that compute its ONNX
nodes.  The choices are accepted if the plan that has all of them gives the outputs of the first plan, and takes less
time as a whole.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..compiler.tuning.config_choice import Choices, Decision, EncodedCandidate, TuningRecord, encode
from ..measurements.database import RefusedCandidate, TuningEntry
from ..runtime.device.device import Device
from ..runtime.execution.dispatch import Dispatch
from ..runtime.execution.executor import Executor
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.plan.facts import TUNED
from ..runtime.plan.plan import Plan
from .search import LEAST_GAIN
from .timer import Timer

ROUNDS = 3
#: Runs of a whole model with and without the chosen forms
_WHOLE_RUNS = 9
#: Largest difference of an output, relative to its largest value, between forms of one model
TOLERANCE = 1e-3

Compile = Callable[[Choices], Plan]
Feeds = Mapping[str, np.ndarray]


@dataclass
class FormResult:
    """Entries by key, and the refused candidates."""

    entries: dict[str, TuningEntry]
    refused: dict[str, list[RefusedCandidate]]


def search_forms(
    device: Device,
    timer: Timer,
    questions: Sequence[Decision],
    records: Mapping[str, TuningRecord],
    compile_with: Compile,
    pool: WeightPool,
    feeds: Feeds,
    *,
    announce: Callable[[Mapping[str, EncodedCandidate]], None],
    in_time: Callable[[], bool],
) -> FormResult:
    """Measure the candidates of ``questions``, all of one family; ranks that exceed the time budget are skipped."""
    plan = compile_with(Choices(records))
    times = {0: _costs(device, timer, plan, pool, feeds, questions)}
    chosen: list[dict[str, EncodedCandidate]] = [
        {decision.key: encode(decision.candidates[0]) for decision in questions}
    ]
    for rank in range(1, max(len(decision.candidates) for decision in questions)):
        if not in_time():
            break
        forced: dict[str, EncodedCandidate] = {
            decision.key: encode(decision.candidates[rank]) for decision in questions if rank < len(decision.candidates)
        }
        announce(forced)
        choices = Choices({**records, **_records(forced)})
        times[rank] = _costs(device, timer, compile_with(choices), pool, feeds, questions)
        chosen.append(forced)
    best: dict[str, int] = {}
    for decision in questions:
        least = times[0][decision.key]
        best[decision.key] = 0
        for rank in range(1, len(chosen)):
            if decision.key in chosen[rank] and times[rank][decision.key] < min(
                (1 - LEAST_GAIN) * times[0][decision.key], least
            ):
                best[decision.key], least = rank, times[rank][decision.key]
    outcome = FormResult({}, {})
    taken = {key: chosen[rank][key] for key, rank in best.items() if rank}
    if taken:
        announce(taken)
        other = compile_with(Choices({**records, **_records(taken)}))
        with _executor(device, plan, pool) as before, _executor(device, other, pool) as after:
            wrong = _wrong(after.run(feeds), before.run(feeds))
            is_faster = _is_faster(timer, after, before, feeds)
        if wrong is not None:
            outcome.refused = {key: [RefusedCandidate(choice, wrong)] for key, choice in taken.items()}
        if wrong is not None or not is_faster:
            best = dict.fromkeys(best, 0)
    for key, rank in best.items():
        outcome.entries[key] = TuningEntry(chosen[rank][key], times[rank][key], chosen[0][key], times[0][key])
    return outcome


def _records(forced: Mapping[str, EncodedCandidate]) -> dict[str, TuningRecord]:
    return {key: TuningRecord(choice, TUNED, 0.0, 0.0) for key, choice in forced.items()}


def _executor(device: Device, plan: Plan, pool: WeightPool) -> Executor:
    return Executor(device, plan, pool, checked=device.keeps_checks)


def _is_faster(timer: Timer, after: Executor, before: Executor, feeds: Feeds) -> bool:
    """Return whether whole runs got faster: additional calls may cost more than each of them saves."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(_WHOLE_RUNS):
        for executor, measured in zip((after, before), times):
            measured.append(timer.run(partial(executor.run, feeds)))
    return statistics.median(times[0]) < statistics.median(times[1])


def _costs(
    device: Device,
    timer: Timer,
    plan: Plan,
    pool: WeightPool,
    feeds: Feeds,
    questions: Sequence[Decision],
) -> dict[str, float]:
    """Measure each problem's calls, in nanoseconds a run; on software drivers with its share of the compile time."""

    def measure(dispatches: list[Dispatch]) -> dict[str, float]:
        wanted = {decision.key: set(decision.nodes) for decision in questions}
        costs = dict.fromkeys(wanted, 0.0)
        compiled: set[str] = set()
        for dispatch in dispatches:
            first = timer.first([dispatch])
            keys = [key for key, nodes in wanted.items() if nodes.intersection(dispatch.call.origins)]
            if not keys:
                continue
            once = timer.once([dispatch])
            passes = timer.repeats(once)
            cost = statistics.median(timer.steady([dispatch], passes) for _ in range(ROUNDS))
            if timer.repaid_runs and dispatch.call.kernel not in compiled:
                compiled.add(dispatch.call.kernel)
                cost += max(first - once, 0.0) / timer.repaid_runs
            for key in keys:
                costs[key] += cost / len(keys)
        return costs

    with _executor(device, plan, pool) as executor:
        if not timer.software:
            executor.run(feeds)
        return executor.measured(feeds, measure)


def _wrong(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str | None:
    for name, array in outputs.items():
        other = expected[name]
        if array.dtype.kind not in "fc":
            continue  # integers derive from thresholds of floats
        if not np.array_equal(np.isfinite(array), np.isfinite(other)):
            return f"other elements of the output '{name}' are finite"
        finite = np.isfinite(array)
        scale = float(np.abs(other[finite]).max(initial=0.0)) or 1.0
        worst = float(np.abs(array[finite] - other[finite]).max(initial=0.0)) / scale
        if worst > TOLERANCE:
            return f"the output '{name}' differs by {worst:.1e} of its largest value"
    return None
