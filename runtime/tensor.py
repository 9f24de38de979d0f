"""Tensors in device memory, in the border format: contiguous, ONNX order and element size, padded to 16 bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .buffers import COPY_DST, MAP_READ, TENSOR, OwnedBuffer, as_bytes, map_for_reading, write
from .caps import Caps, MemoryAccount
from .device import Device, open_device
from .dtypes import DType, from_numpy, padded_bytes
from .errors import ClosedError, UnsupportedError


class Tensor:
    """A tensor on a device.  It owns its buffer until :meth:`dispose`; use afterwards raises :class:`ClosedError`."""

    def __init__(self, device: Device, buffer: OwnedBuffer, dtype: DType, shape: tuple[int, ...]) -> None:
        self._device = device
        self._buffer: OwnedBuffer | None = buffer
        self._dtype = dtype
        self._shape = shape

    @classmethod
    def from_numpy(cls, array: Any, device: Device | None = None) -> Tensor:
        """Copy an array to the device.  Raises :class:`UnsupportedError` for a dtype that the device cannot hold."""
        host = np.asarray(array)
        dtype = from_numpy(host.dtype)
        if not dtype.on_device:
            raise UnsupportedError(f"the device cannot hold elements of type {dtype.name}")
        device = device or open_device()
        account = MemoryAccount(Caps().device_memory)
        buffer = OwnedBuffer(device, account, padded_bytes(host.size, dtype), TENSOR, "tensor")
        if host.size:
            write(device, buffer.gpu, 0, as_bytes(np.ascontiguousarray(host, host.dtype.newbyteorder("="))))
        return cls(device, buffer, dtype, host.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        if self._dtype.name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self._dtype.numpy)

    @property
    def location(self) -> str:
        """``"gpu-buffer"``: where the elements are, in the terms of ONNX Runtime Web."""
        return "gpu-buffer"

    @property
    def gpu_buffer(self) -> Any:
        """The ``wgpu.GPUBuffer``; valid until :meth:`dispose`."""
        return self._live().gpu

    def numpy(self) -> np.ndarray:
        """A copy of the elements on the host; waits for work that writes them."""
        buffer = self._live()
        count = math.prod(self._shape)
        if not count:
            return np.empty(self._shape, self.dtype)
        size = padded_bytes(count, self._dtype)
        staging = OwnedBuffer(self._device, MemoryAccount(size), size, MAP_READ | COPY_DST, "staging")
        try:
            with self._device.guarded("reading a tensor"):
                encoder = self._device.gpu.create_command_encoder()
                encoder.copy_buffer_to_buffer(buffer.gpu, 0, staging.gpu, 0, size)
                commands = encoder.finish()
            self._device.submit([commands], "reading a tensor")
            view = map_for_reading(self._device, staging, size)
            result = np.frombuffer(view, self.dtype, count).reshape(self._shape).copy()
            del view
            staging.gpu.unmap()
        finally:
            staging.destroy()
        return result

    def dispose(self) -> None:
        """Free the device memory.  Disposing twice is fine."""
        if self._buffer is not None:
            self._buffer.destroy()
            self._buffer = None

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def __repr__(self) -> str:
        state = "" if self._buffer is not None else " disposed"
        return f"<Tensor {self._dtype.name}{list(self._shape)} {self.location}{state}>"

    def _live(self) -> OwnedBuffer:
        if self._buffer is None:
            raise ClosedError("the tensor was disposed")
        return self._buffer
