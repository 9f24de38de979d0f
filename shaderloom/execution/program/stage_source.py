"""What the plan of a stage was made from: enough to make it again, with its graph, or with other options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...compiler.driver import CompileOptions, Lowered, lower, make_plan
from ...compiler.precision.float16_storage import Borders
from ...compiler.rewriting.builder import Limits
from ...compiler.staging.partial_compile import Advance
from ...compiler.tuning.config_choice import Choices
from ...runtime.plan.device_profile import DeviceProfile
from ...runtime.plan.plan import Plan, Symbol


@dataclass(frozen=True)
class StageSource:
    """Holds names, shapes and the elements that were compiled in, and nothing of the device."""

    again: Callable[[], Advance]  #: how far the stage went, each time as a new graph
    outputs: tuple[str, ...]
    profile: DeviceProfile
    options: Mapping[str, Any]
    limits: Limits
    borders: Borders | None
    symbols: tuple[Symbol, ...] = ()

    def compile(self, changes: Mapping[str, Any], choices: Choices) -> tuple[Lowered, Plan]:
        """The stage with some options changed; without changes it is the plan that runs."""
        found = self.again()
        graph = found.finish(list(self.outputs))
        options = CompileOptions.of({**self.options, **changes})
        lowered = lower(graph, self.profile, options, limits=self.limits, choices=choices, borders=self.borders)
        return lowered, make_plan([item.node for item in found.done], self.symbols, self.profile, options, lowered)
