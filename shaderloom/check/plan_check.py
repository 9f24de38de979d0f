"""Check of one plan in a run of a model.

A tensor is comparable if a kernel writes it to memory and it is a tensor of the ONNX model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..execution.steps import PlanStep
from ..plans.instrument import Observation, observe
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.plan.facts import TensorFacts, TensorKind
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record
from .comparison import Difference, NotFinite, not_finite
from .expectations import Expectations
from .graph_instance import MAIN_GRAPH, GraphInstance

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering


@record(slots=False)
class ComparedTensor:
    """One compared tensor.  ``call`` is None where no kernel of the run computes it."""

    tensor: str
    node: str  #: the ONNX node that computes it, as text
    call: int | None
    kernel: str
    difference: Difference
    instance: GraphInstance = MAIN_GRAPH
    stage: int | None = None  #: of a model in stages: which of its plans, from 1
    maker: str = ""  #: its producer, where that is not a kernel

    @property
    def key(self) -> tuple[GraphInstance, str]:
        return self.instance, self.tensor


@record(slots=False)
class NonFiniteResult:
    """A kernel that turns finite operands into non-finite results; ``expected``: the reference has them too."""

    call: int
    kernel: str
    tensor: str
    dtype: str
    counts: NotFinite
    origins: tuple[str, ...]
    expected: bool | None  #: None if the reference does not know the tensor
    instance: GraphInstance = MAIN_GRAPH
    stage: int | None = None

    @property
    def what(self) -> str:
        if self.dtype == "float16" and self.counts.infinite:
            return f"{self.counts} elements: beyond 65504, the largest float16 number"
        return f"{self.counts} elements"


class PlanCheck:
    """The plan of a step with the inputs of one run.

    ``iterations`` are those of the enclosing loops, ``stage`` is its number in a program of several.
    """

    def __init__(
        self,
        step: PlanStep,
        pool: WeightPool,
        expected: Expectations,
        feeds: Mapping[str, Any],
        *,
        iterations: tuple[int, ...] = (),
        stage: int | None = None,
    ) -> None:
        self.device, self.plan = step.device, step.executor.plan
        self.pool, self.expected, self.feeds = pool, expected, feeds
        self.iterations, self.stage = iterations, stage
        self._recompile = step.recompile
        self._lowerings: dict[frozenset[str], Lowering] = {}

    def compile(self, *disabled: str) -> Lowering:
        """Compile for the inputs, once for each set of passes that are ``disabled`` besides those of the options."""
        key = frozenset(disabled)
        if key not in self._lowerings:
            self._lowerings[key] = self._recompile(disabled)
        return self._lowerings[key]

    # -- tensors of the model ------------------------------------------------------------------------------------------

    def onnx_tensor(self, tensor: TensorFacts) -> tuple[GraphInstance, str] | None:
        """Return the graph and the name of the ONNX tensor that a plan's tensor corresponds to, None if no node
        computes it.
        """
        source = self.expected.source
        location = source.locate(tensor.graph, tensor.name)
        iterations = (*self.iterations, *tensor.iterations)
        instance = None if location is None else source.instance_of(location[0], iterations)
        return None if instance is None or location is None else (instance, location[1])

    def comparable(self, plan: Plan) -> dict[tuple[GraphInstance, str], int]:
        """Return ONNX tensors, and the call that writes each, in the order of the run."""
        writers: dict[tuple[GraphInstance, str], int] = {}
        for number in range(len(plan.calls)):
            for row in plan.facts.results(number):
                key = self.onnx_tensor(row)
                if key is not None:
                    writers.setdefault(key, number)
        return writers

    def row(
        self, name: str, array: np.ndarray, call: int | None, instance: GraphInstance = MAIN_GRAPH
    ) -> ComparedTensor:
        """Compare a tensor with the reference."""
        kernel = "" if call is None else kernel_text(self.plan, call)
        node = self.expected.source.maker(name, instance.graph)
        return ComparedTensor(
            name, node, call, kernel, self.expected.compare(name, array, instance), instance, self.stage
        )

    # -- inside of the plan --------------------------------------------------------------------------------------------

    def inside(self) -> tuple[list[ComparedTensor], dict[int, Observation]]:
        """Run the plan and compare every comparable tensor that its calls write."""
        self.expected.turn_to(self.iterations)
        self.expected.expect_all(self.comparable(self.plan))
        rows, observed, finished = [], {}, set()
        total = len(self.plan.calls)
        for observation in observe(self.device, self.plan, self.pool, self.feeds, range(total)):
            self.expected.progress("comparing tensors", observation.call, total)
            observed[observation.call] = observation
            for tensor, array in observation.results:
                key = self.onnx_tensor(tensor)
                if key is not None and key not in finished and self.expected.knows(key[1], key[0]):
                    finished.add(key)
                    rows.append(self.row(key[1], array, observation.call, key[0]))
        return rows, observed

    def non_finite_results(self, observed: Mapping[int, Observation]) -> list[NonFiniteResult]:
        """Return the calls that turn finite operands into non-finite results."""
        plan = self.plan
        faults: dict[int, NotFinite] = {}
        writers: dict[int, int] = {}  # tensor -> the call that writes it
        non_finite = []
        for number, observation in observed.items():
            call_facts = plan.facts.calls[number]
            operands = call_facts.reads
            writers.update(dict.fromkeys(call_facts.writes, number))
            here = not_finite(observation.array)
            if here is None:
                continue
            faults[number] = here
            if any(writers.get(operand) in faults for operand in operands):
                continue
            if any(not_finite(self.feeds[row.name]) for row in self._inputs(operands)):
                continue
            row, call = observation.tensor, plan.calls[number]
            key = self.onnx_tensor(row)
            expected = None if key is None else self.expected.value(key[1], key[0])
            non_finite.append(
                NonFiniteResult(
                    number,
                    kernel_text(plan, number),
                    row.name if key is None else key[1],
                    row.dtype,
                    here,
                    call.origins,
                    None if expected is None else not_finite(expected) is not None,
                    MAIN_GRAPH if key is None else key[0],
                    self.stage,
                )
            )
        return non_finite

    def _inputs(self, operands: Iterable[int]) -> Iterable[TensorFacts]:
        tensors = (self.plan.facts.tensors[operand] for operand in operands)
        return [tensor for tensor in tensors if tensor.kind is TensorKind.INPUT]


def kernel_text(plan: Plan, call: int) -> str:
    """Return a call's kernel for people: id and template."""
    key = plan.calls[call].kernel
    template = next(kernel.template for kernel in plan.kernels if kernel.key == key)
    return f"{key[:12]} ({template})"
