"""The weight pool of a session: initializers go to the device once, transformed weights are kept once.

A weight is identified by its key, which the compiler derives from its source and transform.  Plans for different
input shapes name the same keys, so a second plan uploads nothing that is there already.  Pools of the same files on one
device share what one of them has (:mod:`.shared_weights`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..device.device import Device
from ..memory.buffers import TENSOR, OwnedBuffer, Uploads
from ..memory.data_loader import check_length, chunks_of
from ..plan.caps import Caps, MemoryAccount
from ..plan.dimension import evaluate
from ..plan.errors import ClosedError, DeviceLimitError, InternalError, LimitError
from ..plan.plan import Plan, SourceRef, Weight
from . import shared_weights
from .dispatch import Binder, Dispatch, encode
from .problem_buffer import ProblemBuffer

#: Gives the bytes of an initializer: a buffer, preferably a view of a mapped file, or chunks (:mod:`.data_loader`)
ReadSource = Callable[[SourceRef], Any]

#: Told bytes done and bytes in all while weights are loaded
Progress = Callable[[int, int], None]

#: Bytes of sources and scratch buffers that wait for their transforms to be submitted
_WAITING_BYTES = 16 << 20


class WeightPool:
    """Weights on one device.  Thread-safe; buffers live until :meth:`close`.

    ``files`` identifies the files that the weights come from; "" where they may change, so that nothing is shared.
    """

    def __init__(
        self,
        device: Device,
        read_source: ReadSource,
        account: MemoryAccount,
        *,
        caps: Caps | None = None,
        progress: Progress | None = None,
        files: str = "",
    ) -> None:
        self.device = device
        self.account = account
        self.uploaded_bytes = 0  #: bytes of initializers sent to the device so far
        self.transform_calls = 0  #: dispatches made for weights so far
        self._read_source = read_source
        self._caps = caps or Caps()
        self._progress = progress
        self._weights: dict[str, OwnedBuffer] = {}
        self._files = files
        self._taken: dict[str, int] = {}  #: bytes of weights that another pool has made
        self._offered: set[str] = set()
        self._lock = threading.RLock()
        self._closed = False

    @property
    def bytes(self) -> int:
        """Device memory of all weights."""
        return sum(buffer.size for buffer in self._weights.values())

    def __contains__(self, key: str) -> bool:
        return key in self._weights

    def buffer(self, key: str) -> Any:
        try:
            return self._weights[key].gpu
        except KeyError:
            raise InternalError(f"weight '{key}' was not prepared") from None

    def missing(self, plan: Plan) -> list[Weight]:
        """Return the weights of the plan that the pool does not have."""
        return [weight for weight in plan.weights if weight.key not in self._weights]

    def prepare(self, plan: Plan, *, checked: bool = True, use_native: bool = True) -> None:
        """Make every weight of the plan that is not there yet.  ``checked`` keeps bounds checks of the transforms."""
        with self._lock:
            if self._closed:
                raise ClosedError("the weight pool is closed")
            self._take(self.missing(plan))
            missing = self.missing(plan)
            if missing:
                _Preparation(self, plan, missing, checked, use_native).run()
                self._offer(missing)

    def _take(self, missing: Sequence[Weight]) -> None:
        """Take the weights that other pools offer."""
        for weight in missing if self._files else ():
            buffer = shared_weights.take(self.device, self._files, weight.key)
            if buffer is None:
                continue
            try:
                self.account.reserve(buffer.size, f"'weight:{weight.key}'")
            except LimitError:
                shared_weights.release(self.device, self._files, weight.key)
                raise
            self._weights[weight.key], self._taken[weight.key] = buffer, buffer.size

    def _offer(self, complete: Sequence[Weight]) -> None:
        for weight in complete if self._files else ():
            if shared_weights.offer(self.device, self._files, weight.key, self._weights[weight.key]):
                self._offered.add(weight.key)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for key, buffer in self._weights.items():
                if key in self._taken or key in self._offered:
                    shared_weights.release(self.device, self._files, key)
                else:
                    buffer.destroy()
            for size in self._taken.values():
                self.account.release(size)
            self._weights.clear()
            self._taken.clear()
            self._offered.clear()


class _Preparation:
    """Loading the missing weights of one plan; sources live as long as a missing weight needs them."""

    def __init__(
        self, pool: WeightPool, plan: Plan, missing: Sequence[Weight], checked: bool, use_native: bool
    ) -> None:
        self._pool = pool
        self._device = pool.device
        self._missing = missing
        self._use_native = use_native
        self._own = {weight.key for weight in plan.weights}
        self._references = {source.key: source for source in plan.sources}
        self._uploads = Uploads(pool.device)
        self._sources: dict[str, OwnedBuffer] = {}
        self._scratch: dict[str, OwnedBuffer] = {}
        self._incomplete: list[str] = []  #: keys of weights in the pool whose bytes are not on their way
        self._dispatches: list[Dispatch] = []  #: of the incomplete weights
        self._spent: list[OwnedBuffer] = []  #: buffers that no weight needs once these are submitted
        self._spent_bytes = 0
        self._binder = Binder(pool.device, plan.kernels, checked=checked, max_wgsl_bytes=pool._caps.wgsl_bytes)
        problems = plan.problems if any(weight.calls for weight in missing) else ()
        self._problems = ProblemBuffer(pool.device, pool.account, problems)
        self._users: dict[str, int] = {}
        for weight in missing:
            for key in self._needed(weight):
                self._users[key] = self._users.get(key, 0) + 1
        self._total = sum(self._reference(key).length for key in self._users)
        self._total += sum(
            self._reference(key).length for weight in missing if not weight.calls for key in weight.sources
        )
        self._done = 0

    def run(self) -> None:
        for weight in self._missing:
            self._check_size(weight)
        try:
            for weight in self._missing:
                self._make(weight)
            self._submit()
        except BaseException:
            for key in self._incomplete:  # what is in the pool counts as complete
                self._pool._weights.pop(key).destroy()
            raise
        finally:
            for buffer in (*self._sources.values(), *self._scratch.values(), *self._spent):
                buffer.destroy()
            self._problems.destroy()

    @staticmethod
    def _needed(weight: Weight) -> tuple[str, ...]:
        """Return the sources that the weight's calls bind; a weight without calls is uploaded in place."""
        return weight.sources if weight.calls else ()

    def _reference(self, key: str) -> SourceRef:
        try:
            return self._references[key]
        except KeyError:
            raise InternalError(f"the plan does not contain source '{key}'") from None

    def _check_size(self, weight: Weight) -> None:
        """Raise :class:`DeviceLimitError` with the name of a tensor beyond one binding: no kernel can read it."""
        for limit_name in ("max-buffer-size", "max-storage-buffer-binding-size"):
            limit = self._device.profile.limit(limit_name)
            largest = max([weight.bytes, *(self._reference(key).length for key in self._needed(weight))])
            if largest > limit:
                raise DeviceLimitError(
                    f"the tensor takes {largest:,} bytes; the device's {limit_name} is {limit:,}",
                    tensor=weight.description or weight.key,
                )

    def _add(self, weight: Weight, size: int) -> OwnedBuffer:
        """Create the buffer of a weight and put it into the pool."""
        name = f"weight:{weight.key}"
        buffer = OwnedBuffer(self._device, self._pool.account, size, TENSOR, name)
        self._pool._weights[weight.key] = buffer
        self._incomplete.append(weight.key)
        return buffer

    def _make(self, weight: Weight) -> None:
        """Upload a weight, or prepare its transforms, which :meth:`_submit` carries out."""
        if not weight.calls:
            parts = [self._reference(key) for key in weight.sources]
            if not parts or any(part.length % 4 for part in parts[:-1]):
                raise InternalError(f"weight '{weight.key}' has no calls, and no sources that make it up")
            buffer = self._add(weight, max(weight.bytes, sum(part.length for part in parts)))
            offset = 0
            for part in parts:
                self._upload(part, buffer, offset)
                offset += part.length
            self._incomplete.pop()
            return
        for key in weight.sources:
            if key not in self._sources:
                reference = self._reference(key)
                account, name = self._pool.account, f"source:{key}"
                self._sources[key] = OwnedBuffer(self._device, account, reference.length, TENSOR, name)
                self._upload(reference, self._sources[key])
        self._add(weight, weight.bytes)
        self._make_scratch(weight)
        dispatches = (self._binder.dispatch(call, {}, self._resolve) for call in weight.calls)
        self._dispatches += filter(None, dispatches)
        for key in self._needed(weight):
            self._users[key] -= 1
            if not self._users[key]:
                self._spend(self._sources.pop(key))
        while self._scratch:
            self._spend(self._scratch.popitem()[1])
        if self._spent_bytes >= _WAITING_BYTES:
            self._submit()

    def _spend(self, buffer: OwnedBuffer) -> None:
        self._spent.append(buffer)
        self._spent_bytes += buffer.size

    def _upload(self, reference: SourceRef, buffer: OwnedBuffer, offset: int = 0) -> None:
        data = reference.data if reference.data is not None else self._pool._read_source(reference)
        done = 0
        rest = b""  # of a chunk that does not end at a word: writes begin at words
        for chunk in chunks_of(data):
            if done + len(rest) + len(chunk) > reference.length:
                check_length(done + len(rest) + len(chunk), reference.length, reference.key)
            if rest or len(chunk) % 4:
                chunk = memoryview(rest + bytes(chunk)) if rest else chunk
                whole = len(chunk) // 4 * 4
                rest, chunk = bytes(chunk[whole:]), chunk[:whole]
            done += self._write(buffer, chunk, offset + done)
        if rest:
            done += self._write(buffer, rest, offset + done)
        check_length(done, reference.length, reference.key)
        self._pool.uploaded_bytes += reference.length

    def _write(self, buffer: OwnedBuffer, chunk: bytes | memoryview, offset: int) -> int:
        """Write a chunk, tell the progress, and return its bytes."""
        for written in self._uploads.write(buffer.gpu, chunk, offset):
            self._done += written
            if self._pool._progress is not None:
                self._pool._progress(self._done, self._total)
        return len(chunk)

    def _make_scratch(self, weight: Weight) -> None:
        """Create the buffers that the weight's calls name but no weight owns, as large as the furthest range."""
        ends: dict[str, int] = {}
        for call in weight.calls:
            for item in call.ranges:
                kind, _, key = item.buffer.partition(":")
                if kind == "weight" and key not in self._pool._weights:
                    if key in self._own:
                        raise InternalError(f"weight '{weight.key}' is listed before '{key}', which it needs")
                    end = evaluate(item.offset, {}) + evaluate(item.size, {})
                    ends[key] = max(ends.get(key, 0), end)
        for key, end in ends.items():
            self._scratch[key] = OwnedBuffer(self._device, self._pool.account, end, TENSOR, f"scratch:{key}")

    def _resolve(self, name: str) -> tuple[Any, int]:
        kind, _, key = name.partition(":")
        if kind == "source" and key in self._sources:
            return self._sources[key].gpu, 0
        if kind == "weight" and key in self._scratch:
            return self._scratch[key].gpu, 0
        if kind == "weight":
            return self._pool.buffer(key), 0
        if kind == "problem":
            return self._problems.resolve(name)
        raise InternalError(f"a weight transform binds '{name}'")

    def _submit(self) -> None:
        """Submit the transforms of the incomplete weights, at once: a submission costs more than a transform."""
        if self._dispatches:
            what = f"making {len(self._incomplete)} weights"
            with self._device.guarded(what):
                encoder = self._device.gpu.create_command_encoder()
                compute_pass = encoder.begin_compute_pass()
                encode(compute_pass, self._dispatches, use_native=self._use_native)
                compute_pass.end()
                commands = encoder.finish()
            self._device.submit([commands], what)
        self._pool.transform_calls += len(self._dispatches)
        self._dispatches.clear()
        self._incomplete.clear()
        while self._spent:
            self._spent.pop().destroy()
        self._spent_bytes = 0
