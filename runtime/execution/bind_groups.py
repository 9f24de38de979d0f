"""Bind groups of a plan's calls: made once for each combination of symbol values and of bound tensors.

Calls that bind nothing of the caller's have one bind group, whatever is bound outside.  With dynamic dimensions it
binds the whole of the executor's buffers, so that it serves all values of the symbols: only grids depend on these.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ..plan.plan import KernelCall
from .attachment import Attachment
from .dispatch import Binder, BoundCall, Dispatch

#: Combinations of bound tensors that are kept for one combination of symbol values
KEPT_LISTS = 16
#: Grids for which the dispatch of a call is kept
KEPT_GRIDS = 64

Identity = tuple[tuple[str, int, int], ...]
Resolve = Callable[[str], tuple[Any, int]]


class _Prepared:
    """For given symbol values: dispatches of the calls inside (by position), and whole lists by bound tensors."""

    def __init__(self) -> None:
        self.inside: dict[int, Dispatch | None] = {}
        self.lists: OrderedDict[Identity, tuple[list[Dispatch], list[Any]]] = OrderedDict()


class BindGroups:
    """Dispatch lists of one executor, which serialises its use.  ``own`` names the buffers that are the executor's.

    A list is dropped when a buffer of the caller that it binds is collected: a bind group would keep the memory.
    """

    def __init__(self, binder: Binder, calls: Sequence[KernelCall], own: Container[str]) -> None:
        self._binder = binder
        self._calls = calls
        self._own = own
        self._ports = [
            {item.buffer for item in call.ranges if item.buffer.startswith(("input:", "output:"))} for call in calls
        ]
        self._prepared: dict[tuple[int, ...], _Prepared] = {}
        #: calls inside that are bound for all values of the symbols, with their dispatches by grid
        self._shared: dict[int, tuple[BoundCall, dict[tuple[int, int, int], Dispatch]]] = {}
        texts = [repr(call.grid) for call in calls]
        self._same_grid = [texts.index(text) for text in texts]  #: the first call with the grid of each

    def dispatches(
        self, values: tuple[int, ...], symbols: Mapping[str, int], attachment: Attachment, resolve: Resolve
    ) -> list[Dispatch]:
        """Return the calls with work to do, in order; ``resolve`` maps buffer names to buffers and offsets."""
        prepared = self._prepared.get(values)
        if prepared is None:
            prepared = self._prepared[values] = _Prepared()
        identity = attachment.identity()
        found = prepared.lists.get(identity)
        if found is not None:
            prepared.lists.move_to_end(identity)
            return found[0]
        spans = attachment.spans

        def locate(name: str) -> tuple[Any, int]:
            storage = spans.get(name)
            return resolve(name) if storage is None else (storage.gpu, storage.offset)

        made = []
        grids: dict[int, tuple[int, int, int] | None] = {}
        for index, (call, ports) in enumerate(zip(self._calls, self._ports)):
            if not ports.isdisjoint(spans):
                dispatch = self._binder.dispatch(call, symbols, locate)
            elif index in prepared.inside:
                dispatch = prepared.inside[index]
            else:
                dispatch = prepared.inside[index] = self._inside(index, call, symbols, resolve, grids)
            if dispatch is not None:
                made.append(dispatch)
        lists = prepared.lists

        def drop(_: Any) -> None:
            lists.pop(identity, None)

        lists[identity] = made, [weakref.ref(storage.gpu, drop) for storage in spans.values()]
        if len(lists) > KEPT_LISTS:
            lists.popitem(last=False)
        return made

    def _inside(
        self,
        index: int,
        call: KernelCall,
        symbols: Mapping[str, int],
        resolve: Resolve,
        grids: dict[int, tuple[int, int, int] | None],
    ) -> Dispatch | None:
        """Return the dispatch of a call that binds nothing of the caller's; ``grids`` are those for the symbols."""
        first = self._same_grid[index]
        if first not in grids:
            grids[first] = self._binder.grid(call, symbols)
        grid = grids[first]
        if grid is None:
            return None
        shared = self._shared.get(index)
        if shared is None:
            bound = self._binder.bind(call, symbols, resolve, self._own)
            if not bound.is_shared:
                return self._binder.place(call, bound, grid)
            shared = self._shared[index] = (bound, {})
        bound, placed = shared
        found = placed.get(grid)
        if found is None:
            if len(placed) >= KEPT_GRIDS:
                placed.clear()
            found = placed[grid] = self._binder.place(call, bound, grid)
        return found

    def forget(self, values: tuple[int, ...]) -> None:
        prepared = self._prepared.pop(values, None)
        if prepared is not None:
            prepared.lists.clear()  # its watchers refer to it

    def clear(self) -> None:
        """Drop all bind groups: a buffer of the plan was replaced."""
        self._shared.clear()
        for values in list(self._prepared):
            self.forget(values)
