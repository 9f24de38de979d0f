"""Test whether the kernel of a group is unchanged when its result is stored in another type."""

from __future__ import annotations

from collections.abc import Hashable

from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import ShaderloomError
from ..compilation import Compilation
from ..fusion import Fusion
from ..ir.graph import Graph
from ..kernels.context import GroupContext
from ..kernels.family import family_named
from ..kernels.groups import Group
from ..kernels.signature import signature
from ..symbolic import polynomial as ix


class StorableTypes:
    """Asks the families of a graph's groups, once for equal groups."""

    def __init__(self, graph: Graph, fusion: Fusion, compilation: Compilation) -> None:
        self.fusion, self.compilation = fusion, compilation
        self.symbols = sorted({name for value in graph.inputs for dim in value.shape for name in ix.variables(dim)})
        self._answers: dict[Hashable, bool] = {}

    def can_store(self, group: Group, dtype: DType) -> bool:
        """Return whether the group, whose result is float32, has the same kernel with a result of ``dtype``."""
        own = signature(group, self.fusion.materialised)
        key = None if own is None else (own.key, dtype.name)
        if key is None or key not in self._answers:
            answer = self._ask(group, dtype)
            if key is None:
                return answer
            self._answers[key] = answer
        return self._answers[key]

    def _ask(self, group: Group, dtype: DType) -> bool:
        context = GroupContext(group, self.fusion.materialised, self.compilation, symbols=self.symbols)
        try:
            return family_named(group.family).can_store(context, dtype)
        except ShaderloomError:  # a limit, which the planner reports
            return False
