"""Compiling on several cores, for a driver that compiles a shader in its queue when it is first dispatched.

lavapipe translates a pipeline to machine code in the thread that executes its first dispatch, so the kernels of a plan
would be compiled one after the other on one core: most of a cold start.  But Mesa's cache on the disk knows a shader by
its text, not by its device: what a second device of the adapter has compiled, the first one loads in milliseconds.  And
a dispatch of no workgroups compiles all the same, reads nothing and writes nothing.

So while a plan is prepared, *twins* of its device take kernels from a common list, the longest first, and dispatch them
empty; the device itself joins them when its weights are made.  Results never depend on it: a kernel that a twin could
not compile is compiled, or refused, by the device as if there were no twins.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from ..plan.errors import ShaderloomError
from ..plan.plan import Kernel
from . import native
from .device import Device

#: Parts of the names of adapters whose driver compiles so
_LATE_COMPILERS = ("llvmpipe",)
#: Bytes of WGSL from which twins are worth their start, about 20 ms each
_WORTH_BYTES = 100_000
#: Threads that compile, the caller's included
_MOST_THREADS = 4
#: Bytes of a binding of an empty dispatch: as many as a binding may have to be larger than one element
_BINDING_BYTES = 4096
_STORAGE, _UNIFORM = 0x80, 0x40


def threads_for(device: Device, kernels: Sequence[Kernel]) -> int:
    """Return the number of threads to compile these kernels with; less than 2 if the driver does not benefit."""
    name = device.name.lower()
    shares = os.environ.get("MESA_SHADER_CACHE_DISABLE", "").lower() not in ("1", "true", "yes")
    long_enough = sum(len(kernel.wgsl) for kernel in kernels) >= _WORTH_BYTES
    if not (native.AVAILABLE and shares and long_enough and any(part in name for part in _LATE_COMPILERS)):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS, len(kernels))


class CompileAhead:
    """Compiles kernels on twins of a device from :meth:`start` on, and on the device itself in :meth:`finish`.

    :meth:`stop` ends it early and may be called at any time; it waits for at most one kernel a thread.
    """

    def __init__(self, device: Device, kernels: Sequence[Kernel], *, checked: bool, max_wgsl_bytes: int) -> None:
        self._device = device
        self._checked = checked
        self._max_wgsl_bytes = max_wgsl_bytes
        self._left = sorted(kernels, key=lambda kernel: len(kernel.wgsl))
        self._threads: list[threading.Thread] = []
        self.by_twins = 0  #: kernels that twins have compiled

    def start(self) -> None:
        for number in range(threads_for(self._device, self._left) - 1):
            thread = threading.Thread(target=self._serve_twin, name=f"shaderloom-compile-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def finish(self) -> None:
        """Compile with the twins until no kernel is left; without twins leave all kernels to the first run."""
        if self._threads:
            self._compile_on(self._device)
        self.stop()

    def stop(self) -> None:
        self._left = []
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _serve_twin(self) -> None:
        try:
            twin = self._device.twin()
        except ShaderloomError:
            return
        try:
            self.by_twins += self._compile_on(twin)
        finally:
            twin.gpu.destroy()

    def _compile_on(self, device: Device) -> int:
        """Compile kernels that are left; return how many it compiled."""
        buffers: dict[tuple[int, bool], Any] = {}
        done = 0
        try:
            while True:
                try:
                    kernel = self._left.pop()
                except IndexError:
                    return done
                self._compile(device, kernel, buffers)
                done += 1
        except ShaderloomError:
            return done  # the device meets the same error where it is reported
        finally:
            for buffer in buffers.values():
                buffer.destroy()

    def _compile(self, device: Device, kernel: Kernel, buffers: dict[tuple[int, bool], Any]) -> None:
        holder = device.pipeline(kernel, checked=self._checked, max_wgsl_bytes=self._max_wgsl_bytes)
        entries = []
        for index, binding in enumerate(kernel.bindings):
            uniform = binding.access == "uniform"
            if (index, uniform) not in buffers:
                usage = _UNIFORM if uniform else _STORAGE
                buffers[index, uniform] = device.create_buffer(_BINDING_BYTES, usage, "compile")
            resource = {"buffer": buffers[index, uniform], "offset": 0, "size": _BINDING_BYTES}
            entries.append({"binding": index, "resource": resource})
        what = f"compiling kernel {kernel.id} ahead"
        with device.guarded(what):
            group = device.gpu.create_bind_group(layout=holder.pipeline.layout, entries=entries)
            encoder = device.gpu.create_command_encoder()
            compute_pass = encoder.begin_compute_pass()
            compute_pass.set_pipeline(holder.pipeline.pipeline)
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(0, 0, 0)
            compute_pass.end()
            commands = encoder.finish()
        device.wait(device.submit([commands], what))
