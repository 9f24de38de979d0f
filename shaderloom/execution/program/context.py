"""State shared by the parts of one program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from onnx import numpy_helper

from ...compiler.frontend.model import ImportedModel
from ...compiler.ir.constants import InlineSource
from ...compiler.options import DEFAULT_LIMITS
from ...compiler.staging.program_graph import PendingNode, ProgramScope, branch_nodes
from ...model.model import Model
from ...plans.placement import Placed
from ...runtime.execution.attachment import Target
from ...runtime.execution.weight_pool import WeightPool
from ...runtime.plan.dtypes import to_border
from ...runtime.plan.errors import InputError, Origin
from ..resources import DeviceResources
from ..steps import Env, RunRecord
from ..values import RuntimeValue
from .state import Block


class RunBlock(Protocol):
    """Runs a block of a program on the values of ``env`` and returns its outputs by name."""

    def __call__(
        self, block: Block, env: Env, targets: Mapping[str, Target], record: RunRecord
    ) -> dict[str, RuntimeValue]: ...


@dataclass
class ProgramModel:
    """The model of a program, and the names in scope."""

    source: Model
    #: (graph, index) of a node -> node, domain, provider, reason
    placed: dict[tuple[str, int], tuple[Origin, str, str, str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.half = self.source.options.half
        self.imported: ImportedModel = self.source.imported
        self.scope = ProgramScope(self.imported.graph)
        limits = self.source.limits
        self.limits = replace(
            limits, loop_iterations=min(limits.loop_iterations, DEFAULT_LIMITS.loop_iterations), every_size=True
        )
        self._branches: dict[tuple[PendingNode, bool], list[PendingNode]] = {}

    def is_constant(self, name: str) -> bool:
        """Return whether a value is a constant of the model, of whatever type."""
        return name in self.scope.constants or name in self.scope.foreign

    def constant(self, name: str) -> RuntimeValue:
        """Return a constant of the model as a value.  Raises :class:`InputError` for a sparse one."""
        source = self.scope.constants.get(name)
        if source is not None:
            return RuntimeValue(to_border(source.read(), source.dtype), "compiler")
        foreign = self.scope.foreign[name]
        assert self.imported.restore is not None, "a model that was read has its payloads"
        if hasattr(foreign, "values"):
            raise InputError("a sparse initializer cannot be an output", tensor=name)
        return RuntimeValue(numpy_helper.to_array(self.imported.restore(foreign)), "compiler")

    def add_constant(self, name: str, array: np.ndarray) -> None:
        """Add a constant that is not stored in any file."""
        self.scope.constants[name] = InlineSource(array)

    def open_branch(self, item: PendingNode, taken: bool) -> list[PendingNode]:
        """Return the nodes of a branch, and one for each output of the If; the same objects each time."""
        key = (item, taken)
        if key not in self._branches:
            side = "then_branch" if taken else "else_branch"
            self._branches[key] = branch_nodes(item, taken)
            self.place(item, "folded", f"the condition is known when its stage is compiled: {side} replaces it")
        return self._branches[key]

    @contextmanager
    def placing(self) -> Iterator[Placed]:
        """Collect where nodes are placed meanwhile; that counts as any other placement."""
        before, self.placed = self.placed, {}
        try:
            yield self.placed
        finally:
            self.placed = {**before, **self.placed}

    def place(self, item: PendingNode, provider: str, reason: str) -> None:
        """Record where a node of the file runs, and why."""
        if not (item.synthetic or item.node.added):
            self.placed[item.scope.prefix, item.origin.index] = (item.origin, item.node.domain, provider, reason)


@dataclass
class ProgramContext(ProgramModel):
    """A program on a device.

    ``run_block`` runs the bodies of loops.  With a ``pool`` of weights the program runs in full precision whatever the
    model's precision is.
    """

    resources: DeviceResources
    run_block: RunBlock
    pool: WeightPool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.half = self.half and self.pool is None
