"""Measure the candidates of one task, and decide.

Every candidate is compiled, run over memory filled with NaN, and compared with the first, which the cost model chose;
one that differs by more than rounding is refused.  Then all are timed in turns, the clearly slow ones only once, and
medians count.  The best replaces the first only if it is faster by :data:`LEAST_GAIN`, and is so again when both are
measured anew.

On software drivers compiling a shader takes longer than many runs of it, so there the objective is the time of
:attr:`~.Target.repaid_runs` runs and of one compilation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..compiler.kernels.draft import BuiltKernel
from ..compiler.tuning.config_choice import EncodedCandidate, encode
from ..measurements.database import RefusedCandidate, TuningEntry
from ..runtime.device.device import Device
from ..runtime.plan.errors import DeviceLost, ShaderloomError
from ..runtime.plan.plan import Symbol
from .kernel_benchmark import Candidate, KernelBenchmark
from .timer import Timer

LEAST_GAIN = 0.05  #: share of the time that must be saved
ROUNDS = 3
_HOPELESS = 1.5  #: multiple of the best time so far beyond which a candidate is not measured again

#: Called before a candidate is compiled, which identifies it if it ends the process
Announce = Callable[[EncodedCandidate], None]


@dataclass
class TimedCandidate:
    """A candidate with correct results; nanoseconds of runs, and of compiling it."""

    choice: EncodedCandidate
    candidate: Candidate
    compile_ns: float
    first_ns: float
    calls: int  #: in a run of the model
    times: list[float] = field(default_factory=list)

    @property
    def ns(self) -> float:
        return statistics.median(self.times)

    def objective(self, repaid_runs: int) -> float:
        """Return the nanoseconds of ``repaid_runs`` runs and one compilation; of one run if ``repaid_runs`` is 0."""
        return repaid_runs * self.calls * self.ns + self.compile_ns if repaid_runs else self.ns


@dataclass
class SearchResult:
    """The result for a problem, and the candidates refused.  Without an entry nothing could be measured."""

    entry: TuningEntry | None
    refused: list[RefusedCandidate]
    measured: int = 0


def search(
    device: Device,
    timer: Timer,
    candidates: Sequence[Any],
    build: Callable[[Any], BuiltKernel],
    symbols: Mapping[Symbol, int],
    *,
    announce: Announce,
    calls: int = 1,
    refused: Sequence[EncodedCandidate] = (),
) -> SearchResult:
    """Measure ``candidates``, of which the first is the cost model's choice; those in ``refused`` are skipped.

    ``calls`` is the number of calls of the kernel in a run of the model.

    Raises :class:`DeviceLost`; every other error refuses only its candidate.
    """
    outcome = SearchResult(None, [])
    first = encode(candidates[0])
    if first in refused:
        return outcome
    benchmark: KernelBenchmark | None = None
    try:
        contenders: list[TimedCandidate] = []
        expected: list[Any] = []
        for item in candidates:
            choice = encode(item)
            if choice in refused:
                continue
            announce(choice)
            try:
                built = build(item)
                benchmark = benchmark or KernelBenchmark(device, built, symbols)
                contender = _prepare(timer, benchmark, built, choice, calls)
                results = contender.candidate.results(timer.once)
            except DeviceLost:
                raise
            except ShaderloomError as error:
                outcome.refused.append(RefusedCandidate(choice, error.reason))
                if choice == first:
                    return outcome
                continue
            if not expected:
                expected = results
            wrong = contender.candidate.difference(results, expected)
            if wrong is not None:
                outcome.refused.append(RefusedCandidate(choice, wrong))
                continue
            contenders.append(contender)
        outcome.measured = len(contenders)
        outcome.entry = _decide(timer, contenders)
        return outcome
    finally:
        if benchmark is not None and not device.lost:
            benchmark.close()


def _prepare(
    timer: Timer, benchmark: KernelBenchmark, built: BuiltKernel, choice: EncodedCandidate, calls: int
) -> TimedCandidate:
    """Compile a candidate and time its first runs: compilation is complete only after the first."""
    start = time.process_time_ns() if timer.software else time.perf_counter_ns()
    candidate = benchmark.candidate(built, checked=timer.device.keeps_checks)
    if not candidate.dispatches:
        raise ShaderloomError("it has no workgroups")
    created = (time.process_time_ns() if timer.software else time.perf_counter_ns()) - start
    first = timer.first(candidate.dispatches[:1])
    again = timer.once(candidate.dispatches[:1])
    return TimedCandidate(choice, candidate, max(created + first - again, 0.0), again, calls)


def _decide(timer: Timer, contenders: Sequence[TimedCandidate]) -> TuningEntry:
    first = contenders[0]
    timer.warm_up(first.candidate.dispatches)
    _measure(timer, contenders, ROUNDS)
    best = min(contenders, key=lambda item: item.objective(timer.repaid_runs))
    if best is not first and _saves(timer, best, first):
        for item in (first, best):
            item.times.clear()
        _measure(timer, (first, best), ROUNDS)
        if not _saves(timer, best, first):
            best = first
    else:
        best = first
    return TuningEntry(best.choice, best.ns, first.choice, first.ns, best.compile_ns if timer.software else 0.0)


def _saves(timer: Timer, one: TimedCandidate, other: TimedCandidate) -> bool:
    return one.objective(timer.repaid_runs) <= (1 - LEAST_GAIN) * other.objective(timer.repaid_runs)


def _measure(timer: Timer, contenders: Sequence[TimedCandidate], rounds: int) -> None:
    running = list(contenders)
    for number in range(rounds):
        for item in running:
            passes = timer.repeats(item.first_ns)
            count = len(item.candidate.dispatches)
            used = min(count, passes)
            item.times.append(timer.steady(item.candidate.dispatches[:used], max(1, passes // count)) / used)
            item.first_ns = item.ns
        if number == 0:
            least = min(item.objective(timer.repaid_runs) for item in running)
            running = [
                item
                for item in running
                if item is contenders[0] or item.objective(timer.repaid_runs) <= _HOPELESS * least
            ]
