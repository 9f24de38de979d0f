"""Steps of a program other than plans: a segment on the cpu provider, and a few actions on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...compiler.staging.program_graph import PendingNode
from ...cpu.segment import CpuSegment
from ...runtime.execution.attachment import Target
from ...runtime.plan.errors import InternalError, ShaderloomError
from ...runtime.plan.facts import ValueFacts
from ...runtime.plan.record import record
from ..steps import Env, RunRecord, read
from ..values import RuntimeValue
from .host_evaluation import HostEvaluator

#: Operator and name of the node that failed, in an error of onnxruntime
_RUNNING = re.compile(r"while running (\w+) node\. Name:'([^']*)'")


class CpuStep:
    """One segment on the host, of nodes with the reasons why they are there.  ``refusal`` is the first."""

    def __init__(
        self, segment: CpuSegment, inputs: tuple[str, ...], refusals: Mapping[PendingNode, ShaderloomError]
    ) -> None:
        self.segment = segment
        self.inputs = inputs
        self.refusals = refusals

    @property
    def refusal(self) -> ShaderloomError:
        return next(iter(self.refusals.values()))

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        values = {name: read(env, name, record) for name in self.inputs if name in env}
        try:
            results = self.segment.run(values)
        except ShaderloomError as error:
            refusal = self._refusal_at_fault(error)
            raise type(error)(
                f"{error.reason}; wgpu: {refusal.reason}", origin=refusal.origin, hint=error.hint
            ) from error
        far = any(any(env[name].facts.overflow) for name in values)
        facts = ValueFacts(overflow=(far, far))
        env.update((name, RuntimeValue(value, "cpu", facts)) for name, value in results.items())
        record.steps.append("cpu")

    def _refusal_at_fault(self, error: ShaderloomError) -> ShaderloomError:
        """Return why the node is here that onnxruntime says has failed; the first one unless it is a single one."""
        running = _RUNNING.search(error.reason)
        failed = [
            refusal
            for item, refusal in self.refusals.items()
            if running and not item.node.added and (item.origin.op, item.origin.name) == running.groups()
        ]
        return failed[0] if len(failed) == 1 else self.refusal

    def close(self) -> None:
        pass


@record
class ReadElements:
    """Bring a value to the host: its elements are compiled into later stages."""

    name: str

    def run(self, env: Env, record: RunRecord, evaluator: HostEvaluator) -> None:
        read(env, self.name, record)


@record
class Alias:
    """Give a value another name, such as an output of a branch.  Nothing is copied."""

    source: str
    target: str

    def run(self, env: Env, record: RunRecord, evaluator: HostEvaluator) -> None:
        env[self.target] = env[self.source]


@record
class Fold:
    """Compute conditions and counts from small integers that are on the host.

    Raises :class:`InternalError` if the nodes' folding rules fail for values of the kinds that they were chosen for.
    """

    nodes: tuple[PendingNode, ...]
    outputs: tuple[str, ...]

    def run(self, env: Env, record: RunRecord, evaluator: HostEvaluator) -> None:
        values = evaluator.evaluate(self.nodes, self.outputs, env)
        if values is None:
            raise InternalError(f"the host cannot compute {', '.join(self.outputs)} for these values")
        env.update((name, RuntimeValue(value, "compiler")) for name, value in values.items())


HostAction = ReadElements | Alias | Fold


class HostStep:
    """Moves values without the device or another provider.  Without actions it only changes the state."""

    def __init__(self, actions: Sequence[HostAction], evaluator: HostEvaluator) -> None:
        self.actions = tuple(actions)
        self._evaluator = evaluator

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        for action in self.actions:
            action.run(env, record, self._evaluator)

    def close(self) -> None:
        pass
