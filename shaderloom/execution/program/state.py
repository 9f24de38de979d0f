"""Blocks of a program, the states between its steps, and the compiler's view of their values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ...compiler.staging.partial_compile import StageInput
from ...compiler.staging.program_graph import PendingNode
from ...runtime.plan.dtypes import BY_NAME, DType, from_numpy
from ...runtime.plan.errors import UnsupportedError
from ..values import RuntimeValue, type_text


@dataclass(eq=False)
class State:
    """A position in a block: the nodes that have yet to run, and the values whose elements are compiled in.

    ``live`` are the names that those nodes, or the outputs of the block, read.  The next step depends on the values at
    that point (:mod:`.step_cache`).
    """

    block: Block
    pending: tuple[PendingNode, ...]
    static_names: frozenset[str]
    live: tuple[str, ...]

    @cached_property
    def identity(self) -> str:
        """A digest that is the same for the state in every process."""
        nodes = [(item.scope.prefix, item.origin.index, item.node.op, item.synthetic) for item in self.pending]
        return hashlib.sha256(repr((self.block.name, nodes, sorted(self.static_names))).encode()).hexdigest()


@dataclass(eq=False)
class Block:
    """A graph as a program: the main graph, or the body of a loop.

    ``control`` are the outputs that determine the iterations of a loop, or what follows it.  ``states`` are those that
    a step or a run references.
    """

    name: str
    nodes: tuple[PendingNode, ...]
    outputs: tuple[str, ...]
    control: frozenset[str] = frozenset()
    states: WeakValueDictionary[tuple[tuple[int, ...], frozenset[str]], State] = field(
        default_factory=WeakValueDictionary
    )

    def state(self, pending: tuple[PendingNode, ...], static_names: frozenset[str]) -> State:
        """Return the one state of these nodes and static values."""
        read = {name for item in pending for name in reads_of(item)} | set(self.outputs)
        live_static = frozenset(name for name in static_names if name in read)
        key = (tuple(map(id, pending)), live_static)
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = State(self, pending, live_static, tuple(sorted(read)))
        return state


def reads_of(item: PendingNode) -> list[str]:
    """Return the names that a node reads, in the compiler's form or in that of the file."""
    return list(dict.fromkeys((*item.reads, *file_reads(item))))


def file_reads(item: PendingNode) -> list[str]:
    """Return the names that the node of the file reads."""
    proto = item.node.proto
    if proto is None:
        return list(item.reads)
    if item.synthetic:
        return [name for name in proto.input if name]
    own = (item.scope.find(name) for name in proto.input if name)
    return [name for name in dict.fromkeys((*own, *item.captured)) if name is not None]


def stage_input(value: RuntimeValue, static: bool) -> StageInput:
    """Return the compiler's view of a value, with its elements if it is ``static``."""
    dtype = value.dtype
    if dtype is None:
        return StageInput(_host_type(value.host), value.shape, what=type_text(value.host))
    if static:
        return StageInput(dtype, value.shape, value.read())
    return StageInput(dtype, value.shape, facts=value.facts)


def _host_type(value: Any) -> DType | None:
    """Return the element type of an array that the compiler knows and no device holds: its shape may be queried."""
    if not isinstance(value, np.ndarray):
        return None
    if value.dtype == object or value.dtype.kind in "US":
        return BY_NAME["string"]
    try:
        return from_numpy(value.dtype)
    except UnsupportedError:
        return None
