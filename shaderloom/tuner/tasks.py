"""The tunable kernels of a model: one task for each problem with several candidates, the most expensive first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..compiler.compilation import Compilation
from ..compiler.kernels.context import GroupContext
from ..compiler.kernels.draft import BuiltKernel
from ..compiler.kernels.family import build
from ..compiler.kernels.groups import Group
from ..compiler.passes.lowering import Lowering
from ..compiler.planning.sizes import stored_bytes
from ..compiler.symbolic.dimensions import dimension_variable, serialise
from ..compiler.tuning import gemm_tiles
from ..compiler.tuning.config_choice import Choices, Decision, TuningRecord, encode
from ..runtime.plan.dimension import evaluate
from ..runtime.plan.facts import TUNED
from ..runtime.plan.plan import Symbol

#: Operations that take roughly as long as moving one byte, on any device
_OPERATIONS_A_BYTE = 8


@dataclass
class Task:
    """A problem: one of its groups, its current configuration, and the number of its calls in a run."""

    decision: Decision
    group: Group
    calls: int
    work: float  #: estimate of all calls together, in bytes

    @property
    def key(self) -> str:
        return self.decision.key


class KernelBuilder:
    """Build kernels of one lowered graph with chosen configurations."""

    def __init__(self, lowered: Lowering, compilation: Compilation, symbols: Mapping[Symbol, int]) -> None:
        self.lowered = lowered
        self.compilation = compilation
        self.symbols = symbols  #: declared dynamic dimensions with their sizes
        self.sizes = {symbol.name: size for symbol, size in symbols.items()}

    def build(self, group: Group, choices: Choices) -> BuiltKernel:
        """Build the kernel of a group; raise the compiler's errors."""
        names = [dimension_variable(symbol.name, symbol.low, symbol.step) for symbol in self.symbols]
        materialised = self.lowered.fusion.materialised
        compilation = replace(self.compilation, choices=choices)
        return build(GroupContext(group, materialised, compilation, symbols=names))

    def with_choice(self, task: Task, candidate: Any) -> BuiltKernel:
        """Build the kernel of a task with one of its candidates."""
        record = TuningRecord(encode(candidate), TUNED, 0.0, 0.0)
        return self.build(task.group, Choices({task.key: record}))

    def tasks(self, records: Mapping[str, TuningRecord]) -> list[Task]:
        """Return all problems with more than one candidate."""
        tasks: dict[str, Task] = {}
        for group in self.lowered.fusion.groups:
            if group.constant:
                continue
            choices = Choices(records)
            built = self.build(group, choices)
            for decision in built.decisions:
                if len(decision.candidates) < 2:
                    continue
                work = self._work(built)
                if decision.key in tasks:
                    tasks[decision.key].calls += 1
                    tasks[decision.key].work += work
                else:
                    tasks[decision.key] = Task(decision, group, 1, work)
        return sorted(tasks.values(), key=lambda task: (-task.work, task.key))

    def _work(self, built: BuiltKernel) -> float:
        moved = sum(evaluate(serialise(stored_bytes(value)), self.sizes) for value in built.operands)
        return moved + evaluate(serialise(built.flops), self.sizes) / _OPERATIONS_A_BYTE


def shortlist(candidates: Sequence[Any], count: int) -> list[Any]:
    """Select ``count`` candidates to measure, in the cost model's order, without near duplicates of earlier ones."""
    chosen: list[Any] = []
    seen: set[object] = set()
    for candidate in candidates:
        # the arrangement of register tile threads matters less than the number of results of each
        alike = isinstance(candidate, gemm_tiles.RegisterTile)
        kind = (candidate.rows, candidate.columns) if alike else repr(candidate)
        if kind not in seen:
            seen.add(kind)
            chosen.append(candidate)
        if len(chosen) == count:
            break
    return chosen
