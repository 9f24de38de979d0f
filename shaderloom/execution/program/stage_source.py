"""What the plan of a stage was made from: enough to make it again, with its graph, or with passes disabled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...compiler.compilation import Compilation
from ...compiler.driver import compile_unit
from ...compiler.passes.lowering import CompilationUnit, Lowering


@dataclass(frozen=True)
class StageSource:
    """Holds names, shapes and the elements that were compiled in, and nothing of the device."""

    unit: CompilationUnit  #: gives a new graph each time
    compilation: Compilation

    def compile(self, disabled: Collection[str]) -> Lowering:
        """Compile the stage with further passes disabled; without any the plan is the one that runs."""
        return compile_unit(self.unit, self.compilation.without(disabled))
