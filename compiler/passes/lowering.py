"""The unit of compilation to one plan, and its state between passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...runtime.plan.plan import Plan, Symbol
from ...runtime.plan.record import record
from ..frontend.model import ImportedNode
from ..fusion import Fusion
from ..ir.graph import Graph
from ..options import Limits
from ..planning.plan_builder import Planner
from ..precision.exact_set import InterfaceConstraints
from ..precision.float16_storage import HalfStorage
from ..precision.wide_tensors import WideTensors


@record(slots=False)
class CompilationUnit:
    """The source of one plan: a model with the shapes of its inputs, or a stage of a program."""

    specialise: Callable[[Limits], Graph]  #: returns the graph with every size known; passes change it
    nodes: Sequence[ImportedNode] = ()  #: that the graph is made from
    symbols: tuple[Symbol, ...] = ()  #: declared dynamic dimensions
    interface: InterfaceConstraints | None = None  #: what a stage must know of the other stages


@dataclass(eq=False, repr=False)
class Lowering:
    """The state that passes change: each fills in what those that require it read."""

    unit: CompilationUnit
    graph: Graph = field(init=False)
    fusion: Fusion = field(init=False)
    declares_halves: bool = False  #: the file declares some of its tensors float16
    wide: WideTensors = field(default_factory=WideTensors)  #: such tensors that stay float32, and why
    storage: HalfStorage | None = None  #: which values are stored in half precision, and why others are not
    planner: Planner = field(init=False)
    plan: Plan = field(init=False)
