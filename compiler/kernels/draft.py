"""A family's description of its kernel (:class:`Draft`), and the kernel with its tensors bound
(:class:`BuiltKernel`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ...runtime.plan.record import record
from ..codegen.spec import Grid, Hook, KernelSpec
from ..ir.graph import Value
from ..symbolic.polynomial import Dim
from ..tuning.config_choice import Decision
from .operand_names import in_place_spec, reads_own_element_only


@record
class Draft:
    """A kernel whose tensors have yet to be bound: a template with its configuration, hooks and sizes."""

    template: str
    config: Any  #: a frozen dataclass of tile sizes
    hooks: Sequence[Hook]
    dims: Mapping[str, Dim]
    threads: int  #: of a workgroup
    grid: Grid
    rounds: int  #: upper bound of the trips that all loops of the template make in one thread
    calls: int | None = None  #: upper bound of the calls of each hook in one thread; None: one for each trip
    workgroup_bytes: int = 0
    flops: Dim = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)  #: further parameters of the template
    features: tuple[str, ...] = ()  #: device features that the template needs
    iterations: Dim | None = None  #: dispatches one after another, which ``iteration.number`` tells apart


@record
class BuiltKernel:
    """A spec, the values behind its operands (in the order of ``spec.operands``), and how it was configured."""

    spec: KernelSpec
    operands: tuple[Value, ...]
    flops: Dim
    decisions: tuple[Decision, ...] = ()

    def reads_own_element_only(self, operand: Value) -> bool:
        """Return whether each thread reads of ``operand`` only what it overwrites if the result takes its memory."""
        return reads_own_element_only(self.spec, self._name(operand))

    def in_place(self, operand: Value) -> BuiltKernel:
        """Return the same kernel with its result in the memory of ``operand``."""
        result = self.spec.operands[-1].name
        spec = in_place_spec(self.spec, self._name(operand), result)
        return replace(self, spec=spec, operands=tuple(value for value in self.operands if value is not operand))

    def _name(self, operand: Value) -> str:
        return self.spec.operands[self.operands.index(operand)].name
