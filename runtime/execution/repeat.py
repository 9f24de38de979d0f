"""Cached submission for repeated runs with identical bindings: tensors of the device in and out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..memory.storage import Storage, pinned
from ..memory.tensor import Tensor
from ..plan.record import record
from .dispatch import Dispatch
from .recording import Recording


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
        recording = self.recording
        return recording if behind is None else Recording(recording.before, (*recording.lists, behind), ())

    def pinned(self) -> AbstractContextManager[None]:
        """Pin the memory while the run is submitted."""
        return pinned(self.storages)

    def buffers(self) -> Iterable[Any]:
        return [storage.gpu for storage in self.storages]
