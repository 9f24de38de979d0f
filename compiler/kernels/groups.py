"""Groups: the nodes that one kernel computes (:class:`Group`), grown from the anchor of a :class:`Region`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...runtime.plan.record import record
from ..ir.graph import Node, Shape, Value


@record(slots=False)
class Scores:
    """The matrix product behind the scores of an attention, and ``nodes`` in topological order: ``product`` first, then
    what makes scores of it."""

    product: Node
    nodes: tuple[Node, ...]


@dataclass
class Region:
    """An anchor and the consumers that its kernel also computes.

    ``coordinates`` gives, for each value of the region, its logical coordinates as functions of the anchor's
    coordinates ``a0, a1, ...`` (for row programs: of the coordinates of the reduced tensor).
    """

    anchor: Node
    nodes: list[Node]
    exit: Value
    coordinates: dict[Value, Shape]
    domain: Shape  #: the shape that a0, a1, ... range over
    reductions: list[Node] = field(default_factory=list)  #: those of a row program
    scores: Scores | None = None  #: what an attention computes before its anchor, in the same kernel
    partners: tuple[Node, ...] = ()  #: what the kernel computes beside the anchor, in the same loops

    @property
    def own(self) -> list[Node]:
        """All nodes that no other kernel computes, in topological order."""
        return [*self.scores.nodes, *self.nodes] if self.scores else self.nodes


@dataclass
class Group:
    """A kernel to be: ``family`` is the name of the anchor's kernel family, or "map" where there is no region."""

    index: int
    family: str
    region: Region | None
    output: Value
    constant: bool  #: depends on constants alone: runs once, when weights are made
    inlined: list[Node] = field(default_factory=list)  #: prologue nodes, in topological order
    reads: list[Value] = field(default_factory=list)  #: materialised values, graph inputs and constants that it loads
    also: list[Value] = field(default_factory=list)  #: further results: of a map of the same shape and type, or ranges
    #: the nodes of results that begin as inputs: the kernel writes what is new in them and nothing else.  Those of a
    #: region are further results, of which the kernel reads the rest.
    updates: list[Node] = field(default_factory=list)
    ranges: list[Node] = field(default_factory=list)  #: their results are ranges of what the kernel stores

    @property
    def outputs(self) -> list[Value]:
        """Everything that the kernel writes."""
        return [self.output, *self.also]

    @property
    def nodes(self) -> list[Node]:
        """All nodes that this kernel computes, in topological order."""
        if self.region:
            return self.inlined + self.updates + self.region.own + self.ranges
        return self.inlined + [value.producer for value in self.outputs if value.producer]
