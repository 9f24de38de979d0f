"""Check a model in stages: one run is followed from step to step, and all that its steps make is compared.

Twice: the first run gives the outputs, as any other one does, and the names of what there is to compare.  The second is
looked at: before a stage runs, its plan runs with a copy behind every call, as that of a model which is one plan; then
the values that the step has really made are compared, those of cpu segments, loops and the host, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cpu.provider import CpuEngine
from ..execution.engine import WgpuEngine
from ..execution.program import Program
from ..execution.program.loops import LoopStep
from ..execution.program.steps import CpuStep, DeviceStep, Observer, Step
from ..execution.program.values import RuntimeValue
from ..plans.instrument import Observation
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import LimitError, ShapeError, UnsupportedError
from .diagnosis import Diagnosis, Diagnostician
from .plan_check import PlanCheck, Row
from .tensor_path import MAIN, Place

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering
    from .check import Checker, CheckResult

_Key = tuple[Place, str]


class StageChecker(Observer):
    """Fills in the result of a check."""

    def __init__(self, checker: Checker, result: CheckResult) -> None:
        self._checker = checker
        self._result = result
        self._expected = checker.expected
        self._source = checker.source
        self._rows: dict[_Key, Row] = {}
        self._stages: dict[str, int] = {}  #: numbers of plans by key
        self._looked: tuple[DeviceStep, PlanCheck, dict[int, Observation]] | None = None  #: at the stage that runs

    def run(self, *, per_node: bool) -> None:
        """Raises what a run raises."""
        checker, result = self._checker, self._result
        model = checker.model
        engine = WgpuEngine(model, checker.device)
        program = Program(model, engine, CpuEngine(model.path, model.data))
        try:
            if program.context.half and model.calibration is not None and model.calibration.is_new:
                checker.progress("calibrating", 0, 0)
                program.calibrate(checker.calibration_feeds)
            checker.progress("running", 0, 0)
            names = _Names(self)
            outputs = program.observe(checker.feeds, names)
            result.stages = len(names.plans)
            result.on_cpu = sum(entry[2] == "cpu" for entry in program.context.placed.values())
            arrays = {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}
            self._expected.expect(arrays)
            known = {name: array for name, array in arrays.items() if self._expected.knows(name)}
            result.skipped = [name for name in outputs if name not in known]
            final = [self._compare((MAIN, name), array) for name, array in known.items()]
            if per_node or any(not row.difference.is_close for row in final):
                self._expected.expect(names.found)
                program.observe(checker.feeds, self)
            for row in final:
                self._add(row)
        finally:
            program.close()
            engine.close()
        result.rows = list(self._rows.values())
        if result.differing and result.diagnosis is None:
            result.diagnosis = self._elsewhere(result.differing[0])

    # -- a run that is looked at -----------------------------------------------------------------------------------

    def before_plan(self, step: DeviceStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        plan = step.executor.plan
        checker = self._checker
        check = PlanCheck(
            checker.device,
            checker.pool,
            self._expected,
            plan,
            Arrays(feeds),
            lambda disabled: self._compile(step, disabled),
            steps=around,
            stage=self._stages.setdefault(plan.key, len(self._stages) + 1),
        )
        rows, observed = check.inside()
        self._looked = step, check, observed
        for row in rows:
            self._add(row)
        self._result.watches += check.watch(observed)
        first = next((row for row in rows if not row.difference.is_close), None)
        if first is not None and self._result.diagnosis is None:
            self._diagnose(check, first, observed)

    def before_iteration(self, inputs: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        """What goes into a step: compared in silence, as it is what the step before has made."""
        self._expected.turn_to(around)
        for name, held in inputs.items():
            path, own = self._source.carried[name]
            key = Place(path, around), own
            self._expected.expect([own], key[0])
            array = _array(held)
            if array is None or not self._expected.knows(own, key[0]):
                continue
            row = self._compare(key, array, "loop")
            if not row.difference.is_close:
                self._add(row)
                if self._result.diagnosis is None:
                    text = "it is not what the step before, or what stands before the loop, has given"
                    self._result.diagnosis = _unknown(row, text)

    def after_step(self, step: Step, made: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        found: dict[_Key, str] = {}
        for name in made:
            key = self._key(name, around)
            if key is not None:
                found[key] = name
        self._expected.expect_all(found)
        looked = self._looked if self._looked is not None and self._looked[0] is step else None
        for key, name in found.items():
            array = _array(made[name])
            if array is None or not self._expected.knows(key[1], key[0]):
                continue
            call = None if looked is None else looked[1].call_of(name)
            if looked is not None and call is not None:
                row = looked[1].row(key[1], array, call, key[0])
            else:
                row = self._compare(key, array, _maker(step, made[name]))
            kept = self._rows.get(key)
            if kept is not None and (not kept.difference.is_close or row.difference.is_close):
                continue
            self._add(row)
            if row.difference.is_close or self._result.diagnosis is not None:
                continue
            if kept is None and looked is not None and call is not None:
                self._diagnose(looked[1], row, looked[2])
            else:
                self._result.diagnosis = self._not_a_kernel(step, row, was_right=kept is not None)

    def _key(self, name: str, around: tuple[int, ...]) -> _Key | None:
        """The place and name of a value that a node makes, by its qualified name; constants do not count."""
        found = self._source.qualified.get(name)
        if found is None:
            return None
        path, own = found
        graph = self._source.graphs[path]
        place = self._source.place_of(path, around)
        return None if place is None or graph.proto.node[graph.producers[own]].op_type == "Constant" else (place, own)

    def _compare(self, key: _Key, array: np.ndarray, maker: str = "") -> Row:
        place, name = key
        difference = self._expected.compare(name, array, place)
        return Row(name, self._source.maker(name, place.graph), None, "", difference, place, None, maker)

    def _add(self, row: Row) -> None:
        """Keep a row.  Of two for one tensor the first that differs counts, in the place of the first."""
        kept = self._rows.get(row.key)
        if kept is None:
            self._rows[row.key] = row
        elif kept.difference.is_close and not row.difference.is_close:
            self._rows[row.key] = replace(row, call=kept.call, kernel=kept.kernel, stage=kept.stage)

    # -- causes ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _compile(step: DeviceStep, disabled: Collection[str]) -> Lowering:
        """Compile the plan of a step with passes disabled."""
        return step.source.compile(disabled)

    def _diagnose(self, check: PlanCheck, first: Row, observed: Mapping[int, Observation]) -> None:
        good = {key for key, row in self._rows.items() if row.difference.is_close}
        try:
            self._result.diagnosis = Diagnostician(check, good, observed).run(first)
        except (UnsupportedError, ShapeError, LimitError) as error:  # the stage is none with other options
            text = f"the stage cannot be compiled otherwise, to look closer: {error.reason}"
            origins = check.plan.calls[first.call].origins if first.call is not None else ()
            self._result.diagnosis = _unknown(first, text, origins)

    def _not_a_kernel(self, step: Step, row: Row, *, was_right: bool) -> Diagnosis:
        """Something else than a kernel has made the first value that differs."""
        if was_right:
            return _unknown(row, "its kernel was right in a run of its stage that was looked at, and wrong in the next")
        if isinstance(step, CpuStep):
            found = _unknown(row, f"the cpu provider runs the node: {step.refusal.reason}")
            found.kind = "cpu"
            found.findings.append(
                f"by {', '.join(dict.fromkeys(step.segment.implementations))}; no kernel has part in it"
            )
            return found
        if isinstance(step, LoopStep):
            return _unknown(
                row, "every step of the loop is right that was compared: its results are put together wrongly"
            )
        return _unknown(row, "no kernel has made it: it was computed while compiling, on the host, or is another value")

    def _elsewhere(self, row: Row) -> Diagnosis:
        """An output differs, and nothing did in the run that was looked at."""
        return _unknown(row, "in the run that was looked at, all values were right: results change from run to run")


class Arrays(Mapping[str, np.ndarray]):
    """Values of a run as arrays, each read when it is asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> np.ndarray:
        value = self._values[name]
        if isinstance(value, Tensor):
            value = self._values[name] = value.numpy()
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Names(Observer):
    """Collects the tensors of the main graph that a run makes, so that the reference is asked for them together."""

    def __init__(self, checker: StageChecker) -> None:
        self.found: dict[str, None] = {}
        self.plans: set[str] = set()
        self._checker = checker

    def before_plan(self, step: DeviceStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        plan = step.executor.plan
        self.plans.add(plan.key)
        for number in range(len(plan.calls)):
            for row in plan.facts.results(number):
                found = self._checker._source.locate(row.graph, row.name)
                if found is not None and found[0] == "main":
                    self.found[found[1]] = None

    def after_step(self, step: Step, made: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        keys = (self._checker._key(name, around) for name in made)
        self.found.update((key[1], None) for key in keys if key is not None and key[0] == MAIN)


def _array(held: RuntimeValue) -> np.ndarray | None:
    """A value as an array, left where it is; None for a sequence and the like."""
    value = held.host if held.on_host or held.tensor is None else held.tensor.numpy()
    return value if isinstance(value, np.ndarray) else None


def _maker(step: Step, held: RuntimeValue) -> str:
    """Who has made a value: for the column of calls."""
    if isinstance(step, CpuStep):
        return "cpu"
    if isinstance(step, LoopStep):
        return "loop"
    return "host" if held.maker == "compiler" else ""


def _unknown(row: Row, text: str, origins: tuple[str, ...] = ()) -> Diagnosis:
    return Diagnosis(
        "unknown",
        row.tensor,
        row.call,
        row.kernel,
        row.node,
        origins,
        findings=[text],
        worst=row.difference,
        place=row.place,
        stage=row.stage,
    )
