"""Tensors of one shape along a new first axis: what the iterations of a loop gave, by copies on the device."""

from __future__ import annotations

from collections.abc import Sequence

from ..device.device import Device
from ..plan.caps import MemoryAccount
from ..plan.dtypes import padded_bytes
from ..plan.errors import InputError
from .buffers import TENSOR, OwnedBuffer
from .storage import Storage, pinned
from .tensor import Tensor


def can_stack(tensors: Sequence[Tensor]) -> bool:
    """Return whether :func:`stack` supports the tensors: copies begin at words and are whole words."""
    return bool(tensors) and tensors[0].nbytes % 4 == 0


def stack(tensors: Sequence[Tensor], device: Device, account: MemoryAccount) -> Tensor:
    """Stack the tensors, of one dtype and shape, along a new first axis."""
    first = tensors[0]
    for tensor in tensors:
        if tensor.shape != first.shape or tensor._dtype is not first._dtype:
            raise InputError(f"{tensor!r} beside {first!r}: the iterations of a loop gave different shapes")
    shape = (len(tensors), *first.shape)
    size = padded_bytes(first.size * len(tensors), first._dtype)
    buffer = OwnedBuffer(device, account, size, TENSOR, "stack")
    result = Tensor(device, Storage.of_owned(buffer), first._dtype, shape)
    if first.nbytes:
        with pinned([tensor._storage for tensor in tensors]), device.guarded("stacking tensors"):
            encoder = device.gpu.create_command_encoder()
            for position, tensor in enumerate(tensors):
                storage = tensor._storage
                encoder.copy_buffer_to_buffer(
                    storage.gpu, storage.offset, buffer.gpu, position * first.nbytes, first.nbytes
                )
            device.submit([encoder.finish()], "stacking tensors")
    return result
