"""Trace the first differing tensor to its cause.

Overflow of float16 explains itself.  Otherwise three questions, in order:

1. *Does a kernel compute something other than its own nodes?*  Each kernel between the last correct tensors and the
   wrong one is recomputed in numpy from its actual operands.  If one differs by more than rounding can explain, its
   code is at fault; a run without fusion shows whether a node's kernel alone is wrong too.
2. *Does a pass change the meaning of the graph?*  If all kernels do what their nodes specify, the passes are disabled
   one by one.
3. *Is an operator lowered wrongly?*  With all optional passes off, the first ONNX tensor that differs names it.  If
   onnx's reference evaluator agrees with that tensor, the fault is the reference's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..compiler.frontend.topology import names_read
from ..compiler.ir.dataflow import reachable
from ..plans.instrument import Observation, observe
from ..runtime.plan.dtypes import FLOAT16_LARGEST
from .comparison import Difference, compare, not_finite
from .graph_instance import MAIN_GRAPH, GraphInstance
from .local_check import LocalCheck
from .plan_check import ComparedTensor, PlanCheck, kernel_text
from .second_opinion import second_opinion

#: Units in the last place by which sums of a few hundred terms differ when added in another order
NOISE_FACTOR = 128.0


@dataclass
class Diagnosis:
    """The cause of a difference.  ``kind``: ``kernel``, ``pass``, ``operator``, ``overflow``, ``rounding``,
    ``reference``, ``cpu``, or ``unknown``.

    ``node`` is the ONNX node to look at first; ``instance`` and ``stage`` locate it in a model of several stages.
    """

    kind: str
    tensor: str
    call: int | None
    kernel: str
    node: str
    origins: tuple[str, ...] = ()  #: all ONNX nodes of the kernel
    pass_name: str = ""
    findings: list[str] = field(default_factory=list)  #: findings, in order
    worst: Difference | None = None
    instance: GraphInstance = MAIN_GRAPH
    stage: int | None = None


class Diagnostician:
    """Searches for the cause of one difference in a plan.

    ``good`` are tensors that are correct, and ``observed`` is what the calls of the plan wrote.
    """

    def __init__(
        self, check: PlanCheck, good: Collection[tuple[GraphInstance, str]], observed: Mapping[int, Observation]
    ) -> None:
        self.check = check
        self.expected = check.expected
        self.source = check.expected.source
        self.plan = check.plan
        self.good = good
        self.observed = observed
        self._iterations = check.iterations  #: iterations of the enclosing loops

    def run(self, first: ComparedTensor) -> Diagnosis:
        """Return the cause of ``first``, the first differing tensor of the run, which a call has written."""
        assert first.call is not None, "a kernel has made it"
        self._iterations = max(first.instance.iterations, self.check.iterations, key=len)
        result = self._look(first, first.call)
        result.instance, result.stage = first.instance, first.stage
        return result

    def _look(self, first: ComparedTensor, call: int) -> Diagnosis:
        suspects = self._suspects(call)
        overflow = self._overflow(first) or self._overflow_before(first, call)
        if overflow is not None:
            return overflow
        local = LocalCheck(self.check.compile(), self.check.feeds, self.observed)
        for number in suspects:
            difference = local.compare(number)
            if difference is None or difference.is_close:
                continue
            noise = local.noise(number)
            if difference.error <= NOISE_FACTOR * noise:
                return self._rounding(number, first, difference, noise)
            return self._kernel_fault(number, first, difference)
        noise = local.noise(call) if call in self.observed else 0.0
        if first.difference.error <= NOISE_FACTOR * noise:
            return self._rounding(call, first, first.difference, noise)
        return self._graph_fault(first, len(suspects))

    def _suspects(self, call: int) -> list[int]:
        """Return the backward slice of calls from a wrong tensor to the last correct ones, in execution order."""
        facts = self.plan.facts
        writers = facts.writers()

        def suspects(number: int) -> list[int]:
            reads = (operand for operand in facts.calls[number].reads if operand in writers)
            return [
                writers[operand] for operand in reads if self.check.onnx_tensor(facts.tensors[operand]) not in self.good
            ]

        return sorted(reachable([call], suspects))

    # -- the range of float16 ---------------------------------------------------------------------------------------

    def _overflow(self, first: ComparedTensor) -> Diagnosis | None:
        """Report infinite float16 values where the reference has finite ones beyond the range of float16, else None."""
        assert first.call is not None
        observation = self.observed.get(first.call)
        if observation is None or observation.tensor.dtype != "float16" or not_finite(observation.array) is None:
            return None
        tensors = self._tensors(self._between(first))
        self.expected.expect_all(tensors)
        for instance, name in tensors:
            largest = self.expected.largest(name, instance)
            if largest is None or largest <= FLOAT16_LARGEST:
                continue
            call = self.plan.calls[first.call]
            result = Diagnosis(
                "overflow",
                first.tensor,
                first.call,
                first.kernel,
                self.source.maker(name, instance.graph),
                call.origins,
                worst=first.difference,
            )
            result.findings.append(
                f"tensor '{name}' reaches {largest:.3g}, float16 ends at {FLOAT16_LARGEST:.0f}: {self._remedy()}"
            )
            return result
        return None

    def _overflow_before(self, first: ComparedTensor, call: int) -> Diagnosis | None:
        """Report a float16 tensor that overflows before a tensor that is not finite, which the reference's is.

        It compares as right: infinite is what numbers beyond the range are in its type.
        """
        observation = self.observed.get(call)
        expected = self.expected.value(first.tensor, first.instance)
        if (
            observation is None
            or not_finite(observation.array) is None
            or expected is None
            or not_finite(expected) is not None
        ):
            return None
        facts, writers = self.plan.facts, self.plan.facts.writers()

        def before(number: int) -> list[int]:
            return [writers[operand] for operand in facts.calls[number].reads if operand in writers]

        for number in sorted(reachable(before(call), before)):
            here = self.observed.get(number)
            if here is None or here.tensor.dtype != "float16" or not_finite(here.array) is None:
                continue
            result = Diagnosis(
                "overflow",
                first.tensor,
                number,
                kernel_text(self.plan, number),
                here.tensor.node,
                self.plan.calls[number].origins,
                worst=first.difference,
            )
            name = here.tensor.name or "of the kernel"
            result.findings.append(
                f"tensor '{name}' exceeds float16, which ends at {FLOAT16_LARGEST:.0f}: {self._remedy()}"
            )
            return result
        return None

    def _remedy(self) -> str:
        """Return the way to store a tensor that overflows as float32."""
        if self.plan.notes.precision is not None:
            return "calibrate with inputs like these, or scale it"
        return "widen = 'auto' stores it as float32, unless it is an output of the model"

    def _rounding(self, number: int, first: ComparedTensor, difference: Difference, noise: float) -> Diagnosis:
        """Report a kernel that amplifies rounding, as any other order of its additions would do too."""
        plan = self.plan
        result = Diagnosis(
            "rounding",
            first.tensor,
            number,
            kernel_text(plan, number),
            first.node,
            plan.calls[number].origins,
            worst=first.difference,
        )
        result.findings.append(
            f"the kernel's result moves by {noise:.2g} when its operands move by their last bit, and differs by "
            f"{difference.error:.2g}: on these inputs the model magnifies rounding; check it on realistic ones"
        )
        return result

    # -- a kernel ---------------------------------------------------------------------------------------------------

    def _kernel_fault(self, number: int, first: ComparedTensor, difference: Difference) -> Diagnosis:
        plan = self.plan
        anchor = plan.notes.calls[number].anchor
        result = Diagnosis(
            "kernel",
            first.tensor,
            number,
            kernel_text(plan, number),
            (anchor or plan.calls[number].origins or (first.node,))[0],
            plan.calls[number].origins,
            worst=first.difference if number == first.call else difference,
        )
        result.findings.append(
            f"from the operands that it had, the kernel's nodes give something else (error {difference.error:.2g})"
        )
        wrong = self._first_wrong(self._tensors(self._nodes_of(plan.calls[number].origins)), "fuse")
        if wrong is None:
            result.findings.append("with fusion off every ONNX tensor of the group is right: look at the fused kernel")
        else:
            (instance, tensor), kernel, _ = wrong
            result.node = self.source.maker(tensor, instance.graph)
            result.findings.append(f"with fusion off it is tensor '{tensor}' that differs first, in kernel {kernel}")
        return result

    def _nodes_of(self, origins: Sequence[str]) -> list[tuple[str, int]]:
        """Resolve node texts to (graph path, node index) pairs, in graph order."""
        wanted = set(origins)
        return [
            (path, index)
            for path, graph in self.source.graphs.items()
            for index in range(len(graph.proto.node))
            if self.source.node_text(index, path) in wanted
        ]

    def _tensors(self, nodes: Iterable[tuple[str, int]]) -> list[tuple[GraphInstance, str]]:
        """Return the output tensors of nodes, at the loop iterations under diagnosis."""
        tensors = []
        for path, index in nodes:
            instance = self.source.instance_of(path, self._iterations)
            if instance is not None:
                tensors += [(instance, name) for name in self.source.graphs[path].proto.node[index].output if name]
        return tensors

    def _first_wrong(
        self, tensors: Sequence[tuple[GraphInstance, str]], *disabled: str
    ) -> tuple[tuple[GraphInstance, str], str, np.ndarray] | None:
        """Return the first of ``tensors``, in execution order, that differs with passes ``disabled``, its kernel and
        its elements; None if all agree.
        """
        plan = self.check.compile(*disabled).plan
        among = set(tensors)
        wanted = {key: number for key, number in self.check.comparable(plan).items() if key in among}
        self.expected.expect_all(wanted)
        calls = list(wanted.values())
        for observation in observe(self.check.device, plan, self.check.pool, self.check.feeds, calls):
            for tensor, array in observation.results:
                key = self.check.onnx_tensor(tensor)
                if key is None or key not in wanted or not self.expected.knows(key[1], key[0]):
                    continue
                if not self.expected.compare(key[1], array, key[0]).is_close:
                    return key, kernel_text(plan, observation.call), array
        return None

    def _is_right(self, key: tuple[GraphInstance, str], *disabled: str) -> bool:
        """Return whether a tensor is comparable with passes ``disabled``, and agrees."""
        compared = self.check.comparable(self.check.compile(*disabled).plan)
        return key in compared and self._first_wrong([key], *disabled) is None

    # -- a pass, or an operator ---------------------------------------------------------------------------------------

    def _graph_fault(self, first: ComparedTensor, checked: int) -> Diagnosis:
        from ..compiler.passes.pipeline import PIPELINE

        assert first.call is not None
        call = self.plan.calls[first.call]
        result = Diagnosis(
            "unknown", first.tensor, first.call, first.kernel, first.node, call.origins, worst=first.difference
        )
        plural = "kernels compute" if checked > 1 else "kernel computes"
        result.findings.append(f"{checked} {plural} what the nodes say: the graph is at fault, or the numbers drift")
        between = self._between(first)
        here = self._origins()
        texts = [self.source.node_text(index, path) for path, index in between]
        lost = [text for text in texts if text not in here]
        # fusion alone first: without it most tensors are comparable, so it stays off while others are tried
        for name in ("fuse", *(other for other in PIPELINE.optional if other != "fuse")):
            if self._is_right(first.key, *dict.fromkeys(("fuse", name))):
                result.kind, result.pass_name = "pass", name
                result.findings.append(f"with the pass '{name}' off the tensor is right")
                break
        else:
            self._blame_operator(result, first, between)
        if result.kind == "pass" and lost:
            result.node = lost[0]
            result.findings.append(f"no kernel computes {', '.join(lost)}")
        return result

    def _blame_operator(self, result: Diagnosis, first: ComparedTensor, between: Sequence[tuple[str, int]]) -> None:
        from ..compiler.passes.pipeline import PIPELINE

        disabled = PIPELINE.optional
        wrong = self._first_wrong(self._tensors(between), *disabled)
        if wrong is None and not self._is_right(first.key, *disabled):
            result.findings.append("with all optional passes off the tensor cannot be compared: the cause stays open")
            return
        if wrong is None:
            result.findings.append("with all optional passes off the tensor is right: several passes together")
            return
        (instance, tensor), _, array = wrong
        result.node = self.source.maker(tensor, instance.graph)
        finding = f"with all optional passes off tensor '{tensor}' differs first"
        other = second_opinion(self.expected, instance, tensor)
        if other is not None and compare(array, other).is_close:
            result.kind = "reference"
            result.findings.append(
                f"{finding}: from the operands of {self.expected.reference.name}, onnx's reference evaluator gives "
                "what Shaderloom does"
            )
        else:
            result.kind = "operator"
            result.findings.append(f"{finding}: look at the operator's definition")

    def _between(self, first: ComparedTensor) -> list[tuple[str, int]]:
        """Return the ONNX nodes between the last correct tensors and a wrong one, outer graphs first, in order."""
        nodes: set[tuple[str, int]] = set()
        pending = [(first.instance.graph, first.tensor)]
        while pending:
            path, name = pending.pop()
            home = self.source.defining_graph(path, name)
            index = None if home is None else home.producers.get(name)
            if home is None or index is None or (home.path, index) in nodes:
                continue
            instance = self.source.instance_of(home.path, first.instance.iterations)
            if (instance, name) in self.good and name != first.tensor:
                continue
            nodes.add((home.path, index))
            pending.extend((home.path, read) for read in names_read(home.proto.node[index]))
        order = list(self.source.graphs)
        return sorted(nodes, key=lambda node: (order.index(node[0]), node[1]))

    def _origins(self) -> set[str]:
        groups = self.check.compile().fusion.groups
        return {str(origin) for group in groups for node in group.nodes for origin in node.origins}
