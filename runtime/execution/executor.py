"""The executor: creates what a plan names once, then replays it.

A run writes the inputs, encodes the calls of the plan, copies the outputs to staging memory in the same submission,
and maps that; large inputs are written beside other runs (:mod:`.large_inputs`).  Buffers, pipelines, bind groups and
staging buffers outlive runs: a warm run with the same symbol values and the same tensors creates one command encoder
and nothing else.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..device import native
from ..device.device import Device
from ..device.pipeline_compiler import PipelineCompiler
from ..memory.buffers import COPY_DST, TENSOR, UNIFORM, OwnedBuffer, StagingPool, grown, write
from ..memory.storage import OutputPool
from ..plan.caps import Caps, MemoryAccount
from ..plan.errors import ClosedError, DeviceLimitError, InternalError, ShaderloomError
from ..plan.plan import ITERATION_STRIDE, Plan, uniform_values
from . import timing
from .attachment import Attacher, Attachment, Target
from .bind_groups import BindGroups
from .dispatch import Binder, BufferCopy, Dispatch
from .large_inputs import LargeInputs, write_array
from .pending import PendingRun, Readback
from .ports import Feed, bind_symbols
from .problem_buffer import ProblemBuffer
from .recording import Recording, Replay
from .repeat import Behind, RepeatedRun
from .run_sizes import PlanSizes, RunSizes
from .weight_pool import WeightPool

Measured = TypeVar("Measured")
#: Symbols, and values of one, that are copied from a table on the device: a write to the uniform takes the host longer
#: than two copies in a run's own submission, since wgpu makes a staging buffer and further commands for it
MOST_COPIED, MOST_VALUES = 2, 1 << 14


class Executor:
    """One plan on one device.  Thread-safe: one run is encoded at a time; its inputs are checked and its results are
    awaited outside the lock.

    ``pool`` is shared between the executors of a session.  ``checked`` keeps the shaders' bounds checks; None keeps
    them where the device can have them.  ``use_native`` None chooses the direct path where wgpu-native has its
    functions.  ``poison`` overwrites activations and outputs before each run with bytes of 0xFF (NaN, or -1): what a
    kernel fails to write then shows.  ``compiler`` may have begun with the plan's kernels; it must check bounds as this
    executor does.  ``fault`` is the error for a plan whose sizes come out wrong.
    """

    def __init__(
        self,
        device: Device,
        plan: Plan,
        pool: WeightPool,
        *,
        caps: Caps | None = None,
        account: MemoryAccount | None = None,
        staging: StagingPool | None = None,
        checked: bool | None = None,
        use_native: bool | None = None,
        poison: bool = False,
        compiler: PipelineCompiler | None = None,
        fault: type[ShaderloomError] = InternalError,
    ) -> None:
        self.device = device
        self.plan = plan
        self.pool = pool
        caps = caps or Caps()
        checked = device.checks_bounds if checked is None else checked
        self._account = account or pool.account
        self._own_staging = staging is None
        self._staging = staging or StagingPool(device, self._account)
        self._use_native = native.AVAILABLE if use_native is None else use_native and native.AVAILABLE
        self._binder = Binder(device, plan.kernels, checked=checked, max_wgsl_bytes=caps.wgsl_bytes, fault=fault)
        self._poison = poison
        self._buffers: dict[str, OwnedBuffer] = {}
        self._calls = tuple(plan.calls)
        self._sizes = PlanSizes(plan, caps.tensor_elements, fault)
        self._problems = ProblemBuffer(device, self._account, plan.problems)
        self._groups = BindGroups(self._binder, plan.commands, self._sizes, self._buffers)
        self._arenas = tuple(f"arena:{index}" for index in range(len(plan.arenas)))
        self._room: list[int] | None = None  #: bytes of each arena
        self._written_symbols: tuple[int, ...] | None = None
        self._output_pool = OutputPool(device.profile.limit("max-buffer-size") if plan.symbols else None)
        own_account = self._account  # not self: a closed executor must not wait for a garbage collection
        self._attacher = Attacher(
            device, plan, self._output_pool, lambda size, name: OwnedBuffer(device, own_account, size, TENSOR, name)
        )
        self._large_inputs = LargeInputs(device, self._account)
        self._replay = Replay(device, use_native=self._use_native)
        self._repeated: RepeatedRun | None = None
        self._lock = threading.RLock()
        self._closed = False
        called = {call.kernel for call in self._calls}
        called.update(call.kernel for weight in pool.missing(plan) for call in weight.calls)
        compiler = compiler or PipelineCompiler(device, checked=checked, max_wgsl_bytes=caps.wgsl_bytes)
        try:
            for kernel in plan.kernels:
                if kernel.key in called:
                    compiler.add(kernel)
            pool.prepare(plan, checked=checked, use_native=self._use_native)
            self._allocate_ahead()
            compiler.finish()  # shaders are compiled now: the first run must not
            for call in self._calls:
                self._binder.pipeline(call)
        except BaseException:
            compiler.stop()
            self.close()
            raise

    @property
    def device_bytes(self) -> int:
        """Bytes of the executor's own buffers: activations, symbols, problems, inputs and outputs of the host."""
        return sum(buffer.size for buffer in self._buffers.values()) + self._problems.size + self._large_inputs.size

    def run(
        self, feeds: Mapping[str, Feed], outputs: Collection[str] | Mapping[str, Target] | None = None
    ) -> dict[str, Any]:
        """Compute the plan and give ``outputs``: arrays of all (None) or of some, or what a mapping to targets says.

        ``feeds`` has an array or tensor of the right dtype and shape for every input of the plan.  Does not wait for
        the device if no output goes to the host.

        Raises :class:`InputError` for wrong feeds or targets, :class:`DeviceError` for what the device refuses.
        """
        return self.submit(feeds, outputs).wait()

    def submit(
        self, feeds: Mapping[str, Feed], outputs: Collection[str] | Mapping[str, Target] | None = None
    ) -> PendingRun:
        """Submit a run and return it without waiting for its results.

        ``feeds`` and ``outputs`` are those of :meth:`run`.  Raises :class:`InputError` for wrong feeds or targets,
        :class:`DeviceError` for what the device refuses.
        """
        if outputs is None:
            outputs = [port.name for port in self.plan.outputs]
        targets = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs, "cpu")
        repeated = self._repeated
        if repeated is not None and repeated.is_same(feeds, targets):
            with self._lock:
                if repeated is self._repeated:
                    return self._submit_repeated(repeated, feeds, targets)
        values, sizes = self._bind(feeds)
        with self._large_inputs.written(feeds, sizes.inputs) as uploads, self._lock:
            self._check_open()
            attachment = self._attacher.attach(feeds, targets, sizes.inputs, sizes.outputs, uploads)
            try:
                symbols = self._write(attachment, values, sizes)
                dispatches = self._groups.dispatches(values, sizes, attachment, self._resolve)
                pending = self._submit(attachment, dispatches, sizes, symbols)
                self._written_symbols = values
                if symbols is None:
                    self._remember(feeds, targets, attachment, dispatches)
                return pending
            except BaseException:
                attachment.abandon()
                raise
            finally:
                attachment.unpin()

    def _remember(
        self,
        feeds: Mapping[str, Feed],
        targets: Mapping[str, Target],
        attachment: Attachment,
        dispatches: list[Dispatch],
    ) -> None:
        """Record the run for repetition if it only submits: inputs may be copied first, nothing is written or read."""
        self._repeated = None
        attached = len(attachment.spans) + len(attachment.copies_in)
        if attached == len(feeds) + len(targets) and dispatches and not self._poison and not attachment.copies_out:
            recording = Recording(self._copies_in(attachment), (dispatches,), ())
            self._repeated = RepeatedRun.of(feeds, targets, recording, self._forget)

    def _copies_in(self, attachment: Attachment) -> list[BufferCopy]:
        """Return the copies of tensors into inputs of the plan's own."""
        return [
            BufferCopy(copy.storage.gpu, copy.storage.offset, self._buffers[copy.buffer].gpu, 0, copy.size)
            for copy in attachment.copies_in
        ]

    def try_replay(
        self, feeds: Mapping[str, Any], targets: Mapping[str, Any], behind: Behind | None = None
    ) -> dict[str, Any] | None:
        """Return the results if the last run can be repeated for exactly these tensors (:mod:`.repeat`), else None.

        What ``behind`` returns follows in the same submission.
        """
        with self._lock:
            repeated = self._repeated
            if repeated is None or not repeated.is_same(feeds, targets):
                return None
            pending = self._submit_repeated(repeated, feeds, targets, behind)
        return pending.wait()

    def _forget(self, _: Any) -> None:
        """Drop the repeated run: a buffer was collected.  Called in any thread, therefore a single assignment only."""
        self._repeated = None

    def _submit_repeated(
        self,
        repeated: RepeatedRun,
        feeds: Mapping[str, Any],
        targets: Mapping[str, Target],
        behind: Behind | None = None,
    ) -> PendingRun:
        self._check_open()
        with repeated.pinned():
            self._replay.submit(repeated.followed_by(behind, feeds, targets), repeated.buffers())
        return PendingRun(self.device, targets)

    def profile(self, feeds: Mapping[str, Feed]) -> timing.Profile:
        """Run once and measure every call by itself; see :class:`timing.Profile`."""
        profile = self.measured(
            feeds, lambda dispatches: timing.measure(self.device, dispatches, use_native=self._use_native)
        )
        names = (symbol.name for symbol in self.plan.symbols)
        return replace(profile, sizes=dict(zip(names, bind_symbols(self.plan, feeds))))

    def measured(self, feeds: Mapping[str, Feed], measure: Callable[[list[Dispatch]], Measured]) -> Measured:
        """Bind a run, write its inputs, and return the result of ``measure``, which runs the calls itself."""
        values, sizes = self._bind(feeds)
        with self._large_inputs.written(feeds, sizes.inputs) as uploads, self._lock:
            self._check_open()
            attachment = self._attacher.attach(feeds, {}, sizes.inputs, sizes.outputs, uploads)
            try:
                symbols = self._write(attachment, values, sizes)
                dispatches = self._groups.dispatches(values, sizes, attachment, self._resolve)
                if attachment.copies_in or attachment.beginnings or symbols:
                    self._submit(attachment, [], sizes, symbols or [])
                self._written_symbols = values
                return measure(dispatches)
            finally:
                attachment.unpin()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the executor is closed")

    def close(self) -> None:
        """Free the executor's buffers; waits while another thread encodes.  Outputs on the device live on."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._repeated = None
            self._replay.clear()
            self._groups.clear()
            self._binder.clear()
            for buffer in self._buffers.values():
                buffer.destroy()
            self._buffers.clear()
            self._large_inputs.close()
            self._problems.destroy()
            self._output_pool.close()
            if self._own_staging:
                self._staging.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Sizes

    def _bind(self, feeds: Mapping[str, Feed]) -> tuple[tuple[int, ...], RunSizes]:
        self._check_open()
        values = bind_symbols(self.plan, feeds)
        return values, self._sizes.of(values)

    # Buffers

    def _allocate_ahead(self) -> None:
        """Allocate what every run needs, if its size is known, while shaders are compiled."""
        if not self.plan.symbols:
            sizes = self._sizes.of(())
            self._allocate_arenas(sizes)
            self._staging.reserve(sum(sizes.outputs[port.name].padded for port in self.plan.outputs))

    def _allocate_arenas(self, sizes: RunSizes) -> None:
        if self._room is None or any(map(operator.gt, sizes.arenas, self._room)):
            for name, size in zip(self._arenas, sizes.arenas):
                self._allocate(name, size)
            self._room = [self._buffers[name].size for name in self._arenas]
            if self.plan.symbols:
                self._allocate_symbols()

    def _allocate_symbols(self) -> None:
        """Make the uniform of the symbols, and the table of the integers that its words may be, if that is small."""
        symbols = self.plan.symbols
        self._allocate("symbols", len(symbols) * 4)
        count = 1 + max(uniform_values(symbols, {symbol.name: symbol.high for symbol in symbols}))
        if len(symbols) <= MOST_COPIED and count <= MOST_VALUES and "values" not in self._buffers:
            write(self.device, self._allocate("values", count * 4).gpu, 0, np.arange(count, dtype=np.int32))

    def _allocate_iterations(self, count: int) -> None:
        """Make the buffer with the number of each iteration where its dynamic offset is."""
        present = self._buffers.get("iteration")
        buffer = self._allocate("iteration", max(count, 1) * ITERATION_STRIDE)
        if buffer is not present:
            numbers = np.zeros((buffer.size // ITERATION_STRIDE, ITERATION_STRIDE // 4), np.int32)
            numbers[:, 0] = np.arange(len(numbers))
            write(self.device, buffer.gpu, 0, numbers)

    def _allocate(self, name: str, size: int) -> OwnedBuffer:
        """Return the buffer of a name; replace one that is too small for this run, and its bind groups with it."""
        present = self._buffers.get(name)
        if present is not None and present.size >= size:
            return present
        if present is not None:
            size = grown(size, present.size, self.device.profile.limit("max-buffer-size"))
            self._repeated = None
            self._replay.clear()
            self._groups.clear()
            del self._buffers[name]
            present.destroy()
        usage = UNIFORM | COPY_DST if name in ("symbols", "iteration") else TENSOR
        buffer = self._buffers[name] = OwnedBuffer(self.device, self._account, size, usage, name)
        return buffer

    def _write(self, attachment: Attachment, values: tuple[int, ...], sizes: RunSizes) -> list[BufferCopy] | None:
        """Make the plan's own buffers that this run needs, and write what comes from the host.

        Return None if the symbols have the values of the run before, else the copies that set them: none if they were
        written.  They count as unknown until the caller has submitted the copies.
        """
        self._allocate_arenas(sizes)
        if sizes.iterations:
            self._allocate_iterations(max(sizes.iterations))
        elsewhere = {begin.input for begin in attachment.beginnings if begin.storage is not None}
        for port in self.plan.inputs:
            if f"input:{port.name}" not in attachment.spans and f"input:{port.name}" not in elsewhere:
                self._allocate(f"input:{port.name}", sizes.inputs[port.name].padded)
        for port in self.plan.outputs:
            if self._attacher.is_computed(port.name) and f"output:{port.name}" not in attachment.spans:
                self._allocate(f"output:{port.name}", sizes.outputs[port.name].padded)
        if self._poison:
            self._overwrite()
        for name, array in attachment.writes:
            kind, _, port_name = name.partition(":")
            size = (sizes.inputs if kind == "input" else sizes.outputs)[port_name]
            write_array(self.device, self._allocate(name, size.padded).gpu, array, size.dtype)
        if values == self._written_symbols or not self.plan.symbols:
            return None
        self._written_symbols = self._repeated = None
        uniform, table = self._buffers["symbols"].gpu, self._buffers.get("values")
        if table is None:
            write(self.device, uniform, 0, sizes.uniform)
            return []
        words = sizes.uniform.tolist()
        return [BufferCopy(table.gpu, 4 * word, uniform, 4 * index, 4) for index, word in enumerate(words)]

    def _overwrite(self) -> None:
        for name, buffer in self._buffers.items():
            if name.startswith(("arena:", "output:")):
                write(self.device, buffer.gpu, 0, b"\xff" * buffer.size)

    def _resolve(self, name: str) -> tuple[Any, int]:
        buffer = self._buffers.get(name)
        if buffer is not None:
            return buffer.gpu, 0
        kind, _, key = name.partition(":")
        if kind == "weight":
            return self.pool.buffer(key), 0
        if kind == "problem":
            return self._problems.resolve(name)
        raise InternalError(f"a call binds '{name}', which the plan does not define")

    # The submission

    def _submit(
        self, attachment: Attachment, dispatches: list[Dispatch], sizes: RunSizes, symbols: list[BufferCopy] | None
    ) -> PendingRun:
        """Submit input copies, one compute pass, and output copies to tensors and staging memory at once.

        ``symbols`` is what :meth:`_write` has returned: if their values are new, the next run will hardly be the same.
        """
        readbacks, total = self._readbacks(attachment, sizes)
        before = [*(symbols or ()), *self._copies_in(attachment)]
        before += [
            BufferCopy(
                *(self._resolve(begin.input) if begin.storage is None else (begin.storage.gpu, begin.storage.offset)),
                *self._locate(begin.output, attachment),
                begin.size,
            )
            for begin in attachment.beginnings
        ]
        after = [
            BufferCopy(*self._locate(copy.buffer, attachment), copy.storage.gpu, copy.storage.offset, copy.size)
            for copy in attachment.copies_out
        ]
        staging = self._staging.borrow(total) if readbacks else None
        try:
            if staging is not None:
                after += [
                    BufferCopy(
                        *self._locate(attachment.reads[item.output], attachment),
                        staging.gpu,
                        item.offset,
                        item.size.border,
                    )
                    for item in readbacks
                ]
            recording = Recording(before, (dispatches,), after)
            if symbols is not None and not recording.is_empty:
                self._replay.submit_once(recording)
            elif not recording.is_empty:
                self._replay.submit(recording, [storage.gpu for storage in attachment.spans.values()])
        except BaseException:
            if staging is not None:
                staging.destroy()
            raise
        return PendingRun(self.device, attachment.results, readbacks, staging, self._staging)

    def _locate(self, name: str, attachment: Attachment) -> tuple[Any, int]:
        storage = attachment.spans.get(name)
        return self._resolve(name) if storage is None else (storage.gpu, storage.offset)

    def _readbacks(self, attachment: Attachment, sizes: RunSizes) -> tuple[list[Readback], int]:
        """Return the position of each output in the staging buffer, and the bytes that they need in all."""
        readbacks, total = [], 0
        for output in attachment.reads:
            size = sizes.outputs[output]
            readbacks.append(Readback(output, total, size))
            total += size.padded
        if total > self.device.profile.limit("max-buffer-size"):
            raise DeviceLimitError(
                f"the outputs take {total:,} bytes together, more than one buffer of the device can hold"
            )
        return readbacks, total
