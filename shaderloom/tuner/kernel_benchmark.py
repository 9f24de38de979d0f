"""Benchmark one kernel in isolation: fill its operands with data, run it, time it, and compare its results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ..compiler.codegen.render import render
from ..compiler.ir.dataflow import operands, preorder
from ..compiler.ir.graph import Value
from ..compiler.kernels.draft import BuiltKernel
from ..compiler.planning.sizes import stored_bytes
from ..compiler.symbolic.dimensions import serialise
from ..runtime.device.device import Device
from ..runtime.execution.dispatch import Binder, Dispatch
from ..runtime.memory.buffers import COPY_DST, TENSOR, UNIFORM, write
from ..runtime.plan.dimension import evaluate
from ..runtime.plan.dtypes import DType
from ..runtime.plan.errors import LimitError
from ..runtime.plan.plan import Kernel, KernelCall, Range, Symbol, uniform_values

#: Largest size in bytes of the operands of a measured kernel
MOST_BYTES = 2 << 30
#: Bytes of weights that repeated runs cycle through: in a network they do not stay in a GPU's cache either
_COLD_BYTES, _MOST_COPIES = 96 << 20, 12
#: Random values that are repeated
_PATTERN = 1 << 20

#: Largest difference that counts as rounding, relative to the largest result
TOLERANCES = {"float32": 2e-4, "float16": 1e-2, "bfloat16": 4e-2}


class KernelBenchmark:
    """Benchmark memory of one problem, shared by its candidates: operands with random values, and buffers for the
    results.

    Floats are normal; integers are small, as indices are, and bytes are arbitrary.  ``symbols`` are values of the
    declared dynamic dimensions.  Raises :class:`LimitError` for operands that take too much memory.
    """

    def __init__(self, device: Device, built: BuiltKernel, symbols: Mapping[Symbol, int]) -> None:
        self.device = device
        self.sizes = {symbol.name: size for symbol, size in symbols.items()}
        self._values = built.operands
        sizes = {value: self._bytes(value) for value in built.operands}
        if sum(sizes.values()) > MOST_BYTES:
            raise LimitError(f"the operands take {sum(sizes.values()):,} bytes")
        outputs = [
            value for operand, value in zip(built.spec.operands, built.operands) if operand.access == "read_write"
        ]
        self._outputs = outputs
        generator = np.random.default_rng(0)
        self._buffers: dict[Value, list[Any]] = {}
        for value in built.operands:
            copies = self._copies(sizes[value]) if self._is_weight(value) else 1
            data = (
                np.full(sizes[value], 0xFF, np.uint8)
                if value in outputs
                else _data(value.dtype, sizes[value], generator)
            )
            self._buffers[value] = [self._filled(sizes[value], data) for _ in range(copies)]
        self._sizes = sizes
        self._uniform: Any = None
        if symbols:
            self._uniform = device.create_buffer(
                max(16, -(-4 * len(symbols) // 16) * 16), UNIFORM | COPY_DST, "symbols"
            )
            write(device, self._uniform, 0, np.asarray(uniform_values(list(symbols), self.sizes), np.int32))

    def candidate(self, built: BuiltKernel, *, checked: bool, most_wgsl: int = 1 << 20) -> Candidate:
        """Compile a kernel for this problem.  Raises the errors of the device."""
        kernel = render(built.spec)
        return Candidate(self, built, kernel, Binder(self.device, [kernel], checked=checked, max_wgsl_bytes=most_wgsl))

    def close(self) -> None:
        self.device.wait()
        for buffers in self._buffers.values():
            for buffer in buffers:
                buffer.destroy()
        self._buffers.clear()
        if self._uniform is not None:
            self._uniform.destroy()

    def _bytes(self, value: Value) -> int:
        return max(16, evaluate(serialise(stored_bytes(value)), self.sizes))

    @staticmethod
    def _is_weight(value: Value) -> bool:
        """Return whether a value depends on constants alone, judged by its 64 nearest producers."""
        for seen, current in enumerate(preorder([value], operands)):
            if seen == 64 or (current.constant is None and current.producer is None):
                return False
        return True

    def _copies(self, size: int) -> int:
        if self.device.profile.is_software or size < 1 << 20:
            return 1
        return max(1, min(_MOST_COPIES, math.ceil(_COLD_BYTES / size)))

    def _filled(self, size: int, data: np.ndarray) -> Any:
        size = -(-size // 16) * 16
        buffer = self.device.create_buffer(size, TENSOR, "tuning")
        write(self.device, buffer, 0, data.data)
        return buffer

    def _poison(self) -> None:
        for value in self._outputs:
            write(self.device, self._buffers[value][0], 0, b"\xff" * self._sizes[value])

    def _read(self) -> list[np.ndarray]:
        with self.device.guarded("reading results"):
            return [
                np.frombuffer(self.device.queue.read_buffer(self._buffers[value][0]), np.uint8)[: self._sizes[value]]
                for value in self._outputs
            ]


class Candidate:
    """A compiled kernel with bound operands.  ``dispatches`` differ in the copies of weights that they read."""

    def __init__(self, benchmark: KernelBenchmark, built: BuiltKernel, kernel: Kernel, binder: Binder) -> None:
        self.benchmark = benchmark
        order = {value: place for place, value in enumerate(benchmark._values)}
        copies = max(len(benchmark._buffers[value]) for value in built.operands)
        self.dispatches: list[Dispatch] = []
        for number in range(copies):
            ranges = [Range(f"{order[value]}", 0, benchmark._sizes[value]) for value in built.operands]
            if len(kernel.bindings) > len(ranges):
                ranges.append(Range("symbols", 0, benchmark._uniform.size))
            grid = built.spec.grid
            call = KernelCall(
                kernel.key,
                tuple(ranges),
                (serialise(grid[0]), serialise(grid[1]), serialise(grid[2])),
            )
            dispatch = binder.dispatch(call, benchmark.sizes, partial(self._resolve, number))
            if dispatch is not None:
                self.dispatches.append(dispatch)
        self._binder = binder

    def _resolve(self, number: int, name: str) -> tuple[Any, int]:
        if name == "symbols":
            return self.benchmark._uniform, 0
        buffers = self.benchmark._buffers[self.benchmark._values[int(name)]]
        return buffers[number % len(buffers)], 0

    def results(self, run: Any) -> list[np.ndarray]:
        """Dispatch once by ``run``, over memory filled with NaN, and return the bytes of each result."""
        self.benchmark._poison()
        run(self.dispatches[:1])
        return self.benchmark._read()

    def difference(self, results: list[np.ndarray], expected: list[np.ndarray]) -> str | None:
        """Return what differs between results, as text, or None."""
        for value, mine, other in zip(self.benchmark._outputs, results, expected, strict=True):
            text = _difference(value.dtype, mine, other)
            if text is not None:
                return text
        return None


def _data(dtype: DType, size: int, generator: np.random.Generator) -> np.ndarray:
    """Generate ``size`` bytes of random values of a type."""
    count = min(_PATTERN, size)
    if dtype.name == "float32":
        block = generator.standard_normal(count, dtype=np.float32)
    elif dtype.name == "float16":
        block = generator.standard_normal(count, dtype=np.float32).astype(np.float16)
    elif dtype.name == "bfloat16":
        block = (generator.standard_normal(count, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype.name == "bool":
        block = generator.integers(0, 2, count, np.uint8)
    elif dtype.bits <= 8:
        block = generator.integers(0, 256, count, np.uint8)
    else:
        block = generator.integers(0, 2, count).astype(f"int{dtype.bits}")
    return np.resize(block.view(np.uint8), size)


def _difference(dtype: DType, mine: np.ndarray, other: np.ndarray) -> str | None:
    if dtype.name not in TOLERANCES:
        whole = f"{'int' if dtype.is_signed else 'uint'}{max(dtype.bits, 8)}"
        left, right = mine.view(whole).astype(np.int64), other.view(whole).astype(np.int64)
        worst = int(np.abs(left - right).max(initial=0))
        # a quantised result may be rounded to the neighbour
        return None if worst <= (1 if dtype.bits == 8 else 0) else f"whole numbers differ by {worst}"
    left, right = _floats(dtype, mine), _floats(dtype, other)
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return "other elements are finite"
    finite = np.isfinite(left)
    scale = float(np.abs(right[finite]).max(initial=0.0)) or 1.0
    worst_float = float(np.abs(left[finite] - right[finite]).max(initial=0.0)) / scale
    if worst_float <= TOLERANCES[dtype.name]:
        return None
    return f"results differ by {worst_float:.1e} of the largest"


def _floats(dtype: DType, data: np.ndarray) -> np.ndarray:
    if dtype.name == "bfloat16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return data.view(dtype.numpy).astype(np.float64)
