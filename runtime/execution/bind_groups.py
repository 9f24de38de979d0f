"""Bind groups of a plan's calls: made once for each combination of symbol values and of bound tensors.

Calls that touch neither inputs nor outputs have one bind group for given symbol values, whatever is bound outside.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plan.plan import KernelCall
from .attachment import Attachment
from .dispatch import Binder, Dispatch

#: Combinations of bound tensors that are kept for one combination of symbol values
KEPT_LISTS = 16

Identity = tuple[tuple[str, int, int], ...]
Resolve = Callable[[str], tuple[Any, int]]


class _Prepared:
    """For given symbol values: dispatches of the calls inside (by position), and whole lists by bound tensors."""

    def __init__(self) -> None:
        self.inside: dict[int, Dispatch | None] = {}
        self.lists: OrderedDict[Identity, tuple[list[Dispatch], list[Any]]] = OrderedDict()


class BindGroups:
    """Dispatch lists of one executor, which serialises its use.

    A list is dropped when a buffer of the caller that it binds is collected: a bind group would keep the memory.
    """

    def __init__(self, binder: Binder, calls: Sequence[KernelCall]) -> None:
        self._binder = binder
        self._calls = calls
        self._outside = [any(item.buffer.startswith(("input:", "output:")) for item in call.ranges) for call in calls]
        self._prepared: dict[tuple[int, ...], _Prepared] = {}

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
        for index, (call, outside) in enumerate(zip(self._calls, self._outside)):
            if outside:
                dispatch = self._binder.dispatch(call, symbols, locate)
            elif index in prepared.inside:
                dispatch = prepared.inside[index]
            else:
                dispatch = prepared.inside[index] = self._binder.dispatch(call, symbols, locate)
            if dispatch is not None:
                made.append(dispatch)
        lists = prepared.lists

        def drop(_: Any) -> None:
            lists.pop(identity, None)

        lists[identity] = made, [weakref.ref(storage.gpu, drop) for storage in spans.values()]
        if len(lists) > KEPT_LISTS:
            lists.popitem(last=False)
        return made

    def forget(self, values: tuple[int, ...]) -> None:
        prepared = self._prepared.pop(values, None)
        if prepared is not None:
            prepared.lists.clear()  # its watchers refer to it

    def clear(self) -> None:
        """Drop all bind groups: a buffer of the plan was replaced."""
        for values in list(self._prepared):
            self.forget(values)
