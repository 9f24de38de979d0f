"""From a call of a plan to a dispatch: pipelines, bind groups, and the encoding loop.

Used by the executor for every run and by the weight pool for its transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..device import native
from ..device.device import Device, PipelineHolder
from ..plan.dimension import evaluate
from ..plan.errors import DeviceLimitError, InternalError, ShaderloomError
from ..plan.plan import ITERATION_STRIDE, MOST_WORKGROUPS, Kernel, KernelCall
from ..plan.record import record
from .run_sizes import RunSizes

_STORAGE_LIMIT = "max-storage-buffer-binding-size"


@record(slots=False)
class Dispatch:
    """A call with everything that encoding it needs.  ``raw`` holds handles only; the objects keep them alive.

    ``offset`` is where the number of the iteration lies in the buffer ``iteration``; None for calls that run once.
    """

    call: KernelCall
    holder: PipelineHolder
    group: Any
    grid: tuple[int, int, int]
    offset: int | None = None

    @cached_property
    def raw(self) -> native.PreparedCall:
        return self.holder.pipeline.handle, self.group._internal, *self.grid, self.offset

    @cached_property
    def _iterations(self) -> list[Dispatch]:
        return []

    def iteration(self, number: int) -> Dispatch:
        """Return the dispatch of one iteration, the same object each time; all share pipeline and bind group."""
        iterations = self._iterations
        while len(iterations) <= number:
            iterations.append(replace(self, offset=len(iterations) * ITERATION_STRIDE))
        return iterations[number]


@record
class BoundCall:
    """A pipeline with a bind group; ``is_shared``: for all values of the symbols."""

    holder: PipelineHolder
    group: Any
    is_shared: bool


class Binder:
    """Pipelines of a set of kernels and the bind groups made for them; ``fault`` is the error for a wrong call."""

    def __init__(
        self,
        device: Device,
        kernels: Sequence[Kernel],
        *,
        checked: bool,
        max_wgsl_bytes: int,
        fault: type[ShaderloomError] = InternalError,
    ) -> None:
        self.device = device
        self._kernels = {kernel.key: kernel for kernel in kernels}
        self._checked = checked
        self._max_wgsl_bytes = max_wgsl_bytes
        self._fault = fault
        self._holders: dict[str, PipelineHolder] = {}
        limits = (_STORAGE_LIMIT, "max-uniform-buffer-binding-size", "max-compute-workgroups-per-dimension")
        self._limits = {limit: device.profile.limit(limit) for limit in limits}

    def kernel(self, call: KernelCall) -> Kernel:
        try:
            return self._kernels[call.kernel]
        except KeyError:
            raise InternalError(f"the plan calls kernel {call.kernel[:12]}, which it does not contain") from None

    def pipeline(self, call: KernelCall) -> PipelineHolder:
        holder = self._holders.get(call.kernel)
        if holder is None:
            kernel = self.kernel(call)
            holder = self.device.pipeline(kernel, checked=self._checked, max_wgsl_bytes=self._max_wgsl_bytes)
            self._holders[call.kernel] = holder
        return holder

    def clear(self) -> None:
        """Give up the pipelines; those that no other executor uses are freed."""
        self._holders.clear()

    def dispatch(
        self, call: KernelCall, symbols: Mapping[str, int], resolve: Callable[[str], tuple[Any, int]]
    ) -> Dispatch | None:
        """Bind one call; None when its grid is empty, so that zero-size tensors never reach a bind group.

        ``resolve`` gives the buffer of a name and the offset in it where the named memory begins.

        Raises :class:`DeviceLimitError` for a range beyond a binding limit and the plan's fault for one outside its
        buffer: wgpu would end the process on an empty range.
        """
        x, y, z = call.grid
        grid = self.checked_grid(call, (evaluate(x, symbols), evaluate(y, symbols), evaluate(z, symbols)))
        return None if grid is None else self.place(call, self.bind(call, symbols, resolve), grid)

    def place(self, call: KernelCall, bound: BoundCall, grid: tuple[int, int, int]) -> Dispatch:
        """Return the dispatch of a bound call over a grid."""
        return Dispatch(call, bound.holder, bound.group, grid)

    def checked_grid(self, call: KernelCall, grid: tuple[int, int, int]) -> tuple[int, int, int] | None:
        """Return the workgroups of a call; None where there are none.  Raises as :meth:`dispatch` does."""
        if 0 in grid:
            return None
        if min(grid) < 0:
            raise self._fault(f"{describe(call)} dispatches {grid} workgroups")
        limit = self._limits["max-compute-workgroups-per-dimension"]
        if max(grid) > limit:
            raise DeviceLimitError(f"{describe(call)} dispatches {grid} workgroups; the limit is {limit} a dimension")
        if math.prod(grid) > MOST_WORKGROUPS:
            raise self._fault(f"{describe(call)} dispatches {grid} workgroups; at most {MOST_WORKGROUPS:,} are allowed")
        return grid

    def check_tensors(self, call: KernelCall, sizes: RunSizes, borrowed: Collection[str]) -> None:
        """Raise the plan's fault for a range that leaves its tensor, if that is one of ``borrowed`` buffers.

        What lies behind it there belongs to the caller, and :meth:`bind` knows the end of the buffer alone.
        """
        for item in call.ranges:
            if item.buffer not in borrowed:
                continue
            kind, _, name = item.buffer.partition(":")
            room = (sizes.inputs if kind == "input" else sizes.outputs)[name].padded
            offset, size = evaluate(item.offset, sizes.symbols), evaluate(item.size, sizes.symbols)
            if not 0 <= offset <= offset + size <= room:
                raise self._fault(
                    f"{describe(call)} binds bytes {offset} to {offset + size} of '{item.buffer}', which has {room}"
                )

    def bind(
        self,
        call: KernelCall,
        symbols: Mapping[str, int],
        resolve: Callable[[str], tuple[Any, int]],
        is_whole: Callable[[str], bool] = lambda _: False,
    ) -> BoundCall:
        """Bind the ranges of one call.

        A range of open size from the start of a buffer that ``is_whole``, of one tensor alone, gets the whole buffer,
        which may be larger, so that the bind group serves other sizes too.
        """
        kernel = self.kernel(call)
        if len(call.ranges) != len(kernel.bindings):
            raise InternalError(f"{describe(call)} binds {len(call.ranges)} ranges to {len(kernel.bindings)} bindings")
        holder = self.pipeline(call)
        ranges: list[tuple[Any, int, int]] = []
        is_shared = True
        for binding, item in zip(kernel.bindings, call.ranges):
            buffer, base = resolve(item.buffer)
            offset, size = evaluate(item.offset, symbols), evaluate(item.size, symbols)
            limit_name = "max-uniform-buffer-binding-size" if binding.is_uniform else _STORAGE_LIMIT
            limit = self._limits[limit_name]
            if size > limit:
                raise DeviceLimitError(
                    f"{describe(call)} binds {size:,} bytes of '{item.buffer}'; the device's {limit_name} is {limit:,}"
                )
            inside = 0 < size and 0 <= offset and base + offset + size <= buffer.size
            if not inside or size % 4:
                raise self._fault(
                    f"{describe(call)} binds bytes {base + offset} to {base + offset + size} of '{item.buffer}', "
                    f"which has {buffer.size}"
                )
            if not (isinstance(item.size, int) and isinstance(item.offset, int)):
                starts = isinstance(item.offset, int) and base + offset == 0  # for all values of the symbols
                if starts and is_whole(item.buffer) and buffer.size <= limit:
                    size = buffer.size
                else:
                    is_shared = False
            ranges.append((buffer, base + offset, size))
        with self.device.guarded(f"binding the buffers of {describe(call)}"):
            group = self.device.bind_group(holder.pipeline.layout, ranges)
        return BoundCall(holder, group, is_shared)


def describe(call: KernelCall) -> str:
    """Describe a call for messages: its label, its kernel, its ONNX nodes."""
    origins = ", ".join(call.origins[:3]) + (", ..." if len(call.origins) > 3 else "")
    return (
        f"kernel {call.kernel[:12]}" + (f" '{call.label}'" if call.label else "") + (f" ({origins})" if origins else "")
    )


def encode(compute_pass: Any, dispatches: Sequence[Dispatch], *, use_native: bool) -> None:
    """Record dispatches in order into a compute pass."""
    if use_native:
        native.encode(compute_pass, [dispatch.raw for dispatch in dispatches])
        return
    bound = None
    for dispatch in dispatches:
        pipeline = dispatch.holder.pipeline.pipeline
        if pipeline is not bound:
            compute_pass.set_pipeline(pipeline)
            bound = pipeline
        compute_pass.set_bind_group(0, dispatch.group, [] if dispatch.offset is None else [dispatch.offset])
        compute_pass.dispatch_workgroups(*dispatch.grid)


@record
class BufferCopy:
    """A copy on the device; offsets and size are multiples of 4."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    size: int

    @property
    def raw(self) -> native.PreparedCopy:
        return self.source._internal, self.source_offset, self.target._internal, self.target_offset, self.size

    @property
    def arguments(self) -> tuple[Any, int, Any, int, int]:
        return self.source, self.source_offset, self.target, self.target_offset, self.size

    @property
    def ends(self) -> tuple[Any, Any]:
        return self.source, self.target
