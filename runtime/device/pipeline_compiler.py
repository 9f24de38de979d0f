"""Compiling the pipelines of a plan on several threads, beside the upload of its weights.

Most drivers compile a shader when its pipeline is created, on the thread that asks for it: threads that ask for
different pipelines of one device use several cores.

lavapipe translates a pipeline to machine code in the thread that executes its first dispatch, so the kernels of a plan
would be compiled one after the other on one core.  But Mesa's cache on the disk knows a shader by its text, not by its
device: what a second device of the adapter has compiled, the first one loads in milliseconds.  And a dispatch of no
workgroups compiles all the same, reads nothing and writes nothing.  There each thread also has a *sibling* of the
device, on which it dispatches its kernels empty.

Results never depend on it: what a thread could not compile is compiled, or refused, where it is first needed.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ..plan.errors import ShaderloomError
from ..plan.plan import Kernel
from . import compile_threads, native
from .device import Device, PipelineHolder

_LOG = logging.getLogger("shaderloom.device")

#: Bytes of WGSL from which the start of siblings, about 20 ms each, pays
_WORTH_BYTES = 100_000
#: Largest number of threads that compile, and of those that need a sibling each: an H200's driver gains no more
_MAX_THREADS = 14
_MAX_SIBLINGS = 8
#: Bytes of a binding of an empty dispatch: as many as a binding may have to be larger than one element
_BINDING_BYTES = 4096
_STORAGE, _UNIFORM = 0x80, 0x40
#: Seconds between two looks at the progress, which is also how soon a signal is handled
_SLICE = 0.05
#: Seconds after which a thread without work ends
_IDLE = 1.0
#: Seconds that :meth:`PipelineCompiler.stop` waits for a driver in the middle of a kernel
_PATIENCE = 0.2


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiles_late(device: Device) -> bool:
    """Return whether the driver compiles at the first dispatch, and shares what it compiled through a disk cache."""
    if os.environ.get("MESA_SHADER_CACHE_DISABLE", "").lower() in ("1", "true", "yes"):
        return False
    return native.AVAILABLE and device.working_queue is not None


class PipelineCompiler:
    """Creates the pipelines of the kernels that :meth:`add` gives it, the longest first, on threads of its own.

    It holds the pipelines for as long as it lives.  ``checked`` keeps bounds checks (see :meth:`Device.create_module`);
    ``progress`` is called in the thread that calls :meth:`finish`, with the pipelines created and their number.
    """

    def __init__(
        self,
        device: Device,
        *,
        checked: bool,
        max_wgsl_bytes: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._device = device
        self._checked = checked
        self._max_wgsl_bytes = max_wgsl_bytes
        self._progress = progress
        self._late = compiles_late(device)
        most = _MAX_SIBLINGS if self._late else _MAX_THREADS
        self._most_threads = 0 if device.is_opengl else min(cores(), most)  # threads would take turns
        self._queue: list[tuple[int, int, Kernel]] = []  #: a heap, the longest text first
        self._keys: set[str] = set()
        self._bytes = 0
        self._holders: list[PipelineHolder] = []
        self._threads: list[threading.Thread] = []
        self._compiling: list[Kernel] = []  #: one for each busy thread
        self._lock = threading.Condition()
        self._finishing = False
        self.done = 0  #: kernels that are compiled, or whose compilation has failed
        self.on_siblings = 0  #: kernels that were compiled on siblings of the device

    @property
    def is_running(self) -> bool:
        """Whether a thread compiles, or waits for a kernel."""
        return any(thread.is_alive() for thread in tuple(self._threads))

    def add(self, kernel: Kernel) -> None:
        """Compile ``kernel`` soon; one that was added before is ignored."""
        with self._lock:
            if kernel.key in self._keys:
                return
            self._keys.add(kernel.key)
            heapq.heappush(self._queue, (-len(kernel.wgsl), len(self._keys), kernel))
            self._bytes += len(kernel.wgsl)
            if not self._late or self._bytes >= _WORTH_BYTES:
                self._start_threads()
            self._lock.notify()

    def finish(self) -> None:
        """Wait until every kernel is compiled; where no thread was worth its start they are left to their first use."""
        with self._lock:
            self._finishing = True
            self._lock.notify_all()
        for thread in tuple(self._threads):
            while thread.is_alive():
                thread.join(_SLICE)
                self._report()
        if self._queue:
            self._report()  # of none, which the first run compiles

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self.done, len(self._keys))

    def stop(self) -> None:
        """Start no further kernel; a driver in the middle of one is waited for a moment and then left to itself."""
        with self._lock:
            self._queue.clear()
            self._finishing = True
            self._lock.notify_all()
        end = time.monotonic() + _PATIENCE
        for thread in tuple(self._threads):
            thread.join(max(end - time.monotonic(), 0.0))
        for kernel in tuple(self._compiling):
            _LOG.info("the driver still compiles kernel %s (%s)", kernel.id, kernel.template)

    def _start_threads(self) -> None:
        """Start a thread for each kernel that no idle one is there for, as far as the number of threads allows."""
        idle = len(self._threads) - len(self._compiling)
        for _ in range(min(len(self._queue) - idle, self._most_threads - len(self._threads))):
            self._threads.append(compile_threads.start(self._work, len(self._threads)))

    def _next(self) -> Kernel | None:
        """Return the longest kernel that is left; None when no more will come, or none has come for a while."""
        with self._lock:
            if compile_threads.process_ends():
                return None
            while not self._queue:
                if self._finishing:
                    return None
                if not self._lock.wait(_IDLE) and not self._queue:
                    self._threads.remove(threading.current_thread())  # the next kernel starts another one
                    return None
            kernel = heapq.heappop(self._queue)[-1]
            self._compiling.append(kernel)
            return kernel

    def _work(self) -> None:
        with contextlib.ExitStack() as stack:
            empty = None
            if self._late:
                with contextlib.suppress(ShaderloomError):  # without a sibling the kernels are left to their first use
                    sibling = self._device.sibling()
                    stack.callback(sibling.gpu.destroy)
                    empty = stack.enter_context(_EmptyDispatches(sibling))
            while (kernel := self._next()) is not None:
                with contextlib.suppress(ShaderloomError):  # raised again where the kernel is first needed
                    holder = self._pipeline(self._device, kernel)
                    self._holders.append(holder)
                    if empty is not None:
                        empty.dispatch(kernel, self._pipeline(empty.device, kernel))
                        self.on_siblings += 1
                with self._lock:
                    self._compiling.remove(kernel)
                    self.done += 1

    def _pipeline(self, device: Device, kernel: Kernel) -> PipelineHolder:
        return device.pipeline(kernel, checked=self._checked, max_wgsl_bytes=self._max_wgsl_bytes)


class _EmptyDispatches:
    """Dispatches of no workgroups on one device, which make its driver compile; it owns the buffers that they bind."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._buffers: dict[tuple[int, bool], Any] = {}

    def __enter__(self) -> _EmptyDispatches:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._buffers.values():
            buffer.destroy()

    def dispatch(self, kernel: Kernel, holder: PipelineHolder) -> None:
        """Dispatch ``kernel`` over an empty grid and wait for it."""
        device = self.device
        entries = [
            {"binding": index, "resource": self._resource(index, binding.is_uniform)}
            for index, binding in enumerate(kernel.bindings)
        ]
        what = f"compiling kernel {kernel.id} ahead"
        with device.guarded(what):
            group = device.gpu.create_bind_group(layout=holder.pipeline.layout, entries=entries)
            encoder = device.gpu.create_command_encoder()
            compute_pass = encoder.begin_compute_pass()
            compute_pass.set_pipeline(holder.pipeline.pipeline)
            offsets = [0 for binding in kernel.bindings if binding.access == "iteration"]
            compute_pass.set_bind_group(0, group, offsets)
            compute_pass.dispatch_workgroups(0, 0, 0)
            compute_pass.end()
            commands = encoder.finish()
        device.submit([commands], what)
        device.wait()

    def _resource(self, index: int, uniform: bool) -> dict[str, Any]:
        buffer = self._buffers.get((index, uniform))
        if buffer is None:
            usage = _UNIFORM if uniform else _STORAGE
            buffer = self._buffers[index, uniform] = self.device.create_buffer(_BINDING_BYTES, usage, "compile")
        return {"buffer": buffer, "offset": 0, "size": _BINDING_BYTES}
