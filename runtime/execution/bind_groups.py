"""Bind groups of a plan's calls, made once for what they bind, and lists of dispatches of whole runs.

With dynamic dimensions every activation has a buffer of its own from offset 0, and sizes come from the symbols' uniform
alone.  So a call binds the whole of the executor's buffers, and of tensors in memory of their own: one bind group
serves all values of the symbols, and only the grid depends on these.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Union

from ..memory.storage import Storage
from ..plan.plan import Command, KernelCall, RepeatedPass
from .attachment import Attachment
from .dispatch import Binder, BoundCall, Dispatch
from .run_sizes import Grid, PlanSizes, RunSizes

#: Runs whose dispatches are kept, bind groups of one call, and grids for which the dispatch of one bind group is kept
MOST_LISTS, MOST_GROUPS, MOST_GRIDS = 256, 256, 64

#: Tensors that are bound in place of a plan's buffers: name, buffer and offset of each
Identity = tuple[tuple[str, int, int], ...]
Resolve = Callable[[str], tuple[Any, int]]
#: What a bind group depends on: the caller's tensors that it binds, and the values of the symbols unless it serves all
GroupKey = tuple[Identity, Union[tuple[int, ...], None]]


class _Call:
    """A call with its bind groups, and the dispatches of each by grid."""

    __slots__ = ("call", "grid", "inside", "placed", "ports")

    def __init__(self, call: KernelCall, grid: int) -> None:
        self.call = call
        self.grid = grid  #: position among the grids of a run
        names = {item.buffer for item in call.ranges if item.buffer.startswith(("input:", "output:"))}
        self.ports = tuple(sorted(names))  #: buffers in place of which tensors may be bound
        #: the dispatches without tensors of the caller's, where these serve all values of the symbols
        self.inside: dict[Grid, Dispatch] | None = None
        self.placed: OrderedDict[GroupKey, tuple[BoundCall, dict[Grid, Dispatch], list[Any]]] = OrderedDict()


class BindGroups:
    """Dispatches of one executor, which serialises its use.  ``own`` are the executor's buffers by name.

    What binds a buffer of the caller is dropped when that is collected: a bind group would keep the memory.
    """

    def __init__(self, binder: Binder, commands: Sequence[Command], sizes: PlanSizes, own: Collection[str]) -> None:
        self._binder = binder
        grids = iter(sizes.grid_of)
        #: the calls of each command, and whether they are repeated
        self._commands = [
            ([_Call(call, next(grids)) for call in command.calls], isinstance(command, RepeatedPass))
            for command in commands
        ]
        self._grid_calls = sizes.grid_calls
        self._own = own
        self._lists: OrderedDict[tuple[tuple[int, ...], Identity], tuple[list[Dispatch], list[Any]]] = OrderedDict()

    def dispatches(
        self, values: tuple[int, ...], sizes: RunSizes, attachment: Attachment, resolve: Resolve
    ) -> list[Dispatch]:
        """Return the calls with work to do, in order; ``resolve`` maps buffer names to buffers and offsets.

        The list is the same object for the same ``values`` of the symbols and the same tensors.
        """
        key = values, attachment.identity()
        recorded = self._lists.get(key)
        if recorded is not None:
            self._lists.move_to_end(key)
            return recorded[0]
        spans = attachment.spans
        tensors = {each[0]: each for each in key[1]}
        grids = [self._binder.checked_grid(*each) for each in zip(self._grid_calls, sizes.grids)]
        iterations = iter(sizes.iterations)
        borrowed = frozenset(name for name, storage in spans.items() if storage.borrowed)
        dispatches: list[Dispatch] = []
        for calls, is_repeated in self._commands:
            own = []
            for item in calls:
                grid = grids[item.grid]
                if grid is None:
                    continue
                if borrowed:
                    self._binder.check_tensors(item.call, sizes, borrowed)
                bound: Identity = ()
                if item.ports and tensors:
                    bound = tuple([tensors[name] for name in item.ports if name in tensors])
                inside = None if bound else item.inside
                dispatch = None if inside is None else inside.get(grid)
                own.append(dispatch or self._place(item, grid, bound, values, sizes.symbols, spans, resolve))
            if is_repeated:
                own = [dispatch.iteration(number) for number in range(next(iterations)) for dispatch in own]
            dispatches += own
        _keep(self._lists, key, (dispatches, _watch(self._lists, key, spans.values())), MOST_LISTS)
        return dispatches

    def _place(
        self,
        item: _Call,
        grid: Grid,
        bound: Identity,
        values: tuple[int, ...],
        symbols: Mapping[str, int],
        spans: Mapping[str, Storage],
        resolve: Resolve,
    ) -> Dispatch:
        """Return the dispatch of a call that binds the tensors ``bound``, for all values of the symbols if it can."""
        placed = item.placed.get((bound, None)) or item.placed.get((bound, values))
        if placed is None:
            storages = {name: spans[name] for name, _, _ in bound}

            def locate(name: str) -> tuple[Any, int]:
                storage = storages.get(name)
                return resolve(name) if storage is None else (storage.gpu, storage.offset)

            def is_whole(name: str) -> bool:
                storage = storages.get(name)
                return name in self._own if storage is None else not storage.borrowed

            group = self._binder.bind(item.call, symbols, locate, is_whole)
            key: GroupKey = bound, None if group.is_shared else values
            placed = group, {}, _watch(item.placed, key, storages.values())
            _keep(item.placed, key, placed, MOST_GROUPS)
        group, dispatches, _ = placed
        if group.is_shared and not bound:
            item.inside = dispatches
        dispatch = dispatches.get(grid)
        if dispatch is None:
            if len(dispatches) >= MOST_GRIDS:
                dispatches.clear()
            dispatch = dispatches[grid] = self._binder.place(item.call, group, grid)
        return dispatch

    def clear(self) -> None:
        """Drop all bind groups: a buffer of the plan was replaced."""
        self._lists.clear()
        for item in (call for calls, _ in self._commands for call in calls):
            item.placed.clear()
            item.inside = None


def _watch(entries: OrderedDict[Any, Any], key: Any, storages: Collection[Storage]) -> list[Any]:
    """Return what drops ``key`` when a buffer of ``storages`` is collected, while it lives: in any thread."""

    def drop(_: Any) -> None:
        entries.pop(key, None)

    return [weakref.ref(storage.gpu, drop) for storage in storages]


def _keep(entries: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Store a value, and drop the one that was stored first beyond ``most``."""
    entries[key] = value
    while len(entries) > most:
        entries.popitem(last=False)
