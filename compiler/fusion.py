"""Graph to fused groups: which nodes share a kernel, and which values exist in memory.

A *group* becomes one kernel.  It has at most one *anchor* (a matrix product, a convolution, a reduction ...) and grows
in two directions:

*Epilogue.*  From the anchor's result forward, a :class:`Region` takes elementwise consumers (and the reductions and
elementwise nodes of a normalisation) as long as one value is left that others read: the *exit*.  A region with a
single exit is convex, so groups never form a cycle.  Every value in a region has coordinates in terms of the
anchor's result; views that can be inverted (``store_map``) only change the coordinates.

*Prologue.*  A node that computes each element on its own (``OpDef.is_map``) and that no region took is either
materialised by a kernel of its own or *inlined* into its consumers, composed into their load expressions.

Every decision that keeps two neighbours apart is recorded in ``Fusion.reasons``.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

from . import expr as ex
from . import index as ix
from .attention import Scores, find_scores
from .attention_tiles import FEW_ROWS, LANES
from .coordinates import broadcast_coordinates
from .index import Dim
from .ir import Graph, Node, Shape, Value
from .narrow import narrow_values
from .ops.registry import Registry, registry
from .rewrite import is_static

#: Work of an inlined prologue, in simple operations, that a consumer may repeat
LIGHT_WORK = 8
#: The same where each repetition stands beside the loads of a whole column of weights: a product of few rows
ROW_WORK = 24
#: Work that several consumers may repeat each
SHARED_WORK = 2
#: Families that read each operand element many times
REUSING_FAMILIES = frozenset({"gemm", "conv", "conv_transpose"})
#: Families whose threads hold vectors along the last axis, or whose kernels take a slower form where that is not so
PRODUCT_FAMILIES = REUSING_FAMILIES | {"attention"}
#: Families that compare elements with each other: they read each of them time and again
COMPARING_FAMILIES = frozenset({"rank", "merge", "suppress"})
#: Work that a convolution may repeat for every position of its window besides
WINDOW_WORK = 2
#: Nodes that a region may take, and that a kernel may inline: they bound the size of a shader
REGION_LIMIT = 96
INLINE_LIMIT = 128
_HEAVY = frozenset(
    "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow sqrt div mod fmod".split()
)


@dataclass
class Region:
    """An anchor and the consumers that its kernel also computes.

    ``coordinates`` gives, for each value of the region, its logical coordinates as functions of the anchor's
    coordinates ``a0, a1, ...`` (for reductions: of the coordinates of the reduced tensor).
    """

    anchor: Node
    nodes: list[Node]
    exit: Value
    coordinates: dict[Value, Shape]
    domain: Shape  #: the shape that a0, a1, ... range over
    reductions: list[Node] = field(default_factory=list)
    scores: Scores | None = None  #: what an attention computes before its anchor, in the same kernel

    @property
    def own(self) -> list[Node]:
        """All nodes that no other kernel computes, in topological order."""
        return [*self.scores.nodes, *self.nodes] if self.scores else self.nodes


@dataclass
class Group:
    """A kernel to be: ``family`` is "map" or the anchor's kernel family."""

    index: int
    family: str
    region: Region | None
    output: Value
    constant: bool  #: depends on constants alone: runs once, when weights are made
    inlined: list[Node] = field(default_factory=list)  #: prologue nodes, in topological order
    reads: list[Value] = field(default_factory=list)  #: materialised values, graph inputs and constants that it loads
    also: list[Value] = field(default_factory=list)  #: further results of a map, of the same shape and type

    @property
    def outputs(self) -> list[Value]:
        """Everything that the kernel writes."""
        return [self.output, *self.also]

    @property
    def nodes(self) -> list[Node]:
        """All nodes that this kernel computes, in topological order."""
        if self.region:
            return self.inlined + self.region.own
        return self.inlined + [value.producer for value in self.outputs if value.producer]


@dataclass
class Fusion:
    """The result: groups in execution order; a value without elements has none."""

    groups: list[Group]
    materialised: dict[Value, Group]
    reasons: list[tuple[Node, Node, str]]  #: (producer, consumer, why they do not share a kernel)


def fuse(graph: Graph, *, enabled: bool = True, max_operands: int = 8, operators: Registry = registry) -> Fusion:
    """Group the nodes of an expanded graph.  With ``enabled`` off every node is its own kernel."""
    return _Fuser(graph, enabled, max_operands, operators).run()


def constant_values(graph: Graph) -> set[Value]:
    """Values that depend on constants alone, not even on dynamic dimensions."""
    constant = set(graph.constants)
    for node in graph.nodes:
        operands = [value for value in node.inputs if value is not None]
        if operands and all(value in constant for value in operands) and is_static(node):
            constant.update(node.outputs)
    return constant


class _Growth:
    """A region while it grows: its members' values that others read, and the consumers that have yet to be tried.

    A consumer that was refused is tried again only when another of its operands joins: nothing else changes the answer.
    """

    def __init__(self, anchor: Node, rank: dict[Node, int], outputs: set[Value]) -> None:
        self._rank = rank
        self._outputs = outputs
        self._inside: set[Node] = set()
        self._readers: dict[Value, int] = {}  #: uses of each member's value outside the region
        self._producer: dict[Node, Node] = {}  #: consumer -> the first member that it reads
        self.live: dict[Value, None] = {}
        self.waiting: list[tuple[int, Node]] = []  #: a heap by rank; ranks are unique
        self._queued: set[Node] = set()
        self.add(anchor)

    def add(self, node: Node) -> None:
        """Make ``node``, which has one output, a member."""
        self._inside.add(node)
        for value in node.inputs:
            if value in self._readers:
                self._readers[value] -= 1
                if not self._readers[value] and value not in self._outputs:
                    self.live.pop(value, None)
        (result,) = node.outputs
        self._readers[result] = len(result.uses)
        in_memory = result in self._outputs
        if result.uses or in_memory:
            self.live[result] = None
        for user, _ in result.uses:
            if user in self._inside or user in self._queued:
                continue
            if user not in self._producer:
                if in_memory:
                    continue  # its value must be in memory anyway: nothing is gained by computing on
                self._producer[user] = node
            self._queued.add(user)
            heapq.heappush(self.waiting, (self._rank[user], user))

    def pop(self) -> tuple[Node, Node]:
        """The earliest consumer to be tried, and the member that it reads."""
        _, user = heapq.heappop(self.waiting)
        self._queued.remove(user)
        return user, self._producer[user]


class _Fuser:
    def __init__(self, graph: Graph, enabled: bool, max_operands: int, operators: Registry) -> None:
        self.graph = graph
        self.enabled = enabled
        self.max_operands = max_operands
        self.operators = operators
        self.rank = {node: position for position, node in enumerate(graph.nodes)}
        self.outputs = set(graph.outputs)
        self.constant = constant_values(graph)
        self.narrow = narrow_values(graph, self.constant, operators) if enabled else set()
        self.reasons: dict[tuple[int, int], tuple[Node, Node, str]] = {}
        self.region_of: dict[Node, Region] = {}
        self.scores_of: dict[Node, Scores] = {}  #: of regions, also while they grow
        self.materialise: set[Value] = set()
        self.consumers: dict[Node, dict[int, str]] = {}  #: inlined node -> kernels that compute it, with family
        self.own_work: dict[Node, int] = {}
        self.inlined_in: dict[int, int] = {}  #: how many nodes each kernel inlines

    def refuse(self, producer: Node, consumer: Node, reason: str) -> None:
        self.reasons.setdefault((producer.id, consumer.id), (producer, consumer, reason))

    def run(self) -> Fusion:
        # Reductions first, from the front: the first of a softmax or a normalisation takes the later ones.  The other
        # anchors from the back: of two products that meet in a sum, the later one finds the earlier one finished.
        anchors = [node for node in self.graph.nodes if self.operators.of(node).family is not None]
        reductions = [node for node in anchors if self.operators.of(node).family == "reduce"]
        others = [node for node in reversed(anchors) if self.operators.of(node).family != "reduce"]
        for node in (*reductions, *others):
            if node not in self.region_of:
                region = self._grow(node)
                for member in region.own:
                    self.region_of[member] = region
        self.materialise = {region.exit for region in self.region_of.values()}
        for node in reversed(self.graph.nodes):
            if node not in self.region_of:
                self._place(node)
        self._respect_operand_limit()
        return self._collect()

    # -- epilogues -----------------------------------------------------------------------------------------------

    def _grow(self, anchor: Node) -> Region:
        """Grow a region forward from ``anchor`` and keep the largest state with a single exit."""
        is_reduction = self.operators.of(anchor).family == "reduce"
        domain = anchor.operand(0).shape if is_reduction else anchor.outputs[0].shape
        names = tuple(ix.variable(f"a{axis}", 0, _high(size)) for axis, size in enumerate(domain))
        root = anchor.outputs[0]
        coordinates: dict[Value, Shape] = {root: _reduced(anchor, names) if is_reduction else names}
        members = [anchor]
        reductions = [anchor] if is_reduction else []
        best = (1, root)
        if not self.enabled or len(anchor.outputs) != 1:
            return Region(anchor, members, root, coordinates, domain, reductions)
        scores = self._scores(anchor) if self.operators.of(anchor).family == "attention" else None
        growth = _Growth(anchor, self.rank, self.outputs)
        while len(members) < REGION_LIMIT:
            chosen = self._next_member(growth, coordinates, domain, is_reduction)
            if chosen is None:
                break
            node, where = chosen
            members.append(node)
            growth.add(node)
            coordinates[node.outputs[0]] = where
            if len(growth.live) == 1:
                (only,) = growth.live
                if self._may_exit(only, root, coordinates, is_reduction):
                    best = (len(members), only)
        count, exit_value = best
        members = members[:count]
        kept = {member.outputs[0] for member in members}
        coordinates = {value: where for value, where in coordinates.items() if value in kept}
        if is_reduction:
            reductions = [member for member in members if self.operators.of(member).family == "reduce"]
        return Region(anchor, members, exit_value, coordinates, domain, reductions, scores)

    def _scores(self, anchor: Node) -> Scores | None:
        """The product that the kernel of an attention computes too, if it can."""
        found = find_scores(anchor, self.rank, self.outputs, self.region_of, self.operators)
        if isinstance(found, Scores):
            self.scores_of[anchor] = found
            return found
        producer, reason = found
        if producer is not anchor:
            self.refuse(producer, anchor, reason)
        return None

    def _may_exit(self, value: Value, root: Value, coordinates: dict[Value, Shape], is_reduction: bool) -> bool:
        """Whether a region may store ``value``, given the coordinates of all values in its domain.

        A view as last member pays only when its result is needed in memory as it is, or arithmetic follows.  A packed
        result needs threads that own its words: those of a reduction do where rows and columns are axes of the result,
        others if the root has words of that size too, or where the vectors of products stay vectors.
        """
        assert value.producer is not None
        if value.dtype.packing > 1:
            where = coordinates[value]
            if is_reduction:
                owned = all(map(_is_axis, where))
            elif value.dtype.packing == root.dtype.packing:
                owned = True
            else:
                assert root.producer is not None
                owned = (
                    self.operators.of(root.producer).family in PRODUCT_FAMILIES
                    and bool(where)
                    and _keeps_vectors(where[-1], coordinates[root][-1], value.shape[-1])
                )
            if not owned:
                return False
        return not self.operators.of(value.producer).is_view or value in self.outputs

    def _next_member(
        self, growth: _Growth, coordinates: dict[Value, Shape], domain: Shape, is_reduction: bool
    ) -> tuple[Node, Shape] | None:
        """The earliest consumer that can join, with the coordinates of its result."""
        while growth.waiting:
            user, producer = growth.pop()
            where = self._joins(user, producer, coordinates, domain, is_reduction)
            if where is not None:
                return user, where
        return None

    def _joins(
        self, user: Node, producer: Node, coordinates: dict[Value, Shape], domain: Shape, is_reduction: bool
    ) -> Shape | None:
        definition = self.operators.of(user)
        if user in self.region_of:
            self.refuse(producer, user, f"{user.op} already belongs to a later kernel")
            return None
        if len(user.outputs) != 1 or user.blocks:
            self.refuse(producer, user, f"{user.op} has several outputs")
            return None
        if (user.outputs[0] in self.constant) != (producer.outputs[0] in self.constant):
            self.refuse(producer, user, "the producer runs once when weights are made")
            return None
        inner = {value for value in user.inputs if value is not None and value in coordinates}
        if not self._binds(user, coordinates):
            self.refuse(producer, user, f"the kernel would bind more than {self.max_operands} buffers")
            return None
        if definition.family == "reduce" and is_reduction:
            return self._joins_reduction(user, producer, inner, coordinates, domain)
        if definition.store_map is not None and len(inner) == 1 and user.inputs[0] in inner:
            return tuple(definition.store_map(user, coordinates[user.operand(0)]))
        if definition.element is None:
            self.refuse(producer, user, f"{user.op} does not work element by element")
            return None
        if not is_reduction and user.outputs[0].dtype.packing > 1:
            self.refuse(producer, user, f"two threads would write one word of a {user.outputs[0].dtype} result")
            return None
        if user.outputs[0].dtype.packing > 1 and any(value.dtype.bits == 64 for value in coordinates):
            self.refuse(
                producer, user, f"a reduction of 64-bit integers owns no words of a {user.outputs[0].dtype} result"
            )
            return None
        return self._joins_elementwise(user, producer, inner, coordinates, domain, is_reduction)

    def _binds(self, user: Node, coordinates: dict[Value, Shape]) -> bool:
        """Whether a region that also computes ``user`` can bind what it reads from outside, each as one tensor."""
        own = [value.producer for value in (*coordinates, user.outputs[0]) if value.producer is not None]
        if own[0] in self.scores_of:
            own += self.scores_of[own[0]].nodes
        made = {node.outputs[0] for node in own}
        outside = {
            operand
            for node in own
            for operand in node.inputs
            if operand is not None and operand not in made and not _is_literal(operand)
        }
        return len(outside) + 1 <= self.max_operands

    def _joins_elementwise(
        self,
        user: Node,
        producer: Node,
        inner: set[Value],
        coordinates: dict[Value, Shape],
        domain: Shape,
        is_reduction: bool,
    ) -> Shape | None:
        shape = user.outputs[0].shape
        where: Shape | None = None
        for value in inner:
            if value.shape == shape:
                if where is not None and where != coordinates[value]:
                    self.refuse(producer, user, "its operands are at different coordinates")
                    return None
                where = coordinates[value]
        if where is None and is_reduction and shape == domain:
            where = tuple(ix.variable(f"a{axis}", 0, _high(size)) for axis, size in enumerate(domain))
        if where is None:
            self.refuse(producer, user, "the result is broadcast to a larger shape")
            return None
        for value in inner:
            if broadcast_coordinates(where, shape, value.shape) != coordinates[value]:
                self.refuse(producer, user, "its operands are at different coordinates")
                return None
        return where

    def _joins_reduction(
        self, user: Node, producer: Node, inner: set[Value], coordinates: dict[Value, Shape], domain: Shape
    ) -> Shape | None:
        names = tuple(ix.variable(f"a{axis}", 0, _high(size)) for axis, size in enumerate(domain))
        source = user.operand(0)
        first = next(iter(coordinates))
        assert first.producer is not None
        if source.shape != domain or coordinates.get(source, names) != names:
            self.refuse(producer, user, "the second reduction is over another tensor shape")
            return None
        if user.attributes.axes != first.producer.attributes.axes:
            self.refuse(producer, user, "the second reduction is over other axes")
            return None
        return _reduced(user, names)

    # -- prologues -----------------------------------------------------------------------------------------------

    def _kernels_of(self, user: Node, operand: Value) -> dict[int, str]:
        """Kernels (by id of their region's anchor or map node) in which ``user`` reads ``operand``, with family."""
        region = self.region_of.get(user)
        if region is not None:
            family = self.operators.of(region.anchor).family or "map"
            if family == "attention":
                return {region.anchor.id: "gemm" if _read_for_every_block(region, user, operand) else "map"}
            if user is not region.anchor and family in REUSING_FAMILIES:
                family = "map"  # read once per result element by the epilogue
            if family in ("conv", "conv_transpose") and math.prod(region.anchor.attributes.kernel) > 1:
                family = "windowed"
            if family == "reduce" and len(region.reductions) == 1 and region.exit.producer in region.reductions:
                family = "map"
            if family == "gemm" and user is region.anchor and operand is user.operand(0) and _has_few_rows(region):
                family = "row"
            return {region.anchor.id: family}
        if any(value in self.materialise for value in user.outputs):
            return {user.id: "map"}
        return self.consumers[user]

    def _readers(self, value: Value) -> list[Node]:
        """Nodes whose kernels load the value; those that need it while compiling do not."""
        return [user for user in value.users if value in self.operators.of(user).data_inputs(user)]

    def _place(self, node: Node) -> None:
        """Decide whether a map node is materialised or inlined; its users are decided already."""
        value = node.outputs[0]
        kernels: dict[int, str] = {}
        for user in self._readers(value):
            if value not in self.narrow and self._at_run_time(user) != self._at_run_time(node):
                self.materialise.add(value)  # a weight, read at run time
                return
            kernels.update(self._kernels_of(user, value))
        reason = self._why_materialise(node, value, kernels)
        if reason is None:
            self.consumers[node] = kernels
            for kernel in kernels:
                self.inlined_in[kernel] = self.inlined_in.get(kernel, 0) + 1
            return
        self.materialise.add(value)
        for user in value.users:
            self.refuse(node, user, reason)

    def _at_run_time(self, node: Node) -> bool:
        """Whether the node is computed by kernels that run with the model."""
        return node.outputs[0] not in self.constant or node.outputs[0] in self.narrow

    def _why_materialise(self, node: Node, value: Value, kernels: dict[int, str]) -> str | None:
        definition = self.operators.of(node)
        if value in self.outputs:
            return "the value is an output of the model"
        if node.op == "Relayout":
            return "a weight in the layout of its consumer"
        if not self.enabled:
            return "fusion is off"
        if any(self.inlined_in.get(kernel, 0) >= INLINE_LIMIT for kernel in kernels):
            return f"the consumer inlines {INLINE_LIMIT} nodes already"
        if value in self.narrow:
            return None
        families = set(kernels.values())
        loops = {*REUSING_FAMILIES, *COMPARING_FAMILIES, "reduce", "window", "windowed"}
        reused = not families.isdisjoint({*loops, "row", "winograd_input"})
        if definition.is_view:
            many = len(definition.data_inputs(node)) > 2
            if many and reused:
                return f"{node.op} chooses among operands: too slow inside a loop"
            return None
        work = self._work(node)
        if len(kernels) > 1 and work > SHARED_WORK:
            return "several kernels would compute it again"
        light = ROW_WORK if families.isdisjoint(loops) else LIGHT_WORK
        if reused and work > light:
            return "its work would be repeated for every use of an element"
        if "windowed" in families and work > WINDOW_WORK:
            return "its work would be repeated for every position of a window"
        return None

    def _work(self, node: Node) -> int:
        """Simple operations to compute one element, inlined operands included; not counted on beyond ROW_WORK."""
        total, stack = 0, [node]
        while stack and total <= ROW_WORK:
            current = stack.pop()
            total += self._own_work(current)
            for value in current.inputs:
                if value is None or value.producer is None or value in self.materialise:
                    continue
                producer = value.producer
                if self.operators.of(producer).is_map and producer not in self.region_of and len(value.users) == 1:
                    stack.append(producer)
        return total

    def _own_work(self, node: Node) -> int:
        found = self.own_work.get(node)
        if found is None:
            definition = self.operators.of(node)
            if definition.is_view:
                found = 0
            elif definition.gather is not None:
                found = 4 * definition.reads
            else:
                found = _element_work(definition, node)
            self.own_work[node] = found
        return found

    # -- limits --------------------------------------------------------------------------------------------------

    def _respect_operand_limit(self) -> None:
        """Materialise inlined values until every kernel binds at most ``max_operands`` tensors.

        A kernel that cannot get below the limit is left: the driver reports it with the node's name.
        """
        waiting = deque(self._owners())
        inlined_by: dict[Node, list[Value]] = {}  #: inlined node -> outputs of kernels that were found to fit
        while waiting:
            owner = waiting.popleft()
            reads, inlined = self._operands(owner)
            if len(reads) + 1 <= self.max_operands:
                for node in inlined:
                    inlined_by.setdefault(node, []).append(owner)
                continue
            victim = self._to_split_off(inlined)
            if victim is None:
                continue
            self.materialise.add(victim.outputs[0])
            for user in victim.outputs[0].users:
                self.refuse(victim, user, f"the kernel would bind more than {self.max_operands} buffers")
            waiting.extendleft((owner, victim.outputs[0], *inlined_by.pop(victim, ())))

    def _to_split_off(self, inlined: list[Node]) -> Node | None:
        """The inlined node that takes the most operands with it and still fits a kernel of its own; if none fits, the
        first that takes at least two."""
        room = self.max_operands - 1
        cones: dict[Node, dict[Value, None]] = {}  #: what computing the node loads; more than fits is left out
        best: tuple[int, int, int] | None = None
        chosen: Node | None = None
        too_wide: Node | None = None
        for node in inlined:
            cone: dict[Value, None] = {}
            for value in self.operators.of(node).data_inputs(node):
                if value.known is not None and value.known.size <= 1:
                    continue
                if value.producer is None or value in self.materialise:
                    cone[value] = None
                else:
                    cone.update(cones[value.producer])
                if len(cone) > room:
                    break
            cones[node] = cone
            if len(cone) > room:
                too_wide = too_wide or node
            elif len(cone) >= 2:
                score = (len(cone), -ix.bounds(node.outputs[0].elements)[1], self.rank[node])
                if best is None or score > best:
                    best, chosen = score, node
        return chosen or too_wide

    def _owners(self) -> list[Value]:
        """Outputs of kernels, in the order of the nodes that compute them."""
        found = [value for value in self.materialise if value.producer is not None]
        return sorted(found, key=lambda value: (self.rank[value.producer], value.output_index))  # type: ignore[index]

    def _visit(self, node: Node, reads: dict[Value, None], inlined: dict[Node, None]) -> None:
        stack = self.operators.of(node).data_inputs(node)[::-1]
        while stack:
            value = stack.pop()
            if _is_literal(value):
                continue
            producer = value.producer
            if producer is None or value in self.materialise:
                reads[value] = None
                continue
            if producer in inlined:
                continue
            inlined[producer] = None
            stack.extend(reversed(self.operators.of(producer).data_inputs(producer)))

    def _operands(self, output: Value) -> tuple[list[Value], list[Node]]:
        """What the kernel that writes ``output`` loads, and which nodes it inlines."""
        assert output.producer is not None
        region = self.region_of.get(output.producer)
        own = region.own if region else [output.producer]
        reads: dict[Value, None] = {}
        inlined: dict[Node, None] = dict.fromkeys(own)
        for node in own:
            self._visit(node, reads, inlined)
        for member in own:
            inlined.pop(member, None)
        inner = {node.outputs[0] for node in own}
        return [value for value in reads if value not in inner], sorted(inlined, key=self.rank.__getitem__)

    # -- result --------------------------------------------------------------------------------------------------

    def _collect(self) -> Fusion:
        pending: dict[Value, Group] = {}
        for value in self._owners():
            assert value.producer is not None
            if value.elements == 0:
                continue  # nothing to compute
            region = self.region_of.get(value.producer)
            family = self.operators.of(region.anchor).family if region else "map"
            reads, inlined = self._operands(value)
            pending[value] = Group(0, family or "map", region, value, value in self.constant, inlined, reads)
        ordered = _topological(pending)
        if self.enabled:
            ordered = self._join_outputs(ordered)
        for number, group in enumerate(ordered):
            group.index = number
        for group in ordered:
            for read in group.reads:
                if read.producer is not None and group.output.producer is not None:
                    self.refuse(read.producer, group.nodes[0], "both need a kernel of their own")
        made = {value: group for group in ordered for value in group.outputs}
        return Fusion(ordered, made, list(self.reasons.values()))

    def _join_outputs(self, ordered: list[Group]) -> list[Group]:
        """Maps that write outputs of the model, of one shape and from a common operand, become one kernel.

        Caches of keys and values are such pairs.  Only outputs: their place in memory is their own and their layout
        that of ONNX, so that nothing is lost by writing them together.
        """
        place: dict[Value, int] = {group.output: number for number, group in enumerate(ordered)}
        open_groups: list[Group] = []
        gone: set[int] = set()
        for number, group in enumerate(ordered):
            if group.family != "map" or group.region or group.constant or group.output not in self.outputs:
                continue
            first = next((other for other in open_groups if self._may_join(other, group, place)), None)
            if first is None:
                open_groups.append(group)
                continue
            first.also.append(group.output)
            first.reads = list(dict.fromkeys([*first.reads, *group.reads]))
            first.inlined = sorted({*first.inlined, *group.inlined}, key=self.rank.__getitem__)
            gone.add(number)
        return [group for number, group in enumerate(ordered) if number not in gone]

    def _may_join(self, first: Group, group: Group, place: dict[Value, int]) -> bool:
        output = group.output
        if first.output.shape != output.shape or first.output.dtype is not output.dtype:
            return False
        if not any(not value.is_constant for value in set(first.reads) & set(group.reads)):
            return False
        if any(place.get(value, -1) >= place[first.output] for value in group.reads):
            return False
        bound = len({*first.reads, *group.reads}) + len(first.outputs) + 1
        return bound <= self.max_operands and len({*first.inlined, *group.inlined}) <= INLINE_LIMIT


def _topological(groups: dict[Value, Group]) -> list[Group]:
    """Groups so that every value is written before it is read, otherwise in the order of their outputs."""
    ordered: list[Group] = []
    done: set[Value] = set()
    for start in groups:
        stack = [start]
        while stack:
            value = stack[-1]
            if value in done:
                stack.pop()
                continue
            waiting = [read for read in groups[value].reads if read in groups and read not in done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            done.add(value)
            ordered.append(groups[value])
    return ordered


def _is_literal(value: Value) -> bool:
    """Whether kernels hold the value in their text (known, and one element at most), or never read it: it has none."""
    return (value.known is not None and value.known.size <= 1) or value.elements == 0


def _has_few_rows(region: Region) -> bool:
    return len(region.domain) >= 2 and ix.bounds(region.domain[-2])[1] <= FEW_ROWS


def _read_for_every_block(region: Region, user: Node, operand: Value) -> bool:
    """Whether an attention reads an element of ``operand`` once for each of several blocks of queries: keys, values."""
    if region.anchor.attributes.parts > 1 or ix.bounds(region.domain[-2])[1] <= FEW_ROWS:
        return False
    many = user.operand(1) if user is region.anchor or (region.scores and user is region.scores.product) else None
    return operand is many


def _high(size: Dim) -> int:
    return max(ix.bounds(size)[1] - 1, 0)


def _is_axis(coordinate: ix.Dim) -> bool:
    """Whether a coordinate is a single variable, or a number."""
    names = ix.variables(coordinate) if isinstance(coordinate, ix.Index) else ()
    return len(names) < 2 and all(coordinate == ix.variable(name, *ix.bounds(coordinate)) for name in names)


def _keeps_vectors(last: Dim, axis: Dim, size: Dim) -> bool:
    """Whether vectors along ``axis`` are whole ones of the coordinate ``last``, whose axis has ``size`` elements."""
    start = ix.add(last, ix.multiply(axis, -1))
    return ix.divide(start, LANES) is not None and ix.divide(size, LANES) is not None


def _reduced(node: Node, names: Shape) -> Shape:
    """Coordinates of a reduction's result, from those of its operand."""
    axes = set(node.attributes.axes)
    if node.attributes.keepdims:
        return tuple(0 if axis in axes else name for axis, name in enumerate(names))
    return tuple(name for axis, name in enumerate(names) if axis not in axes)


def _element_work(definition: object, node: Node) -> int:
    """Cost of an elementwise operator: its expression's operations, expensive functions counted four times."""
    arguments = [
        ex.register(f"x{position}", value.dtype.compute)
        for position, value in enumerate(node.inputs)
        if value is not None
    ]
    result = definition.element(node, arguments)  # type: ignore[attr-defined]
    return sum(4 if inner.op in _HEAVY else 1 for inner in ex.walk(result) if inner.args)
