"""Runs whose outputs are not finite although their inputs are: they call for a calibration, once.

Of models that have halves alone: a run of float32 costs nothing.  Arrays that a run reads back are looked at on the
host.  Tensors that stay on the device are looked at there (:mod:`..runtime.execution.finite_scan`): the first run of a
plan waits for the answer, as it has compiled the plan anyway, and may be repeated.  Of later runs the answer comes
afterwards, with a warning, and from then on runs wait for it until one was measured.

An output in the memory of an input, of which a run writes a part (a cache in place), is looked at from time to time:
what one run writes is there for the next ones, and a cache is much more to read than its new rows.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..model.header import ModelHeader
from ..notices import notify
from ..runtime.execution.attachment import Target
from ..runtime.execution.dispatch import Dispatch
from ..runtime.execution.finite_scan import FiniteScan, ScannedTensor, Suspicion, can_scan
from ..runtime.execution.scan_kernels import ANY_KIND, NOT_A_NUMBER
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import ShaderloomError
from ..runtime.plan.record import record
from .resources import DeviceResources

#: Elements that are looked at together: they stay in the processor's cache
_CHUNK = 1 << 16
#: For each float: an unsigned integer of its width, and the bits of its exponent
_EXPONENTS = {
    "float16": (np.uint16, 0x7C00),
    "bfloat16": (np.uint16, 0x7F80),
    "float32": (np.uint32, 0x7F800000),
    "float64": (np.uint64, 0x7FF0000000000000),
}
Calibrate = Callable[[Mapping[str, Any]], bool]
#: Shapes of the inputs by name
_Shapes = tuple[tuple[str, tuple[int, ...]], ...]
#: Names of outputs that are not finite, and whether they hold NaN
_Kinds = frozenset[tuple[str, bool]]
#: Runs of which one scans caches in place: a prime number, so that it meets all caches that take turns.  They are
#: counted, not timed, since a slow device reads a long cache for longer than a pause that suits a fast one
STATE_RUNS = 251
#: Kinds of outputs for which a calibration has changed nothing, and plans that have run; all are dropped beyond
_SETTLED = 256


class OverflowWatch:
    """Tells runs that call for a calibration from those whose outputs are infinite by the model's own doing.

    ``calibrate`` measures the model on inputs and returns whether plans depend on other magnitudes then.
    """

    def __init__(self, header: ModelHeader, resources: DeviceResources) -> None:
        self.waits = False  #: every run waits for its answer, because an earlier one has overflowed
        self._resources = resources
        # the elements of other outputs are the caller's own, or the file's
        computed = [port.name for port in header.outputs if port.name not in header.moved]
        self._outputs = {name: slot for slot, name in enumerate(computed)}
        inputs = (*header.inputs, *header.overridable)
        self._inputs = {port.name: len(self._outputs) + slot for slot, port in enumerate(inputs)}
        self._settled: set[tuple[_Shapes, _Kinds]] = set()
        self._warned: set[_Kinds] = set()  #: of runs that cannot be repeated
        self._allowed: dict[str, int] = {}  #: kinds of elements of outputs for which a calibration has changed nothing
        self._ran: set[str | _Shapes] = set()  #: plans of which a run was looked at
        self._scan: FiniteScan | None = None
        self._changes = 0  #: of what is scanned behind a repeated run
        self._before_states = STATE_RUNS  #: runs until caches in place are scanned
        self._passed: dict[str, weakref.ref[Tensor]] = {}  #: those that runs since then have written
        self._closed = False
        self._lock = threading.RLock()

    # -- a run ---------------------------------------------------------------------------------------------------------

    def before(self, calibrate: Calibrate, feeds: Mapping[str, Any], targets: Mapping[str, Target]) -> None:
        """Learn what earlier runs have come to; if one has overflowed, measure a run ahead that cannot be repeated."""
        self.poll()
        if self.waits and _overwritten(feeds, targets) and all(map(_is_ordinary, feeds.values())):
            self._measure(calibrate, feeds)

    def must_repeat(
        self,
        calibrate: Calibrate,
        plan: str | None,
        feeds: Mapping[str, Any],
        targets: Mapping[str, Target],
        results: Mapping[str, Any],
        states: Collection[str] = (),
    ) -> bool:
        """Look at the ``results`` of a run; calibrate if they call for it, and return whether to repeat the run.

        That happens once for outputs of one kind: one that is infinite in any plan is not looked at again.  A run that
        has overwritten an input cannot be repeated.  ``plan`` names the plan that ran, None for a program of several;
        ``states`` are outputs of which it writes a part.
        """
        identity = plan or _shapes(feeds)
        waits = self.waits or identity not in self._ran
        kinds = self._kinds(feeds, results, () if waits else states, waits=waits)
        self._add(self._ran, identity)
        if not kinds or (_shapes(feeds), kinds) in self._settled:
            return False
        if _overwritten(feeds, targets):
            if kinds not in self._warned:
                self._add(self._warned, kinds)
                self.waits = True
                notify(
                    f"{_named(kinds)} not finite, of a run that has overwritten its inputs and cannot be repeated: if "
                    "these were finite, start again from inputs that are; the next run is measured first"
                )
            return False
        if not all(map(_is_ordinary, feeds.values())):
            return False
        if self._measure(calibrate, feeds):
            return True
        self._settle(feeds, kinds)
        return False

    def after_repetition(self, feeds: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Ask for no further calibration for inputs of these shapes and outputs like the ``results``."""
        self._settle(feeds, self._kinds(feeds, results, (), waits=True))

    def _measure(self, calibrate: Calibrate, feeds: Mapping[str, Any]) -> bool:
        self.waits = False
        try:
            return calibrate(feeds)
        except ShaderloomError as error:
            notify(f"an output is not finite, and what overflows cannot be measured: {error}", once=f"widen {error}")
        return False

    def _settle(self, feeds: Mapping[str, Any], kinds: _Kinds) -> None:
        self._add(self._settled, (_shapes(feeds), kinds))
        for name, has_nan in kinds:
            self._changes += 1
            self._allowed[name] = self._allowed.get(name, 0) | (ANY_KIND if has_nan else ANY_KIND & ~NOT_A_NUMBER)
            if has_nan:
                notify(
                    f"output {name} holds NaN although no input does, and float32 in place of float16 does not "
                    "change that",
                    once=f"NaN {name}",
                )

    @staticmethod
    def _add(members: set[Any], element: Any) -> None:
        if len(members) >= _SETTLED:
            members.clear()
        members.add(element)

    def _kinds(
        self, feeds: Mapping[str, Any], results: Mapping[str, Any], states: Collection[str], *, waits: bool
    ) -> _Kinds:
        """Return the outputs that are not finite; those on the device only where the run ``waits`` for the answer."""
        results = self._computed(results)
        kinds = _kinds(results)
        if any(map(can_scan, results.values())):
            with self._lock:
                if waits:
                    self._report(self._look())
                self._scan_behind(feeds, results, states)
                suspicion = self._look() if waits else None
            if suspicion is not None:
                kinds |= self._named_kinds(suspicion)
        return kinds

    # -- tensors on the device -----------------------------------------------------------------------------------------

    def _computed(self, results: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in results.items() if name in self._outputs}

    def _scan_behind(self, feeds: Mapping[str, Any], results: Mapping[str, Any], states: Collection[str]) -> None:
        """Scan the results of a run on the device, unless an input from the host says enough."""
        if not all(_is_ordinary(feed) for feed in feeds.values() if not isinstance(feed, Tensor)):
            return
        with self._lock:
            if not self._closed:
                self._opened().submit(*self._scanned(feeds, results, states))
                self._before_states -= 1
        for tensor in filter(can_scan, results.values()):
            tensor.watch(self._after_download)

    def behind(self, states: Collection[str]) -> ScanBehind:
        """Return what scans the repeated runs of a plan, to be submitted with each; :meth:`count` follows.

        ``states`` are those of :meth:`must_repeat`.
        """
        return ScanBehind(self, states)

    def stamp(self, states: Collection[str]) -> int:
        """Return a number that changes when the :meth:`dispatches` for the same tensors do."""
        if states and self._scans_states():
            self._changes += 1
        return self._changes

    def dispatches(
        self, states: Collection[str], feeds: Mapping[str, Tensor], targets: Mapping[str, Tensor]
    ) -> list[Dispatch] | None:
        """Return the dispatches that scan a repeated run; None for nothing to scan."""
        with self._lock:
            if self._scan is None:  # no run before had an output to scan
                return None
            outputs, inputs = self._scanned(feeds, self._computed(targets), states)
            return self._scan.dispatches(outputs, inputs) if outputs else None

    def count(self) -> None:
        """Count a run that was submitted with the :meth:`dispatches` behind it."""
        with self._lock:
            self._before_states -= 1
            if self._scan is not None:
                self._scan.count()

    def _scanned(
        self, feeds: Mapping[str, Any], results: Mapping[str, Any], states: Collection[str]
    ) -> tuple[list[ScannedTensor], list[ScannedTensor]]:
        outputs = {name: value for name, value in results.items() if can_scan(value)}
        written = {tensor._storage.gpu.uid for tensor in outputs.values()}
        inputs = {name: feed for name, feed in feeds.items() if can_scan(feed) and feed._storage.gpu.uid not in written}
        for name in self._states_to_pass(feeds, outputs, states):
            self._passed[name] = weakref.ref(outputs.pop(name))
        return (
            [ScannedTensor(self._outputs[name], each, self._allowed.get(name, 0)) for name, each in outputs.items()],
            [ScannedTensor(self._inputs[name], each) for name, each in inputs.items()],
        )

    def _states_to_pass(
        self, feeds: Mapping[str, Any], outputs: Mapping[str, Tensor], states: Collection[str]
    ) -> list[str]:
        """Return the caches in place that need no scan now."""
        if not states:
            return []
        if self._scans_states():
            self._before_states = STATE_RUNS
            self._passed.clear()
            self._changes += 1  # the next run may pass them
            return []
        read = {feed._storage.gpu.uid for feed in feeds.values() if can_scan(feed)}
        return [name for name in states if name in outputs and outputs[name]._storage.gpu.uid in read]

    def _scans_states(self) -> bool:
        return self._before_states <= 0

    def _scan_passed(self) -> None:
        """Scan the caches that runs have written since they were scanned."""
        tensors = {name: reference() for name, reference in self._passed.items()}
        self._passed.clear()
        alive = [
            ScannedTensor(self._outputs[name], tensor, self._allowed.get(name, 0))
            for name, tensor in tensors.items()
            if tensor is not None and not tensor.disposed
        ]
        if alive and not self._closed:
            self._opened().submit(alive, [])

    def _opened(self) -> FiniteScan:
        if self._scan is None:
            self._changes += 1
            self._scan = FiniteScan(self._resources.device, (len(self._outputs), len(self._inputs)))
        return self._scan

    def poll(self) -> None:
        """Report runs that turned out to be suspicious, without waiting."""
        if self._scan is not None:
            with self._lock:
                self._report(None if self._scan is None else self._scan.poll())

    def report(self) -> None:
        """Wait for the scans so far and report suspicious runs; caches in place are not read for it."""
        with self._lock:
            self._report(self._look())

    def finish(self) -> None:
        """Do what :meth:`report` does, of all runs so far: scan the caches that some of them have passed."""
        with self._lock:
            self._scan_passed()
            self.report()

    def close(self) -> None:
        """Scan no further run."""
        self._closed = True
        self.reset()

    def reset(self) -> None:
        """Leave the device: the next run of each plan is the first one on another."""
        with self._lock:
            self._scan = None
            self._changes += 1
            self._passed.clear()
            self._ran.clear()

    def _after_download(self, array: np.ndarray) -> None:
        if not is_finite(array):
            self.finish()

    def _look(self) -> Suspicion | None:
        return None if self._scan is None or not self._scan.is_pending else self._scan.look()

    def _named_kinds(self, suspicion: Suspicion) -> _Kinds:
        kinds = zip(self._outputs, suspicion.kinds)
        return frozenset((name, bool(kind & NOT_A_NUMBER)) for name, kind in kinds if kind)

    def _report(self, suspicion: Suspicion | None) -> None:
        if suspicion is None:
            return
        self.waits = True
        runs = (
            f"run {suspicion.first}" if suspicion.runs == 1 else f"{suspicion.runs} runs from run {suspicion.first} on"
        )
        notify(
            f"{_named(self._named_kinds(suspicion))} not finite in {runs} with outputs on the device, although the "
            "inputs were: a tensor that is stored as float16 has left its range; the next run in which that "
            "happens is measured and repeated with float32 in its place (session.calibrate does it at once)"
        )


@record
class ScanBehind:
    """Scans the repeated runs of a plan that writes a part of each of its outputs ``states``."""

    watch: OverflowWatch
    states: Collection[str]

    @property
    def stamp(self) -> int:
        return self.watch.stamp(self.states)

    def __call__(self, feeds: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> list[Dispatch] | None:
        return self.watch.dispatches(self.states, feeds, targets)


def _named(kinds: _Kinds) -> str:
    names = sorted({name for name, _ in kinds})
    return f"outputs {', '.join(names)} are" if len(names) > 1 else f"output {names[0]} is"


def _overwritten(feeds: Mapping[str, Any], targets: Mapping[str, Target]) -> bool:
    """Return whether a run writes outputs to memory of its inputs."""
    written = {target._storage.gpu.uid for target in targets.values() if isinstance(target, Tensor)}
    return bool(written) and any(
        isinstance(feed, Tensor) and feed._storage.gpu.uid in written for feed in feeds.values()
    )


def _shapes(feeds: Mapping[str, Any]) -> _Shapes:
    return tuple((name, getattr(feed, "shape", ())) for name, feed in feeds.items())


def _kinds(results: Mapping[str, Any]) -> _Kinds:
    """Return the arrays that are not finite: their names, and whether they hold NaN."""
    return frozenset(
        (name, bool(np.isnan(array.astype(np.float32)).any()))
        for name, array in results.items()
        if isinstance(array, np.ndarray) and not is_finite(array)
    )


def is_finite(array: np.ndarray) -> bool:
    """Return whether an array has no NaN and no infinity, by the exponents of its elements."""
    kind = _EXPONENTS.get(array.dtype.name)
    if kind is None:
        return True
    bits, mask = np.ascontiguousarray(array).reshape(-1).view(kind[0]), kind[0](kind[1])
    return not any((bits[start : start + _CHUNK] & mask).max() == mask for start in range(0, bits.size, _CHUNK))


def _is_ordinary(feed: Any) -> bool:
    array = feed.numpy() if isinstance(feed, Tensor) else feed
    if not isinstance(array, np.ndarray) or is_finite(array):
        return True
    return not np.isnan(array.astype(np.float32)).any() and bool((array < np.inf).all())
