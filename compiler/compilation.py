"""The context of a compilation: the settings and measurements that its passes read, and the observer that they report
to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import TYPE_CHECKING

from ..runtime.plan.plan import Kernel
from ..runtime.plan.record import record
from .options import DEFAULT_LIMITS, CompileOptions, Limits
from .remarks import Remark
from .target import WEB_TARGET, Target
from .tuning.config_choice import Choices

if TYPE_CHECKING:
    from .ir.graph import Graph


@record
class PassReport:
    """The report of one pass: its rewrites and its time."""

    name: str
    changes: int
    nodes: int  #: nodes of the graph after the pass
    milliseconds: float


#: Called after each pass with its report and the graph that it left
Observer = Callable[[PassReport, "Graph"], None]
#: Called with what is being done, how much of it is done, and how much there is (0: not known)
Progress = Callable[[str, int, int], None]
#: Called with each kernel as soon as its text is written
KernelSink = Callable[[Kernel], None]
#: Stores the bytes of a weight and returns the key by which plans name it
KeepWeight = Callable[[memoryview], str]


def _ignore(what: str, done: int, total: int) -> None:
    """Discard progress."""


@record(slots=False)
class Compilation:
    """Settings and services of one compilation, read by every pass.

    Equal units, targets, options, limits and measurements give equal plans in any process.
    """

    target: Target = WEB_TARGET
    options: CompileOptions = field(default_factory=CompileOptions)
    limits: Limits = DEFAULT_LIMITS
    choices: Choices = field(default_factory=Choices)  #: measured configurations; without any the cost models decide
    observer: Observer | None = None
    remarks: list[Remark] | None = None  #: collects the rewrites that matched
    progress: Progress = _ignore
    on_kernel: KernelSink | None = None  #: lets a driver start before the plan is whole
    #: stores weights that are evaluated on the host; None: the plan has transforms that make them on the device
    keep_weight: KeepWeight | None = None

    def is_like(self, other: Compilation) -> bool:
        """Return whether equal units give equal plans in both contexts."""
        own = (self.target, self.options, self.limits, self.keep_weight)
        return own == (other.target, other.options, other.limits, other.keep_weight) and self.choices.measure_like(
            other.choices
        )

    def without(self, passes: Iterable[str]) -> Compilation:
        """Return the context of another compilation, with ``passes`` disabled besides those that are."""
        return replace(self, options=self.options.without(passes), choices=self.choices.without_decisions())
