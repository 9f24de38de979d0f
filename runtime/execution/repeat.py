"""Cached submission for repeated runs with identical bindings: tensors of the device in and out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

from ..memory.storage import Storage, pinned
from ..memory.tensor import Tensor
from .dispatch import Dispatch
from .recording import Recording


class Behind(Protocol):
    """Dispatches on the tensors of a run, its inputs and its outputs, that follow in the same submission.

    They are the same list for the same tensors as long as the ``stamp`` is the same; None: none follow.
    """

    @property
    def stamp(self) -> int: ...

    def __call__(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Dispatch] | None: ...


@dataclass(eq=False, slots=True)
class RepeatedRun:
    """Weak references to the tensors of a run, and the commands that it submitted.

    The shape, type and storage of a tensor never change, so the same tensors are bound the same way.  Memory that the
    caller owns and may destroy is looked up at every run, and is no part of this.
    """

    names: tuple[str, ...]  #: of inputs, then of outputs, in the caller's order
    inputs: int
    tensors: tuple[weakref.ref[Tensor], ...]
    storages: tuple[Storage, ...]
    recording: Recording
    watched: tuple[weakref.ref[Any], ...]
    _followed: tuple[int, Recording] | None = field(default=None, init=False)  #: the stamp of what follows, and all

    @classmethod
    def of(
        cls, feeds: Mapping[str, Any], targets: Mapping[str, Any], recording: Recording, forget: Callable[[Any], None]
    ) -> RepeatedRun | None:
        """Return the run for replay, or None unless all values are tensors on the device in memory of their own.

        ``forget`` is called when the buffer of one is collected.
        """
        tensors = (*feeds.values(), *targets.values())
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or tensor.location != "gpu-buffer" or tensor._storage.borrowed:
                return None
        storages = tuple(tensor._storage for tensor in tensors)
        watched = tuple(weakref.ref(storage.gpu, forget) for storage in storages)
        return cls((*feeds, *targets), len(feeds), tuple(map(weakref.ref, tensors)), storages, recording, watched)

    def is_same(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> bool:
        """Return whether a run has exactly these tensors, in this order."""
        if len(feeds) != self.inputs or (*feeds, *targets) != self.names:
            return False
        for reference, tensor in zip(self.tensors, chain(feeds.values(), targets.values())):
            if reference() is not tensor:
                return False
        return not any(storage._released for storage in self.storages)

    def followed_by(self, behind: Behind | None, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> Recording:
        """Return the recording with further dispatches behind it."""
        if behind is None:
            return self.recording
        stamp = behind.stamp  # read first: what is asked for may change it
        if self._followed is None or self._followed[0] != stamp:
            further, recording = behind(feeds, targets), self.recording
            if further is not None:
                recording = Recording(recording.before, (*recording.lists, further), ())
            self._followed = stamp, recording
        return self._followed[1]

    def pinned(self) -> AbstractContextManager[None]:
        """Pin the memory while the run is submitted."""
        return pinned(self.storages)

    def buffers(self) -> Iterable[Any]:
        return [storage.gpu for storage in self.storages]
