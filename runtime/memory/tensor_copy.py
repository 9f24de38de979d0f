"""Copies between tensors on one device, without a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..plan.errors import InputError
from .storage import pinned
from .tensor import Tensor


def copy_rows(pairs: Sequence[tuple[Tensor, Tensor]], axis: int) -> None:
    """Copy the first rows along ``axis`` of each source to its target, as many as both have, in one submission.

    Source and target have one dtype, and one shape but for ``axis``.  Raises :class:`InputError` for others, and for
    rows that are not whole words.
    """
    if not pairs:
        return
    device = pairs[0][0].device
    with pinned([tensor._storage for pair in pairs for tensor in pair]), device.guarded("copying tensors"):
        encoder = device.gpu.create_command_encoder()
        for source, target in pairs:
            _check(source, target, axis)
            row = source.dtype.itemsize * math.prod(source.shape[axis + 1 :])
            rows, stride, spread = (min(source.shape[axis], target.shape[axis]), source.shape[axis], target.shape[axis])
            if rows and row % 4:
                raise InputError(f"rows of {row:,} bytes are not whole words")
            for index in range(math.prod(source.shape[:axis]) if rows * row else 0):
                begin = source._storage.offset + index * stride * row
                end = target._storage.offset + index * spread * row
                encoder.copy_buffer_to_buffer(source._storage.gpu, begin, target._storage.gpu, end, rows * row)
        device.submit([encoder.finish()], "copying tensors")


def _check(source: Tensor, target: Tensor, axis: int) -> None:
    same = source.element_type == target.element_type and len(source.shape) == len(target.shape)
    if not same or any(had != has for at, (had, has) in enumerate(zip(source.shape, target.shape)) if at != axis):
        raise InputError(
            f"{source.element_type}{list(source.shape)} and {target.element_type}{list(target.shape)} differ beyond "
            f"axis {axis}"
        )
