"""Facts about a plan on which the product acts after compilation.

Calibration, checks, tuning, placement and the stages of a program read them; a run of the plan does not.  What is
only shown to people is in :mod:`.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from .dimension import DimExpr
from .record import record

#: Where the configuration of a kernel may come from: the cost model, measurements that are part of the package, or
#: measurements of this machine
ANALYTIC, SHIPPED, TUNED = "analytic", "shipped", "tuned"


class EvaluationTime(StrEnum):
    """When an ONNX node is computed."""

    RUN = "run"  #: by calls of every run
    WEIGHTS = "weights"  #: once, when weights are made: it depends on constants alone
    FOLDED = "folded"  #: while compiling, or as part of another node


class TensorKind(StrEnum):
    """The role of a tensor in the plan."""

    INPUT = "input"
    WEIGHT = "weight"
    ACTIVATION = "activation"
    OUTPUT = "output"


@record
class StoredLayout:
    """The order of the elements of a tensor in memory.

    ``order`` lists the axes from outermost to innermost.  ``padding`` holds pairs of an axis and the multiple that its
    size is rounded up to.  ``blocks`` holds pairs of an axis and the block size that is split off as an innermost axis.
    """

    order: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    blocks: tuple[tuple[int, int], ...]
    text: str  #: for people


@record
class TensorFacts:
    """A tensor that a call of the run binds."""

    name: str  #: the ONNX tensor whose elements it holds, or ""; a weight may have a constant's name in brackets
    graph: str  #: path of the ONNX graph
    node: str  #: the ONNX node whose result it is, as text; "" for inputs and constants
    dtype: str
    shape: tuple[DimExpr, ...]  #: logical shape
    layout: StoredLayout
    kind: TensorKind
    iterations: tuple[int, ...] = ()  #: of the unrolled loops around the node, the outermost first


@record
class CallFacts:
    """The tensors of one call, as positions in :attr:`PlanFacts.tensors`."""

    operands: tuple[int, ...]  #: in the order of the bindings, the main result last
    also: tuple[int, ...]  #: those of ``operands`` that are further results
    in_place: int | None  #: the tensor that the main result overwrites, read at the result's binding

    @property
    def reads(self) -> list[int]:
        """The tensors that the call reads, the overwritten one included."""
        read = [operand for operand in self.operands[:-1] if operand not in self.also]
        return [*read, *([] if self.in_place is None else [self.in_place])]

    @property
    def writes(self) -> list[int]:
        """The tensors that the call writes, the main result first."""
        return [self.operands[-1], *self.also]


@record
class DecisionFacts:
    """The choice of a configuration for one problem.  Times are nanoseconds, None where nothing was measured."""

    problem: str
    source: str  #: :data:`ANALYTIC`, :data:`SHIPPED` or :data:`TUNED`
    candidates: int  #: number of configurations among which it was chosen
    nanoseconds: float | None = None
    analytic_nanoseconds: float | None = None  #: of the configuration that the cost model prefers

    @property
    def is_unmeasured(self) -> bool:
        """Whether the cost model alone chose among several configurations."""
        return self.source == ANALYTIC and self.candidates > 1


@record
class PrecisionFacts:
    """Assumptions of half-precision storage, and precision constraints for the stages that read the outputs."""

    measured: tuple[str, ...] = ()  #: ONNX nodes whose results are float16 because a run showed that they fit
    positions: tuple[str, ...] = ()  #: floating-point outputs that are computed from integers alone
    #: outputs that a constant may carry beyond float16's range: below it, above it
    overflowing: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)


@record
class ValueFacts:
    """What a stage must know of an input that another one has computed, beside its type and shape."""

    is_wide: bool = False  #: the model declares it float16, and it is stored as float32
    is_integral: bool = False  #: a floating-point value that was computed from integers alone
    overflow: tuple[bool, bool] = (False, False)  #: constants may carry it beyond float16's range: below it, above it

    def joined(self, other: ValueFacts) -> ValueFacts:
        """Return what may hold of a value that is either of two."""
        below, above = (one or two for one, two in zip(self.overflow, other.overflow))
        return ValueFacts(self.is_wide or other.is_wide, self.is_integral or other.is_integral, (below, above))

    def __str__(self) -> str:
        """Return what is unusual, for keys; "" if nothing is."""
        flags = {
            "wide": self.is_wide,
            "integral": self.is_integral,
            "below": self.overflow[0],
            "above": self.overflow[1],
        }
        return "".join(f" {name}" for name, flag in flags.items() if flag)


#: Facts of a value of which nothing is known
PLAIN = ValueFacts()


@record
class PlanFacts:
    """All facts about a plan; empty for a plan that no compiler made."""

    tensors: tuple[TensorFacts, ...] = ()
    calls: tuple[CallFacts, ...] = ()  #: one for each call of the run, in order
    nodes: tuple[EvaluationTime, ...] = ()  #: one for each imported ONNX node, in order
    decisions: tuple[DecisionFacts, ...] = ()
    #: None for a plan in full precision, but for stages of a model that declares halves
    precision: PrecisionFacts | None = None
    declares_halves: bool = False  #: the model declares some of its tensors float16
    #: dynamic dimensions of few rows, to whose ranges tiles were fitted: other ranges have faster plans of their own
    tiled: tuple[str, ...] = ()

    def result(self, call: int) -> TensorFacts:
        """Return the main result of a call."""
        return self.tensors[self.calls[call].operands[-1]]

    def results(self, call: int) -> list[TensorFacts]:
        """Return all results of a call, the main one first."""
        return [self.tensors[tensor] for tensor in self.calls[call].writes]

    def writers(self) -> dict[int, int]:
        """Return the call that writes each tensor."""
        return {tensor: number for number, call in enumerate(self.calls) for tensor in call.writes}
