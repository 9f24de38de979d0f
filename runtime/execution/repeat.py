"""Cached submission for repeated runs with identical bindings: tensors of the device in and out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any

from ..memory.storage import Storage, pinned
from ..memory.tensor import Tensor
from ..plan.record import record
from .dispatch import Dispatch
from .recording import Recording

#: Lists of dispatches that follow a run in turns: scans of its outputs, and at times of the caches, too
MOST_FOLLOWED = 4


@record
class RepeatedRun:
    """Weak references to the tensors of a run, and the commands that it submitted.

    The shape, type and storage of a tensor never change, so the same tensors are bound the same way.  Memory that the
    caller owns and may destroy is looked up at every run, and is no part of this.
    """

    tensors: dict[str, weakref.ref[Tensor]]  #: of inputs, then of outputs, each by the name in the model
    inputs: int
    storages: tuple[Storage, ...]
    recording: Recording
    watched: tuple[weakref.ref[Any], ...]
    #: the latest dispatches that followed, by their identity, and the recordings with them: the same objects for the
    #: same dispatches
    followed: dict[int, tuple[list[Dispatch], Recording]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, feeds: Mapping[str, Any], targets: Mapping[str, Any], recording: Recording, forget: Callable[[Any], None]
    ) -> RepeatedRun | None:
        """Return the run for replay, or None unless all values are tensors on the device in memory of their own.

        ``forget`` is called when the buffer of one is collected.
        """
        tensors = {}
        storages = []
        for kind, bound in (("in:", feeds), ("out:", targets)):
            for name, tensor in bound.items():
                if not isinstance(tensor, Tensor) or tensor.location != "gpu-buffer" or tensor._storage.borrowed:
                    return None
                tensors[kind + name] = weakref.ref(tensor)
                storages.append(tensor._storage)
        watched = tuple(weakref.ref(storage.gpu, forget) for storage in storages)
        return cls(tensors, len(feeds), tuple(storages), recording, watched)

    def is_same(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> bool:
        """Return whether a run has exactly these tensors."""
        tensors = self.tensors
        if len(feeds) != self.inputs or len(feeds) + len(targets) != len(tensors):
            return False
        for kind, bound in (("in:", feeds), ("out:", targets)):
            for name, tensor in bound.items():
                reference = tensors.get(kind + name)
                if reference is None or reference() is not tensor:
                    return False
        return not any(storage.released for storage in self.storages)

    def followed_by(self, behind: list[Dispatch] | None) -> Recording:
        """Return the recording with further dispatches behind it."""
        if behind is None:
            return self.recording
        followed = self.followed.get(id(behind))
        if followed is None:
            if len(self.followed) >= MOST_FOLLOWED:
                self.followed.clear()
            dispatches = [*self.recording.dispatches, *behind]
            followed = self.followed[id(behind)] = behind, Recording(self.recording.before, dispatches, ())
        return followed[1]

    def pinned(self) -> AbstractContextManager[None]:
        """Pin the memory while the run is submitted."""
        return pinned(self.storages)

    def buffers(self) -> Iterable[Any]:
        return [storage.gpu for storage in self.storages]
