"""Layered layout of a graph along its dataflow, with few crossings (Sugiyama et al., 1981).

Linear in nodes and edges for a fixed number of sweeps.  Units are pixels at zoom 1; equal graphs give equal places.
"""

from __future__ import annotations

from collections.abc import Sequence

Edge = tuple[int, int]

GAP = 28.0  #: between neighbours in a layer
LAYER_GAP = 46.0  #: between layers
#: Pull towards the middle: without it every branch would shift what follows, and deep graphs would lean
PULL = 0.85
_SWEEPS = 6


def place(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> list[tuple[float, float]]:
    """Return the upper left corner of every box.  ``sizes`` are widths and heights; edges lead from lower to higher
    layers.

    ``edges`` must not form a cycle.
    """
    count = len(sizes)
    parents: list[list[int]] = [[] for _ in range(count)]
    children: list[list[int]] = [[] for _ in range(count)]
    for source, target in dict.fromkeys(edges):
        parents[target].append(source)
        children[source].append(target)
    layer = _layers(count, parents, children)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node in range(count):
        rows[layer[node]].append(node)
    centre = _initial(rows, sizes)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = parents if down else children
        for row in rows if down else reversed(rows):
            _arrange(row, centre, sizes, neighbours)
    top, y = [0.0] * count, 0.0
    for row in rows:
        for node in row:
            top[node] = y
        y += max(sizes[node][1] for node in row) + LAYER_GAP
    left = min((centre[node] - sizes[node][0] / 2 for node in range(count)), default=0.0)
    return [(round(centre[node] - sizes[node][0] / 2 - left, 1), round(top[node], 1)) for node in range(count)]


def _layers(count: int, parents: Sequence[Sequence[int]], children: Sequence[Sequence[int]]) -> list[int]:
    """Return the longest path to each node; nodes without parents are placed right above their first child."""
    layer = [0] * count
    waiting = [len(above) for above in parents]
    ready = [node for node in range(count) if not waiting[node]]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for child in children[node]:
            layer[child] = max(layer[child], layer[node] + 1)
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    if len(order) != count:
        raise ValueError("the graph has a cycle")
    for node in reversed(order):
        if not parents[node] and children[node]:
            layer[node] = min(layer[child] for child in children[node]) - 1
    return layer


def _initial(rows: Sequence[Sequence[int]], sizes: Sequence[tuple[float, float]]) -> list[float]:
    centre = [0.0] * len(sizes)
    for row in rows:
        width = sum(sizes[node][0] for node in row) + GAP * (len(row) - 1)
        x = -width / 2
        for node in row:
            centre[node] = x + sizes[node][0] / 2
            x += sizes[node][0] + GAP
    return centre


def _arrange(
    row: list[int],
    centre: list[float],
    sizes: Sequence[tuple[float, float]],
    neighbours: Sequence[Sequence[int]],
) -> None:
    """Move every box of a row as near to the mean of its neighbours as the other boxes allow."""
    wanted = {
        node: PULL * sum(centre[other] for other in neighbours[node]) / len(neighbours[node])
        if neighbours[node]
        else centre[node]
        for node in row
    }
    row.sort(key=lambda node: (wanted[node], node))
    # Boxes that would overlap form a block, placed at the mean of the preferred positions of its members.
    blocks: list[tuple[list[int], float, float]] = []  # members, width, left edge
    for node in row:
        members, width, left = [node], sizes[node][0], wanted[node] - sizes[node][0] / 2
        while blocks and blocks[-1][2] + blocks[-1][1] + GAP > left:
            before, before_width, before_left = blocks.pop()
            total = len(before) + len(members)
            left = (before_left * len(before) + (left - before_width - GAP) * len(members)) / total
            members, width = before + members, before_width + GAP + width
        blocks.append((members, width, left))
    for members, _, left in blocks:
        for node in members:
            centre[node] = left + sizes[node][0] / 2
            left += sizes[node][0] + GAP
