"""The executor: creates what a plan names once, then replays it.

A run writes the inputs, encodes the calls of a stage into one compute pass, copies the outputs to staging memory in the
same submission, and maps that.  Buffers, pipelines, bind groups and staging buffers outlive runs: a warm run with the
same symbol values creates one command encoder and nothing else.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from . import native, timing
from .buffers import (
    COPY_DST,
    TENSOR,
    UNIFORM,
    OwnedBuffer,
    StagingPool,
    as_bytes,
    grown,
    map_for_reading,
    write,
)
from .caps import Caps, MemoryAccount
from .device import Device
from .dispatch import Binder, Dispatch, encode
from .dtypes import BY_NAME, DType, padded_bytes
from .errors import ClosedError, InputError, InternalError, LimitError
from .loader import WeightPool
from .plan import Constant, DimExpr, Plan, Port, SourceRef, evaluate

#: Prepared dispatch lists that are kept, one for each combination of symbol values
PREPARED_LISTS = 32


class Executor:
    """One plan on one device.  Thread-safe; runs of one executor do not overlap.

    ``pool`` is shared between the executors of a session.  ``checked`` keeps the shaders' bounds checks.
    ``use_native`` None chooses the direct path where wgpu-native has its functions.  ``poison`` overwrites activations
    and outputs before each run with bytes of 0xFF (NaN, or -1): what a kernel fails to write then shows.
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
        checked: bool = True,
        use_native: bool | None = None,
        poison: bool = False,
    ) -> None:
        self.device = device
        self.plan = plan
        self.pool = pool
        caps = caps or Caps()
        self._account = account or pool.account
        self._own_staging = staging is None
        self._staging = staging or StagingPool(device, self._account)
        self._use_native = native.AVAILABLE if use_native is None else use_native and native.AVAILABLE
        self._binder = Binder(device, plan.kernels, checked=checked, max_wgsl_bytes=caps.wgsl_bytes)
        self._tensor_cap = caps.tensor_elements
        self._poison = poison
        self._buffers: dict[str, OwnedBuffer] = {}
        self._prepared: OrderedDict[tuple[int, ...], list[Dispatch]] = OrderedDict()
        self._written_symbols: tuple[int, ...] | None = None
        self._constants = {constant.output: _constant_array(constant) for constant in plan.constants}
        self._aliases = {alias.output: alias.source for alias in plan.aliases}
        self._lock = threading.RLock()
        self._closed = False
        try:
            pool.prepare(plan, checked=checked, use_native=self._use_native)
            for stage in plan.stages:  # compile shaders now: the first run must not
                for call in stage.calls:
                    self._binder.pipeline(call)
            if not plan.symbols:
                self._prepare(())
        except BaseException:
            self.close()
            raise

    @property
    def device_bytes(self) -> int:
        """Bytes of the executor's own buffers: activations, inputs, outputs, symbols."""
        return sum(buffer.size for buffer in self._buffers.values())

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """Compute the plan and read back ``outputs`` (all, if None).

        ``feeds`` has an array of the right dtype and shape for every input of the plan.

        Raises :class:`InputError` for wrong feeds, :class:`DeviceError` for what the device refuses.
        """
        with self._lock:
            symbols = self._write_feeds(feeds)
            wanted = {port.name for port in self.plan.outputs} if outputs is None else set(outputs)
            return self._collect(feeds, symbols, self._prepare(symbols), wanted)

    def profile(self, feeds: Mapping[str, np.ndarray]) -> timing.Profile:
        """Run once and measure every call by itself; see :class:`timing.Profile`."""
        with self._lock:
            symbols = self._write_feeds(feeds)
            return timing.measure(self.device, self._prepare(symbols), use_native=self._use_native)

    def close(self) -> None:
        """Free the executor's buffers; waits for a run in another thread.  Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._prepared.clear()
            for buffer in self._buffers.values():
                buffer.destroy()
            self._buffers.clear()
            if self._own_staging:
                self._staging.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inputs

    def _write_feeds(self, feeds: Mapping[str, np.ndarray]) -> tuple[int, ...]:
        """Check the feeds, make the buffers large enough, write inputs and symbols; gives the symbol values."""
        if self._closed:
            raise ClosedError("the executor is closed")
        values = bind_symbols(self.plan, feeds)
        symbols = dict(zip((symbol.name for symbol in self.plan.symbols), values))
        self._allocate(symbols)
        if self._poison:
            self._overwrite()
        for port in self.plan.inputs:
            buffer = self._buffers[f"input:{port.name}"]
            array = np.ascontiguousarray(feeds[port.name], _numpy_dtype(BY_NAME[port.dtype]))  # little-endian
            if array.size:
                write(self.device, buffer.gpu, 0, as_bytes(array))
        if self.plan.symbols and values != self._written_symbols:
            write(self.device, self._buffers["symbols"].gpu, 0, np.asarray(values, np.int32))
            self._written_symbols = values
        return values

    def _allocate(self, symbols: Mapping[str, int]) -> None:
        """Make buffers, or replace those that are too small for this run; their bind groups go with them."""
        needed = {}
        for prefix, ports in (("input", self.plan.inputs), ("output", self.plan.outputs)):
            for port in ports:
                if prefix == "input" or self._computed(port.name):
                    needed[f"{prefix}:{port.name}"] = padded_bytes(self._elements(port, symbols), BY_NAME[port.dtype])
        for index, size in enumerate(self.plan.arenas):
            needed[f"arena:{index}"] = evaluate(size, symbols)
        if self.plan.symbols:
            needed["symbols"] = len(self.plan.symbols) * 4
        for name, size in needed.items():
            present = self._buffers.get(name)
            if present is not None and present.size >= size:
                continue
            if present is not None:
                limit = self.device.profile.limit("max-buffer-size")
                size = grown(size, present.size, limit)
                self._prepared.clear()
                del self._buffers[name]
                present.destroy()
            usage = UNIFORM | COPY_DST if name == "symbols" else TENSOR
            self._buffers[name] = OwnedBuffer(self.device, self._account, size, usage, name)

    def _overwrite(self) -> None:
        for name, buffer in self._buffers.items():
            if name.startswith(("arena:", "output:")):
                write(self.device, buffer.gpu, 0, b"\xff" * buffer.size)

    def _elements(self, port: Port, symbols: Mapping[str, int]) -> int:
        elements = math.prod(evaluate(size, symbols) for size in port.shape)
        if elements > self._tensor_cap:
            raise LimitError(
                f"the tensor has {elements:,} elements; the cap is {self._tensor_cap:,}",
                tensor=port.name,
                hint="raise caps.tensor_elements",
            )
        return elements

    def _device_output(self, output: str) -> str | None:
        """The output to read from the device for ``output``: itself, or one that it is a copy of; None if it is known."""
        while output in self._aliases and output not in self._constants:
            kind, _, source = self._aliases[output].partition(":")
            if kind == "input":
                return None
            if kind == "weight":
                break
            output = source
        return None if output in self._constants else output

    def _computed(self, output: str) -> bool:
        return output not in self._constants and output not in self._aliases

    # Dispatches

    def _prepare(self, values: tuple[int, ...]) -> list[Dispatch]:
        """The dispatches for these symbol values, with their bind groups."""
        found = self._prepared.get(values)
        if found is not None:
            self._prepared.move_to_end(values)
            return found
        symbols = dict(zip((symbol.name for symbol in self.plan.symbols), values))
        self._allocate(symbols)
        calls = [call for stage in self.plan.stages for call in stage.calls]
        dispatches = [self._binder.dispatch(call, symbols, self._resolve) for call in calls]
        result = [dispatch for dispatch in dispatches if dispatch is not None]
        self._prepared[values] = result
        if len(self._prepared) > PREPARED_LISTS:
            self._prepared.popitem(last=False)
        return result

    def _resolve(self, name: str) -> Any:
        buffer = self._buffers.get(name)
        if buffer is not None:
            return buffer.gpu
        kind, _, key = name.partition(":")
        if kind == "weight":
            return self.pool.buffer(key)
        raise InternalError(f"a call binds '{name}', which the plan does not define")

    # Outputs

    def _collect(
        self,
        feeds: Mapping[str, np.ndarray],
        values: tuple[int, ...],
        dispatches: list[Dispatch],
        wanted: set[str],
    ) -> dict[str, np.ndarray]:
        """Submit the dispatches and the copies of the outputs, and read these."""
        symbols = dict(zip((symbol.name for symbol in self.plan.symbols), values))
        results: dict[str, np.ndarray] = {}
        copies: list[tuple[Port, tuple[int, ...], int, int]] = []
        total = 0
        needed = {self._device_output(name) for name in wanted}
        for port in self.plan.outputs:
            if port.name not in needed:
                continue
            shape = tuple(evaluate(size, symbols) for size in port.shape)
            size = padded_bytes(math.prod(shape), BY_NAME[port.dtype])
            if math.prod(shape) == 0:
                results[port.name] = np.empty(shape, _numpy_dtype(BY_NAME[port.dtype]))
                continue
            copies.append((port, shape, total, size))
            total += size
        if copies and total > self.device.profile.limit("max-buffer-size"):
            raise LimitError(f"the outputs take {total:,} bytes together, more than one buffer of the device can hold")
        if copies:
            staging = self._staging.borrow(total)
            try:
                self._submit(dispatches, copies, staging)
                view = map_for_reading(self.device, staging, total)
                for port, shape, offset, _ in copies:
                    dtype = _numpy_dtype(BY_NAME[port.dtype])
                    results[port.name] = np.frombuffer(view, dtype, math.prod(shape), offset).reshape(shape).copy()
                del view
                staging.gpu.unmap()
            except BaseException:
                staging.destroy()  # it may be mapped or about to be: never lend it again
                raise
            self._staging.give_back(staging)
        elif dispatches:
            self._submit(dispatches, [], None)
        for name in wanted - results.keys():
            results[name] = self._host_output(name, feeds, results)
        return {name: results[name] for name in wanted}

    def _submit(
        self,
        dispatches: list[Dispatch],
        copies: list[tuple[Port, tuple[int, ...], int, int]],
        staging: OwnedBuffer | None,
    ) -> None:
        """One compute pass, then the copies of outputs to staging memory, in one submission."""
        with self.device.guarded("encoding a run"):
            encoder = self.device.gpu.create_command_encoder()
            if dispatches:
                compute_pass = encoder.begin_compute_pass()
                encode(compute_pass, dispatches, use_native=self._use_native)
                compute_pass.end()
            for port, _, offset, size in copies:
                assert staging is not None
                source = self._resolve(self._aliases.get(port.name, f"output:{port.name}"))
                encoder.copy_buffer_to_buffer(source, 0, staging.gpu, offset, size)
            commands = encoder.finish()
        self.device.submit([commands], "submitting a run")

    def _host_output(self, name: str, feeds: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> np.ndarray:
        """An output that no kernel computes: a constant, or a copy of an input or another output."""
        if name in self._constants:
            return self._constants[name].copy()
        kind, _, source = self._aliases[name].partition(":")
        if kind == "input":
            return np.array(feeds[source], order="C")
        if source in results:
            return results[source].copy()
        return self._host_output(source, feeds, results)


def bind_symbols(plan: Plan, feeds: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """Values of the plan's symbols that the shapes of the feeds imply, in the plan's order.

    Raises :class:`InputError` if a feed is missing, or its dtype or shape does not fit the plan.
    """
    symbols: dict[str, int] = {}
    derived: list[tuple[Port, int, DimExpr, int]] = []
    for port in plan.inputs:
        array = feeds.get(port.name)
        if array is None:
            raise InputError("no value was given", tensor=port.name)
        expected = BY_NAME[port.dtype].numpy
        if array.dtype.name != expected:
            raise InputError(f"has dtype {array.dtype.name}, expected {expected}", tensor=port.name)
        if array.ndim != len(port.shape):
            raise InputError(f"has rank {array.ndim}, expected {len(port.shape)}", tensor=port.name)
        for axis, (size, dim) in enumerate(zip(array.shape, port.shape)):
            if isinstance(dim, str) and symbols.setdefault(dim, size) == size:
                continue
            derived.append((port, axis, dim, size))
    for symbol in plan.symbols:
        value = symbols.get(symbol.name)
        if value is None:
            raise InternalError(f"no input of the plan has '{symbol.name}' as a dimension")
        if not symbol.low <= value <= symbol.high:
            raise InputError(f"'{symbol.name}' is {value}; it was declared {symbol.low} to {symbol.high}")
    for port, axis, dim, size in derived:
        expected_size = evaluate(dim, symbols)
        if size != expected_size:
            raise InputError(f"dimension {axis} is {size}, expected {expected_size}", tensor=port.name)
    return tuple(symbols[symbol.name] for symbol in plan.symbols)


def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype.name == "bfloat16":
        import ml_dtypes  # a dependency of onnx, which models with this type come from

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype.numpy)


def _constant_array(constant: Constant) -> np.ndarray:
    source: SourceRef = constant.source
    if source.data is None:
        raise InternalError(f"the constant output '{constant.output}' has no inline data")
    return np.frombuffer(source.data, _numpy_dtype(BY_NAME[source.dtype])).reshape(source.shape)
