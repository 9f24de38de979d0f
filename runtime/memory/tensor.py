"""Tensors, in device memory or in host memory.

The border format of device memory: contiguous, in ONNX order and element size (int64 8 bytes, bool 1), padded to 4
bytes.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..device.device import Device
from ..device.opening import open_device
from ..plan.caps import Caps, MemoryAccount
from ..plan.dtypes import BY_NAME, DType, from_numpy, interface_dtype, padded_bytes
from ..plan.errors import ClosedError, InputError, MemorySharingError, PicklingError, UnsupportedError
from .buffers import COPY_DST, COPY_SRC, MAP_READ, STORAGE, TENSOR, OwnedBuffer, as_bytes, mapped, read_range, write
from .host_arrays import DLPACK_DEVICE, DLPACK_HOST, export_array, host_array, shared_array
from .storage import Storage, pinned


def border_bytes(elements: int, dtype: DType) -> int:
    """Return the bytes of a tensor in the border format."""
    return (elements * dtype.itemsize + 3) // 4 * 4


class Tensor:
    """A tensor on a device, or on the host once its data was taken with ``get_data(release=True)``.

    A tensor of :meth:`from_numpy`, :meth:`empty` or a run frees its memory when it is disposed or collected.  A buffer
    that the caller made (:meth:`from_gpu_buffer`) is never destroyed.  Use after :meth:`dispose` raises
    :class:`ClosedError`, also while work with the tensor is in flight.
    """

    def __init__(self, device: Device, storage: Storage, dtype: DType, shape: tuple[int, ...]) -> None:
        self._device = device
        self._storage = storage
        self._dtype = dtype
        self._shape = shape
        self._host: np.ndarray | None = None
        self._watch: weakref.WeakMethod[Callable[[np.ndarray], None]] | None = None

    def __getstate__(self) -> Any:
        """Raise :class:`PicklingError`: its memory is of a device, which belongs to this process."""
        raise PicklingError(
            "a tensor on a device cannot be pickled, or sent to another process", hint="send tensor.numpy()"
        )

    @classmethod
    def from_numpy(cls, array: Any, device: Any = None) -> Tensor:
        """Copy an array to the device: a :class:`Device`, or what :func:`open_device` takes.

        Raises :class:`UnsupportedError` for a dtype that the device cannot hold.
        """
        host = host_array(array)
        tensor = cls.empty(host.shape, host.dtype, device)
        tensor.update(host)
        return tensor

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: Any, device: Any = None) -> Tensor:
        """Return a tensor on the device whose elements are zero until something writes them."""
        kind = _on_device(dtype)
        sizes = _checked_shape(shape)
        opened = open_device(device)
        size = padded_bytes(math.prod(sizes), kind)
        buffer = OwnedBuffer(opened, MemoryAccount(Caps().device_memory), size, TENSOR, "tensor")
        return cls(opened, Storage.of_owned(buffer), kind, sizes)

    @classmethod
    def from_gpu_buffer(cls, buffer: Any, dtype: Any, shape: Sequence[int], offset: int = 0) -> Tensor:
        """Return a tensor in a ``wgpu.GPUBuffer`` that stays the caller's; ``offset`` in bytes, a multiple of 4.

        The buffer needs the usage STORAGE, and COPY_SRC or COPY_DST for what copies from or to it.  A run binds the
        buffer itself where the device's alignment allows it (an offset that is a multiple of
        ``min-storage-buffer-offset-alignment``, and 16 bytes' padding inside the buffer), else it copies on the device.

        Raises :class:`InputError` if the tensor does not fit into the buffer.
        """
        kind = _on_device(dtype)
        sizes = _checked_shape(shape)
        if not hasattr(buffer, "usage") or not hasattr(buffer, "_device"):
            raise InputError(f"a wgpu.GPUBuffer is needed, not {type(buffer).__name__}")
        if not buffer.usage & STORAGE:
            raise InputError("the buffer was made without the usage STORAGE")
        if offset < 0 or offset % 4:
            raise InputError(f"the offset {offset} is not a multiple of 4")
        size = border_bytes(math.prod(sizes), kind)
        if offset + size > buffer.size:
            raise InputError(
                f"{kind}{list(sizes)} takes {size:,} bytes; the buffer has {max(buffer.size - offset, 0):,} "
                f"from byte {offset:,}"
            )
        device = Device.from_wgpu(buffer._device)
        return cls(device, Storage(buffer, offset, buffer.size - offset), kind, sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each dimension."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements; those that numpy lacks are of ``ml_dtypes``."""
        return interface_dtype(self._dtype)

    @property
    def element_type(self) -> str:
        """Name of :attr:`dtype`, which is cheaper to get."""
        return self._dtype.numpy

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements at their ONNX size."""
        return self.size * self._dtype.itemsize

    @property
    def device(self) -> Device:
        """The device that the tensor is or was on."""
        return self._device

    @property
    def location(self) -> str:
        """``"gpu-buffer"`` or ``"cpu"``, in the terms of ONNX Runtime Web."""
        return "cpu" if self._host is not None else "gpu-buffer"

    @property
    def gpu_buffer(self) -> Any:
        """The ``wgpu.GPUBuffer``, for use until :meth:`dispose`; raises :class:`InputError` on the host."""
        self._live()
        if self._host is not None:
            raise InputError("the tensor is on the host")
        self._storage.exported = True
        return self._storage.gpu

    @property
    def disposed(self) -> bool:
        """Whether the memory was freed."""
        return self._storage.released and self._host is None

    def watch(self, look: Callable[[np.ndarray], None]) -> None:
        """Call ``look`` with each copy that is read from the device; the object of this method is not kept alive."""
        self._watch = weakref.WeakMethod(look)

    def update(self, array: Any) -> None:
        """Replace the elements by those of an array of the same dtype and shape."""
        self._live()
        host, dtype = host_array(array), self.dtype
        is_same = host.dtype == dtype or host.dtype.name == dtype.name  # names, of another order of bytes, take longer
        if not is_same or host.shape != self._shape:
            raise InputError(f"{host.dtype.name}{list(host.shape)} does not fit {self._dtype}{list(self._shape)}")
        host = np.ascontiguousarray(host, dtype).reshape(self._shape)
        if self._host is not None:
            self._host = host.copy()
        elif host.size:
            with pinned([self._storage]):
                self._storage.check_alive(self._device)
                write(self._device, self._storage.gpu, self._storage.offset, as_bytes(host))

    def numpy(self) -> np.ndarray:
        """Return a copy of the elements on the host; wait for work that writes them."""
        self._live()
        if self._host is not None:
            return self._host.copy()
        if not self.size:
            return np.empty(self._shape, self.dtype)
        staging = self._download()
        try:
            with mapped(self._device, staging.gpu, staging.size) as view:
                array = self._read(view)
        finally:
            staging.destroy()
        return self._watched(array)

    async def numpy_async(self) -> np.ndarray:
        """Return a copy of the elements as :meth:`numpy` does, without blocking the event loop."""
        self._live()
        if self._host is not None or not self.size:
            return self.numpy()
        staging = self._download()
        try:
            with self._device.guarded("reading a tensor"):
                await staging.gpu.map_async("READ_NOSYNC", 0, staging.size)
            view = read_range(self._device, staging.gpu, staging.size)
            try:
                array = self._read(view)
            finally:
                self._device.end_reading()
        finally:
            staging.destroy()
        return self._watched(array)

    def get_data(self, release: bool = False) -> np.ndarray:
        """Return the elements on the host.  With ``release`` free the device memory; the tensor stays, on the host."""
        if not release or self._host is not None:
            return self.numpy()
        host = self.numpy()
        self._host = host
        self._storage.release()
        return host.copy()

    def dispose(self) -> None:
        """Free the device memory that the tensor owns.  Disposing twice has no effect."""
        self._host = None
        self._storage.release()

    def __del__(self) -> None:
        storage = getattr(self, "_storage", None)  # missing if construction failed
        if storage is not None:
            storage.release(collected=True)

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a tensor on the device cannot be seen as an array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Export the elements on the host: a view of a tensor that is there, a copy of one on the device.

        Such a copy is made only for a consumer that asks for the host (``device="cpu"``).  Raises
        :class:`MemorySharingError` (a ``BufferError``) otherwise, or if the tensor cannot be exported as is demanded.
        """
        self._live()
        if stream is not None:
            raise MemorySharingError("memory of the host has no streams", hint="pass no stream")
        if dl_device not in (None, DLPACK_HOST):
            raise MemorySharingError(f"tensors are exported to the host, {DLPACK_HOST}, not to {dl_device}")
        if self._host is None and (dl_device is None or copy is False):
            raise MemorySharingError(
                f"the tensor is on {self._device.name}, whose memory other libraries cannot see",
                hint="copy it: tensor.numpy(), np.from_dlpack(tensor, device='cpu') or "
                "torch.from_numpy(tensor.numpy()); tensor.get_data(release=True) moves it to the host",
            )
        array = self.numpy() if self._host is None else self._host
        return export_array(array, max_version, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_DEVICE if self._host is None else DLPACK_HOST

    @classmethod
    def from_dlpack(cls, external: Any, device: Any = None) -> Tensor:
        """Copy the array of another library, such as a PyTorch tensor, to the device; see :meth:`from_numpy`."""
        return cls.from_numpy(shared_array(external), device)

    def __repr__(self) -> str:
        state = " disposed" if self.disposed else ""
        return f"<Tensor {self._dtype.name}{list(self._shape)} {self.location}{state}>"

    def _live(self) -> None:
        if self.disposed:
            raise ClosedError("the tensor was disposed", hint="make another")

    def _download(self) -> OwnedBuffer:
        """Submit a copy to a new staging buffer."""
        storage, device = self._storage, self._device
        if not storage.gpu.usage & COPY_SRC:
            raise InputError("the buffer was made without the usage COPY_SRC, so that it cannot be read")
        size = border_bytes(self.size, self._dtype)
        staging = OwnedBuffer(device, MemoryAccount(size + 16), size, MAP_READ | COPY_DST, "staging")
        try:
            with pinned([storage]), device.guarded("reading a tensor"):
                storage.check_alive(device)
                encoder = device.gpu.create_command_encoder()
                encoder.copy_buffer_to_buffer(storage.gpu, storage.offset, staging.gpu, 0, size)
                device.submit([encoder.finish()], "reading a tensor")
        except BaseException:
            staging.destroy()
            raise
        return staging

    def _watched(self, array: np.ndarray) -> np.ndarray:
        look = None if self._watch is None else self._watch()
        if look is not None:
            look(array)
        return array

    def _read(self, view: memoryview) -> np.ndarray:
        return np.frombuffer(view, self.dtype, self.size).reshape(self._shape).copy()


def _on_device(dtype: Any) -> DType:
    kind = BY_NAME[dtype] if isinstance(dtype, str) and dtype in BY_NAME else from_numpy(dtype)
    if not kind.on_device:
        raise UnsupportedError(
            f"the device cannot hold elements of type {kind.name}", hint="convert them to another type, such as float32"
        )
    return kind


def _checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise InputError(f"the shape {list(sizes)} has a negative size")
    return sizes
