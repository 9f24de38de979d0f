"""Check one run of a model, step by step: every value that its steps compute is compared.

The run executes twice.  The first execution yields the outputs, as any other run does, and the names of the comparable
tensors.  The second is observed: each plan first runs with a copy after every call; then the values that the step
computed are compared, including those of cpu segments, loops and the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..execution.engine import WgpuEngine
from ..execution.program.loops import LoopStep
from ..execution.program.steps import CpuStep
from ..execution.steps import Observer, PlanStep, Step
from ..execution.values import RuntimeValue
from ..plans.instrument import Observation, writer_of
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import LimitError, ShapeError, UnsupportedError
from .diagnosis import Diagnosis, Diagnostician
from .expectations import Expectations
from .graph_instance import MAIN_GRAPH, GraphInstance
from .index_check import IndexFault
from .plan_check import ComparedTensor, NonFiniteResult, PlanCheck, kernel_text

_Key = tuple[GraphInstance, str]


@dataclass
class CheckResult:
    """``rows`` are in execution order; ``outputs`` are the names of the model's outputs among them."""

    against: str
    device: str
    rows: list[ComparedTensor] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    skipped: list[str] = field(default_factory=list)  #: outputs that the reference does not know
    #: nested graphs whose tensors the reference does not know, and why
    unknown: dict[str, str] = field(default_factory=dict)
    indices: list[IndexFault] = field(default_factory=list)  #: that are out of range
    non_finite: list[NonFiniteResult] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    stages: int | None = None  #: plans of a model in stages; None for a single plan
    on_cpu: int = 0  #: nodes that the cpu provider ran

    @property
    def differing(self) -> list[ComparedTensor]:
        return [row for row in self.rows if not row.difference.is_close]

    @property
    def is_close(self) -> bool:
        """Return whether something was compared, all of it agrees, and no index is out of range."""
        return not (self.differing or self.is_blind or any(fault.is_error for fault in self.indices))

    @property
    def is_blind(self) -> bool:
        """Return whether the reference knows none of the computed tensors."""
        return bool(self.skipped) and not self.rows


class RunChecker(Observer):
    """Fills in the ``result`` of checking a run on ``feeds``."""

    def __init__(
        self,
        engine: WgpuEngine,
        expected: Expectations,
        feeds: Mapping[str, np.ndarray],
        result: CheckResult,
    ) -> None:
        self._engine = engine
        self._expected = expected
        self._source = expected.source
        self._feeds = feeds
        self._result = result
        self._rows: dict[_Key, ComparedTensor] = {}
        self._stages: dict[str, int] = {}  #: numbers of plans by key
        self._looked: tuple[PlanStep, PlanCheck, dict[int, Observation]] | None = None  #: at the plan that runs

    def run(self, *, per_node: bool) -> None:
        """Run the model and compare its tensors; raise what a run raises."""
        self._expected.progress("running", 0, 0)
        first = _FirstRun(self)
        outputs = self._engine.observe(self._feeds, first)
        model = self._engine.model
        declares = model is not None and not model.options.half and self._engine.has_halves
        if declares and self._engine.must_repeat(self._feeds, {}, outputs):  # as a session does
            self._stages.clear()
            first = _FirstRun(self)
            outputs = self._engine.observe(self._feeds, first)
        is_whole = not self._engine.ran_steps
        result = self._result
        if not is_whole:
            result.stages = len(self._stages)
            result.on_cpu = sum(entry[2] == "cpu" for entry in self._engine.program.placed())
        arrays = {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}
        self._expected.expect(arrays)
        comparable = {name: array for name, array in arrays.items() if self._expected.knows(name)}
        result.skipped = [name for name in outputs if name not in comparable]
        final = [first.row(name, array) for name, array in comparable.items()]
        if per_node or any(not row.difference.is_close for row in final):
            self._expected.expect(first.names)
            self._engine.observe(self._feeds, self)
        for row in final:
            self._add(row)
        result.rows = list(self._rows.values())
        if is_whole:  # in the order of the run; what no kernel computes comes first
            result.rows.sort(key=lambda row: (-1 if row.call is None else row.call, row.tensor))
        if result.differing and result.diagnosis is None:
            result.diagnosis = self._elsewhere(result.differing[0])

    def stage_of(self, step: PlanStep) -> int | None:
        """Return the number of a plan, from 1 in the order of first runs; None if it is the only one."""
        if not self._engine.ran_steps:
            return None
        return self._stages.setdefault(step.executor.plan.key, len(self._stages) + 1)

    # -- the observed run -----------------------------------------------------------------------------------------

    def before_plan(self, step: PlanStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        check = PlanCheck(
            step,
            self._engine.resources.pool,
            self._expected,
            Arrays(feeds),
            iterations=around,
            stage=self.stage_of(step),
        )
        rows, observed = check.inside()
        self._looked = step, check, observed
        for row in rows:
            self._add(row)
        self._result.non_finite += check.non_finite_results(observed)
        first = next((row for row in rows if not row.difference.is_close), None)
        if first is not None and self._result.diagnosis is None:
            self._diagnose(check, first, observed)

    def before_iteration(self, inputs: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        """Compare the inputs of an iteration without reporting them: they are the results of the one before."""
        self._expected.turn_to(around)
        for name, held in inputs.items():
            path, own = self._source.loop_carried[name]
            key = GraphInstance(path, around), own
            self._expected.expect([own], key[0])
            array = _array(held)
            if array is None or not self._expected.knows(own, key[0]):
                continue
            row = self._compare(key, array, "loop")
            if not row.difference.is_close:
                self._add(row)
                if self._result.diagnosis is None:
                    text = "it differs from the result of the iteration before, or from the initial value of the loop"
                    self._result.diagnosis = _unknown(row, text)

    def after_step(self, step: Step, results: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        names: dict[_Key, str] = {}
        for name in results:
            key = self._key(name, around)
            if key is not None:
                names[key] = name
        self._expected.expect_all(names)
        looked = self._looked if self._looked is not None and self._looked[0] is step else None
        for key, name in names.items():
            array = _array(results[name])
            if array is None or not self._expected.knows(key[1], key[0]):
                continue
            call = None if looked is None else writer_of(looked[1].plan, name)
            if looked is not None and call is not None:
                row = looked[1].row(key[1], array, call, key[0])
            else:
                row = self._compare(key, array, _maker(step, results[name]))
            previous = self._rows.get(key)
            if previous is not None and (not previous.difference.is_close or row.difference.is_close):
                continue
            self._add(row)
            if row.difference.is_close or self._result.diagnosis is not None:
                continue
            if previous is None and looked is not None and call is not None:
                self._diagnose(looked[1], row, looked[2])
            else:
                self._result.diagnosis = self._not_a_kernel(step, row, was_right=previous is not None)

    def _key(self, name: str, around: tuple[int, ...]) -> _Key | None:
        """Return the path and name of a value that a node computes; None for constants and for other values."""
        location = self._source.qualified.get(name)
        if location is None:
            return None
        path, own = location
        graph = self._source.graphs[path]
        instance = self._source.instance_of(path, around)
        return (
            None
            if instance is None or graph.proto.node[graph.producers[own]].op_type == "Constant"
            else (instance, own)
        )

    def _compare(self, key: _Key, array: np.ndarray, maker: str = "") -> ComparedTensor:
        instance, name = key
        difference = self._expected.compare(name, array, instance)
        return ComparedTensor(
            name, self._source.maker(name, instance.graph), None, "", difference, instance, None, maker
        )

    def _add(self, row: ComparedTensor) -> None:
        """Store a row; of two for one tensor the first differing one is kept, at the position of the first."""
        previous = self._rows.get(row.key)
        if previous is None:
            self._rows[row.key] = row
        elif previous.difference.is_close and not row.difference.is_close:
            self._rows[row.key] = replace(row, call=previous.call, kernel=previous.kernel, stage=previous.stage)

    # -- causes ----------------------------------------------------------------------------------------------------

    def _diagnose(self, check: PlanCheck, first: ComparedTensor, observed: Mapping[int, Observation]) -> None:
        good = {key for key, row in self._rows.items() if row.difference.is_close}
        try:
            self._result.diagnosis = Diagnostician(check, good, observed).run(first)
        except (UnsupportedError, ShapeError, LimitError) as error:  # other options yield no such stage
            text = f"the stage cannot be compiled otherwise, to look closer: {error.reason}"
            origins = check.plan.calls[first.call].origins if first.call is not None else ()
            self._result.diagnosis = _unknown(first, text, origins)

    def _not_a_kernel(self, step: Step, row: ComparedTensor, *, was_right: bool) -> Diagnosis:
        """Return the cause of a difference in a value that no kernel computed."""
        if was_right:
            return _unknown(row, "its kernel was right in the observed run of its stage, and wrong in the next")
        if isinstance(step, CpuStep):
            diagnosis = _unknown(row, f"the cpu provider runs the node: {step.refusal.reason}")
            diagnosis.kind = "cpu"
            diagnosis.findings.append(
                f"by {', '.join(dict.fromkeys(step.segment.implementations))}; no kernel has part in it"
            )
            return diagnosis
        if isinstance(step, LoopStep):
            return _unknown(
                row, "every iteration of the loop is right that was compared: its results are put together wrongly"
            )
        return _unknown(
            row, "no kernel computed it: it was folded at compile time, computed on the host, or is another value"
        )

    def _elsewhere(self, row: ComparedTensor) -> Diagnosis:
        """Return a diagnosis for an output that differs although nothing differed in the observed run."""
        return _unknown(row, "in the observed run all values were right: results change from run to run")


class Arrays(Mapping[str, np.ndarray]):
    """Values of a run as arrays, each read on first access."""

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


class _FirstRun(Observer):
    """Collects the main-graph tensors that a run computes, so that they are requested from the reference together."""

    def __init__(self, checker: RunChecker) -> None:
        self.names: dict[str, None] = {}
        self._writers: dict[str, tuple[PlanStep, int]] = {}  #: of tensors of the main graph
        self._checker = checker

    def row(self, output: str, array: np.ndarray) -> ComparedTensor:
        """Compare an output of the model; the row names the call that wrote it."""
        row = self._checker._compare((MAIN_GRAPH, output), array)
        if output not in self._writers:
            return row
        step, call = self._writers[output]
        return replace(row, call=call, kernel=kernel_text(step.executor.plan, call), stage=self._checker.stage_of(step))

    def before_plan(self, step: PlanStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        self._checker.stage_of(step)
        plan = step.executor.plan
        for number in range(len(plan.calls)):
            for row in plan.facts.results(number):
                location = self._checker._source.locate(row.graph, row.name)
                if location is not None and location[0] == "main":
                    self.names[location[1]] = None

    def after_step(self, step: Step, results: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        for name in results:
            key = self._checker._key(name, around)
            if key is None or key[0] != MAIN_GRAPH:
                continue
            self.names[key[1]] = None
            call = writer_of(step.executor.plan, name) if isinstance(step, PlanStep) else None
            if isinstance(step, PlanStep) and call is not None:
                self._writers[key[1]] = step, call


def _array(held: RuntimeValue) -> np.ndarray | None:
    """Return a value as an array without moving it; None for a sequence and the like."""
    on_host = held.tensor is None or (held.on_host and not held.is_wide)
    value = held.host if on_host or held.tensor is None else held.tensor.numpy()
    return value if isinstance(value, np.ndarray) else None


def _maker(step: Step, held: RuntimeValue) -> str:
    """Return the producer of a value as text for the column of calls."""
    if isinstance(step, CpuStep):
        return "cpu"
    if isinstance(step, LoopStep):
        return "loop"
    return "host" if held.maker == "compiler" else ""


def _unknown(row: ComparedTensor, text: str, origins: tuple[str, ...] = ()) -> Diagnosis:
    return Diagnosis(
        "unknown",
        row.tensor,
        row.call,
        row.kernel,
        row.node,
        origins,
        findings=[text],
        worst=row.difference,
        instance=row.instance,
        stage=row.stage,
    )
