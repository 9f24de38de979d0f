"""Whole random graphs: with inputs, outputs, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import reject
from hypothesis import strategies as st

from .control import draw_control
from .forms import Form
from .growth import MOST_NODES, OPSETS, Growth, reads
from .oracle import Known, dtype_of
from .source import Drawn, Seeded, Source, Unsuitable, choose, rarely


@dataclass
class RandomGraph:
    """A model with its inputs and what it computes."""

    growth: Growth
    outputs: list[Known]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return self.growth.feeds

    def model(self, dims: Mapping[str, Sequence[int | str]] | None = None) -> onnx.ModelProto:
        return self.growth.model(self.outputs, dims)

    def resized(self, size: Callable[[int], int]) -> dict[str, np.ndarray]:
        """Other elements for the inputs, with every size replaced."""
        return {
            name: np.asarray(self.growth.data(dtype_of(array), [size(each) for each in array.shape], None, None))
            for name, array in self.feeds.items()
        }

    def switched(self) -> dict[str, np.ndarray] | None:
        """Inputs for which branches and numbers of steps are decided otherwise; None if no input decides."""
        others = {switch.feed: switch.other for switch in self.growth.shared.switches if switch.feed in self.feeds}
        return {**self.feeds, **others} if others else None


def grow_graph(
    source: Source,
    *,
    inputs_only: bool = False,
    keep: Callable[[Form], bool] = lambda form: True,
    programs: bool = False,
    attempts: int | None = None,
) -> RandomGraph:
    """A graph of 1 to 12 nodes; raises :class:`Unsuitable` if none fitted.

    ``programs``: with control flow, and with more operands that are computed.  ``attempts``: about as many nodes as
    this, of one plan, in place of a number that is drawn; of one seed fewer attempts draw the same nodes up to there.
    """
    narrow = not inputs_only and rarely(source, 10)
    growth = Growth(
        source,
        choose(source, [opset for opset in OPSETS if opset >= 21] if narrow else OPSETS),
        source.integer(0, 2**16),
        inputs_only=inputs_only,
        staged=None if attempts else 3 if programs else 16,
        control=draw_control if programs else None,
        keep=keep,
        narrow=narrow,
        evenly=attempts is not None,
    )
    most = max(attempts or 0, MOST_NODES)
    for _ in range(attempts or source.integer(1, MOST_NODES)):
        if len(growth.steps) < most:
            growth.grow()
    if not growth.steps:
        raise Unsuitable
    _drop_unread(growth)
    return RandomGraph(growth, growth.outputs())


def _drop_unread(growth: Growth) -> None:
    """Leaves that attempts without success left behind, or that no node came to read."""
    read = {name for node in growth.nodes for name in reads(node)}
    for table in (growth.feeds, growth.initializers):
        for name in set(table) - read:
            del table[name]
    growth.values = [value for value in growth.values if value.name.startswith("n") or value.name in read]


@st.composite
def random_graphs(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    inputs_only: bool = False,
    keep: Callable[[Form], bool] = lambda form: True,
    programs: bool = False,
) -> RandomGraph:
    """Graphs of 1 to 12 nodes, with decisions that hypothesis can shrink."""
    try:
        return grow_graph(Drawn(draw), inputs_only=inputs_only, keep=keep, programs=programs)
    except Unsuitable:
        reject()


def seeded_graph(seed: int, **options: Any) -> RandomGraph | None:
    """The graph of a seed; None if there is none.  ``options`` are those of :func:`grow_graph`."""
    try:
        return grow_graph(Seeded(seed), **options)
    except Unsuitable:
        return None
