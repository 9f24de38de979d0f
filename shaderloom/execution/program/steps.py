"""Steps of a program other than plans: a segment on the cpu provider, and a few actions on the host."""

from __future__ import annotations

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


class CpuStep:
    """One segment on the host.  ``refusal`` is the reason."""

    def __init__(self, segment: CpuSegment, inputs: tuple[str, ...], refusal: ShaderloomError) -> None:
        self.segment = segment
        self.inputs = inputs
        self.refusal = refusal

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        values = {name: read(env, name, record) for name in self.inputs if name in env}
        try:
            results = self.segment.run(values)
        except ShaderloomError as error:
            raise type(error)(
                f"{error.reason}; wgpu: {self.refusal.reason}", origin=self.refusal.origin, hint=error.hint
            ) from error
        far = any(any(env[name].facts.overflow) for name in values)
        facts = ValueFacts(overflow=(far, far))
        env.update((name, RuntimeValue(value, "cpu", facts)) for name, value in results.items())
        record.steps.append("cpu")

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
