"""Epilogues: regions that grow forward from the result of an anchor."""

from __future__ import annotations

import heapq

from ..ir.graph import Node, Value
from ..kernels.groups import Region, Scores
from .epilogue_rules import coordinates_in, may_exit
from .partition import Partition

#: Nodes that a region may take: they bound the size of a shader
REGION_LIMIT = 96


class RegionGrowth:
    """A region while it grows: its members' values that others read, and the consumers that have yet to be tried.

    A consumer that was refused is tried again only when another of its operands joins: nothing else changes the answer.
    """

    def __init__(self, partition: Partition, anchor: Node) -> None:
        self._rank = partition.rank
        self._outputs = partition.outputs
        self._inside: set[Node] = set()
        self._readers: dict[Value, int] = {}  #: uses of each member's value outside the region
        self._producer: dict[Node, Node] = {}  #: consumer -> the first member that it reads
        self._queued: set[Node] = set()
        self._waiting: list[tuple[int, Node]] = []  #: a heap by rank; ranks are unique
        self.live: dict[Value, None] = {}
        self.members: list[Node] = []
        self.add(anchor)

    def add(self, node: Node) -> None:
        """Make ``node``, which has one output, a member."""
        self.members.append(node)
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
            heapq.heappush(self._waiting, (self._rank[user], user))

    def pop(self) -> tuple[Node, Node] | None:
        """Pop the earliest consumer to try, and the member that it reads."""
        if not self._waiting:
            return None
        _, user = heapq.heappop(self._waiting)
        self._queued.remove(user)
        return user, self._producer[user]


def grow_regions(partition: Partition) -> None:
    """Give every anchor a region.

    First anchors whose kernels compute others beside them.  Then reductions, from the front: the first of a softmax or
    a normalisation takes the later ones.  The other anchors from the back: of two products that meet in a sum, the
    later one finds the earlier one finished.
    """
    anchors = [(node, family) for node in partition.graph.nodes if (family := partition.family_of(node)) is not None]
    row_programs = [node for node, family in anchors if family.is_row_program]
    others = [node for node, family in reversed(anchors) if not family.is_row_program]
    together = [(node, _grow_together) for node in others]
    for node, grow in (*together, *((node, _grow) for node in (*row_programs, *others))):
        region = None if node in partition.region_of else grow(partition, node)
        if region is not None:
            partition.region_of.update(dict.fromkeys(region.own, region))
    partition.materialise.update(region.exit for region in partition.region_of.values())


def _grow(partition: Partition, anchor: Node) -> Region:
    """Grow a region forward from ``anchor``."""
    region = _start(partition, anchor)
    if not partition.enabled or len(anchor.outputs) != 1:
        return region
    region.scores = _scores(partition, region)
    return _extend(partition, region)


def _grow_together(partition: Partition, anchor: Node) -> Region | None:
    """Grow a region from an anchor and its partners to where they meet; None if they do not."""
    family = partition.family_of(anchor)
    assert family is not None
    if partition.enabled:
        for partners in family.partners(anchor):
            if any(node in partition.region_of for node in partners):
                continue
            region = _start(partition, anchor)
            region.partners = partners
            for node in partners:
                own = partition.family_of(node)
                assert own is not None
                region.coordinates[node.output] = own.result_coordinates(node)
            if len(_extend(partition, region).nodes) > 1:
                return region
    return None


def _extend(partition: Partition, region: Region) -> Region:
    """Let consumers join a region, and keep the largest state with a single exit; partners are members of each."""
    growth = RegionGrowth(partition, region.anchor)
    for node in region.partners:
        growth.add(node)
    best = 1, region.exit
    while len(growth.members) < REGION_LIMIT and (candidate := growth.pop()):
        user, producer = candidate
        coordinates = coordinates_in(partition, region, user, producer)
        if isinstance(coordinates, str):
            partition.refuse(producer, user, coordinates)
            continue
        growth.add(user)
        region.coordinates[user.outputs[0]] = coordinates
        if len(growth.live) == 1:
            (only,) = growth.live
            if may_exit(partition, region, only):
                best = len(growth.members), only
    count, region.exit = best
    region.nodes = growth.members[:count]
    members = {member.outputs[0] for member in region.nodes}
    region.coordinates = {value: coordinates for value, coordinates in region.coordinates.items() if value in members}
    if region.reductions:
        region.reductions = [node for node in region.nodes if _is_reduction(partition, node)]
    return region


def _is_reduction(partition: Partition, node: Node) -> bool:
    family = partition.family_of(node)
    return family is not None and family.is_row_program


def _start(partition: Partition, anchor: Node) -> Region:
    """Create the region that contains the anchor alone."""
    family = partition.family_of(anchor)
    assert family is not None
    root = anchor.outputs[0]
    coordinates = {root: family.result_coordinates(anchor)}
    return Region(anchor, [anchor], root, coordinates, family.domain(anchor), [anchor] if family.is_row_program else [])


def _scores(partition: Partition, region: Region) -> Scores | None:
    """Return the product that the region's kernel can compute as well, or None."""
    scores = partition.anchor_family(region).find_scores(
        region.anchor, partition.rank, partition.outputs, partition.region_of, partition.operators
    )
    if scores is None or isinstance(scores, Scores):
        return scores
    producer, reason = scores
    if producer is not region.anchor:
        partition.refuse(producer, region.anchor, reason)
    return None
