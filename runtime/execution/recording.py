"""Recordings of submissions, their command buffers, and command buffers that are encoded ahead.

A command buffer can be submitted once, so replaying a plan means encoding it again, at several microseconds a call.  A
caller who runs a model in a loop mostly repeats a run exactly: the same dispatches, the same copies.  Then the commands
of the next run are encoded while the device works on the present one.  Any other run of many calls is encoded and
submitted in pieces, so that the device begins while the rest is encoded.

wgpu-native never frees a command buffer that was finished and not submitted, nor the buffers in it that are not
destroyed (0.1 MB each with llvmpipe).  So commands that were encoded in vain make the next ones rarer.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from ..device import native
from ..device.device import Device
from ..device.forking import is_forked
from ..device.working_queue import LONG
from ..plan.record import record
from .dispatch import BufferCopy, Dispatch, encode

#: Dispatches of a piece of a run: the device takes longer for them than the host for the next ones
PIECE = 64
#: Recordings that are remembered
MOST_REMEMBERED = 8
#: The most repetitions after which a run is encoded ahead: at first one, twice as many each time that it was in vain
MOST_REPETITIONS = 1024


class EncodedCommands:
    """Encoded commands; ``submit`` must be called at most once."""

    def __init__(self, device: Device, recorded: Any, *, is_native: bool) -> None:
        self._device = device
        self._recorded = recorded
        self._is_native = is_native

    def submit(self, *, may_last: bool = True) -> None:
        """Submit the commands to the device; without ``may_last`` the kernels are known to be short."""
        recorded, self._recorded = self._recorded, None
        if self._is_native:
            self._device.submit_recorded(recorded, "submitting a run", may_last=may_last)
        else:
            self._device.submit([recorded], "submitting a run")

    def __del__(self) -> None:
        if self._is_native and self._recorded is not None and not is_forked():
            native.release_recorded(self._recorded)


@record
class Recording:
    """Copies, one compute pass of the dispatches of all ``lists``, and copies, in this order.

    The lists must not be changed.
    """

    before: Sequence[BufferCopy]
    lists: tuple[list[Dispatch], ...]
    after: Sequence[BufferCopy]

    @property
    def dispatches(self) -> list[Dispatch]:
        return self.lists[0] if len(self.lists) == 1 else [each for several in self.lists for each in several]

    @property
    def is_empty(self) -> bool:
        return not (self.before or any(self.lists) or self.after)

    def pieces(self) -> list[Recording]:
        """Return recordings of the same commands in the same order, to be submitted one after another."""
        dispatches = self.dispatches
        starts = range(0, max(len(dispatches), 1), PIECE)
        return [
            Recording(
                self.before if start == 0 else (),
                (dispatches[start : start + PIECE],),
                self.after if start == starts[-1] else (),
            )
            for start in starts
        ]

    def identity(self) -> tuple[Any, ...]:
        """Return a key that is equal for recordings of the same commands, while the lists of dispatches are alive."""
        copies = [
            (copy.source.uid, copy.source_offset, copy.target.uid, copy.target_offset, copy.size)
            for copy in (*self.before, *self.after)
        ]
        return (*map(id, self.lists), len(self.before), *copies)

    def encode(self, device: Device, *, use_native: bool) -> EncodedCommands:
        with device.guarded("encoding a run"):
            if use_native:
                recorded = native.record(
                    device.gpu,
                    [copy.raw for copy in self.before],
                    [dispatch.raw for dispatch in self.dispatches],
                    [copy.raw for copy in self.after],
                )
                return EncodedCommands(device, recorded, is_native=True)
            encoder = device.gpu.create_command_encoder()
            for copy in self.before:
                encoder.copy_buffer_to_buffer(*copy.arguments)
            dispatches = self.dispatches
            if dispatches:
                compute_pass = encoder.begin_compute_pass()
                encode(compute_pass, dispatches, use_native=False)
                compute_pass.end()
            for copy in self.after:
                encoder.copy_buffer_to_buffer(*copy.arguments)
            return EncodedCommands(device, encoder.finish(), is_native=False)


class _Repeated:
    """A recording that may be submitted again: how often it was, and the commands of the next time.

    ``watched`` refers to its buffers.  The recording itself is referred to, so that no other one has its identity.
    """

    __slots__ = ("commands", "count", "recording", "watched")

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.count = 0
        self.commands: EncodedCommands | None = None
        self.watched: list[Any] = []


class Replay:
    """Submits recordings of the same kernels; one that repeats an earlier recording is encoded ahead for the next time.

    It remembers the latest :data:`MOST_REMEMBERED` recordings, as callers take turns with a few tensors, and runs with
    a scan behind them come in between.  The executor serialises its use.  Commands that wait are given up when a buffer
    that they name is collected, because they would keep its memory.  They are never submitted after such a buffer was
    destroyed: only a run that binds the same living buffers asks for them.
    """

    def __init__(self, device: Device, *, use_native: bool) -> None:
        self._device = device
        self._use_native = use_native
        self._may_last = True  #: the kernels may not have run yet, or were long
        self._remembered: OrderedDict[tuple[Any, ...], _Repeated] = OrderedDict()
        self._needed = 1

    def submit(self, recording: Recording, bound: Iterable[Any]) -> None:
        """Submit; if the device refuses a piece, those before it run.

        ``bound`` are the buffers of tensors in its bind groups.
        """
        identity = recording.identity()
        repeated = self._remembered.get(identity)
        try:
            if repeated is None:
                self._submit_pieces(recording)
                self._remember(identity, recording, bound)
                return
            self._remembered.move_to_end(identity)
            repeated.count += 1
            commands, repeated.commands = repeated.commands, None
            if commands is not None:
                commands.submit(may_last=self._may_last)
            else:
                self._submit_pieces(recording)
            if repeated.count >= self._needed:
                repeated.commands = recording.encode(self._device, use_native=self._use_native)
        except BaseException:
            self.clear()
            raise

    def submit_once(self, recording: Recording) -> None:
        """Submit a recording that no later run will repeat."""
        self._submit_pieces(recording)

    def _submit_pieces(self, recording: Recording) -> None:
        start = time.perf_counter()
        for piece in recording.pieces():
            piece.encode(self._device, use_native=self._use_native).submit(may_last=self._may_last)
        if any(recording.lists):
            self._may_last = time.perf_counter() - start > LONG

    def _remember(self, identity: tuple[Any, ...], recording: Recording, bound: Iterable[Any]) -> None:
        repeated = self._remembered[identity] = _Repeated(recording)
        buffers = [*bound, *(end for copy in (*recording.before, *recording.after) for end in copy.ends)]
        repeated.watched = [weakref.ref(buffer, lambda _: self._forget(identity)) for buffer in buffers]
        if len(self._remembered) > MOST_REMEMBERED:
            self._give_up(self._remembered.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all recordings."""
        for identity in tuple(self._remembered):
            self._forget(identity)

    def _forget(self, identity: tuple[Any, ...]) -> None:
        """Forget a recording.  Called in any thread, when a buffer was collected."""
        repeated = self._remembered.pop(identity, None)
        if repeated is not None:
            self._give_up(repeated)

    def _give_up(self, repeated: _Repeated) -> None:
        """Give up the commands that wait, if there are some.  Of two threads that do so at once one may not count."""
        if repeated.commands is not None:
            self._needed = min(2 * self._needed, MOST_REPETITIONS)
