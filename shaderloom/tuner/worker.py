"""The measuring process, isolated because a bad candidate may terminate it.

It reads one JSON object, the :class:`TuningJob`, from standard input and writes one line per message to standard
output, after :data:`MARK`: ``trying`` before each candidate, ``entry`` and ``refused`` as results come, ``progress``,
and ``done`` or ``error`` at the end.  Lines that libraries print have no mark.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..compiler.driver import compile_unit, model_unit
from ..compiler.passes.lowering import Lowering
from ..compiler.passes.pipeline import LOWERED
from ..compiler.tuning.config_choice import Choices, Decision, EncodedCandidate, TuningRecord
from ..measurements.database import TuningEntry
from ..measurements.device_records import DeviceRecords, driver_of
from ..model.model import Model
from ..model.random_inputs import random_feeds
from ..runtime.device.opening import open_device
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.plan.caps import Caps, MemoryAccount
from ..runtime.plan.errors import DeviceLost, ShaderloomError
from ..runtime.plan.facts import TUNED
from .forms import search_forms
from .search import search
from .tasks import KernelBuilder, Task, shortlist
from .timer import Timer

MARK = "@shaderloom-tuning "

#: Exit status of a process that lost its device
LOST = 3


@dataclass
class TuningJob:
    """The settings of a tuning run.  ``measured`` has the choice of each problem that is not measured again;
    ``refused`` are candidates not to try again.
    """

    model: str
    shapes: dict[str, list[int]]
    dynamic: dict[str, list[int]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    device: str = ""
    budget: float = 60.0
    candidates: int = 8
    forms: bool = True
    measured: dict[str, EncodedCandidate] = field(default_factory=dict)
    refused: dict[str, list[EncodedCandidate]] = field(default_factory=dict)
    shipped: bool = True

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def send(kind: str, **facts: Any) -> None:
    print(MARK + json.dumps({"kind": kind, **facts}), flush=True)


class TuningWorker:
    def __init__(self, job: TuningJob) -> None:
        self.job = job
        self.end = time.monotonic() + job.budget
        self.device = open_device(job.device or None)
        self.timer = Timer(self.device)
        profile = self.device.profile
        self.model = Model(
            job.model,
            cache=False,
            options=job.options,
            dynamic=job.dynamic,
        )
        self.shapes = {name: tuple(shape) for name, shape in job.shapes.items()}
        if self.model.calibration is not None and self.model.calibration.is_due:
            self.model.calibrate_on_host(self.shapes, profile)
        self.compilation = self.model.compilation(profile)
        bound = self.model.bind(self.shapes)
        self.unit = model_unit(self.model.imported, bound)
        self.symbols = {symbol: bound.sizes[symbol.name] for symbol in bound.symbols}
        self.records = dict(DeviceRecords.of_user().for_device(profile)) if job.shipped else {}
        self.records.update((key, TuningRecord(choice, TUNED, 0.0, 0.0)) for key, choice in job.measured.items())

    def run(self) -> None:
        send(
            "device",
            adapter=self.device.profile.adapter,
            driver=driver_of(self.device.profile),
            method=self.timer.method,
        )
        if self.job.forms:
            self._forms()
        builder = KernelBuilder(self._lower(Choices(self.records)), self.compilation, self.symbols)
        tasks = builder.tasks(self.records)
        send("tasks", calls={task.key: task.calls for task in tasks})
        open_tasks = [task for task in tasks if task.key not in self.job.measured]
        for number, task in enumerate(open_tasks):
            if not self._in_time():
                send("done", left=len(open_tasks) - number)
                return
            send("progress", what=task.key, done=number, total=len(open_tasks))
            self._task(builder, task)
        send("done", left=0)

    def _task(self, builder: KernelBuilder, task: Task) -> None:
        outcome = search(
            self.device,
            self.timer,
            shortlist(task.decision.candidates, self.job.candidates),
            lambda candidate: builder.with_choice(task, candidate),
            self.symbols,
            announce=lambda choice: send("trying", choices={task.key: choice}),
            calls=task.calls,
            refused=self.job.refused.get(task.key, ()),
        )
        self._report({task.key: outcome.entry} if outcome.entry else {}, {task.key: outcome.refused})

    def _report(self, entries: Mapping[str, TuningEntry], refused: Mapping[str, Sequence[Any]]) -> None:
        for key, items in refused.items():
            for item in items:
                send("refused", problem=key, choice=dict(item.choice), why=item.why)
        for key, entry in entries.items():
            send("entry", problem=key, entry=entry.to_json())

    def _forms(self) -> None:
        """Tune choices of the passes, family by family: each choice determines which decisions come up next."""
        measured: set[str] = set()
        while self._in_time():
            choices = Choices(self.records)
            self._lower(choices)
            # a problem with a failed form keeps its configuration
            done = {*self.job.measured, *self.job.refused, *measured}
            questions = [
                decision
                for decision in choices.decisions.values()
                if decision.nodes and len(decision.candidates) > 1 and decision.key not in done
            ]
            if not questions:
                break
            family = questions[0].key.split()[0]
            questions = [decision for decision in questions if decision.key.split()[0] == family]
            send("progress", what=f"forms of the graph: {family}", done=0, total=0)
            self._forms_of(questions)
            measured.update(decision.key for decision in questions)
        gc.collect()  # executors keep pipelines, whose compiling is to be measured

    def _forms_of(self, questions: Sequence[Decision]) -> None:
        pool = WeightPool(self.device, self.model.sources, MemoryAccount(Caps().device_memory))
        try:
            outcome = search_forms(
                self.device,
                self.timer,
                questions,
                self.records,
                lambda chosen: compile_unit(self.unit, replace(self.compilation, choices=chosen)).plan,
                pool,
                random_feeds(self.model.header, self.shapes),
                announce=lambda forced: send("trying", choices=dict(forced)),
                in_time=self._in_time,
            )
        finally:
            if not self.device.lost:
                pool.close()
        self._report(outcome.entries, outcome.refused)
        self.records.update(
            (key, TuningRecord(entry.choice, TUNED, entry.ns, entry.analytic_ns))
            for key, entry in outcome.entries.items()
        )

    def _in_time(self) -> bool:
        return time.monotonic() < self.end

    def _lower(self, choices: Choices) -> Lowering:
        """Compile up to the groups of kernels, with ``choices`` answering decisions."""
        return compile_unit(self.unit, replace(self.compilation, choices=choices), until=LOWERED)


def main() -> None:
    job = TuningJob(**json.loads(sys.stdin.read()))
    try:
        TuningWorker(job).run()
    except DeviceLost as error:
        print(error, file=sys.stderr)
        sys.stdout.flush()
        raise SystemExit(LOST) from None
    except ShaderloomError as error:
        send("error", text=str(error))


if __name__ == "__main__":
    main()
