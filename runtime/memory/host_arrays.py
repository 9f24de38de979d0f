"""Arrays of other libraries, seen as numpy arrays without a copy, and numpy arrays handed to them by DLPack.

Nothing here imports another library: a PyTorch tensor exists only where the program has imported torch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..plan.dtypes import BY_NAME, EXTENSIONS, interface_dtype
from ..plan.errors import InputError, MemorySharingError

#: DLPack's device types, each with a device's number: the memory of the host, and that of a WebGPU device
DLPACK_HOST = (1, 0)
DLPACK_DEVICE = (15, 0)

#: Types that PyTorch has and numpy lacks, by the name that PyTorch and ``ml_dtypes`` share
_BEYOND_NUMPY = {BY_NAME[name].numpy: BY_NAME[name] for name in EXTENSIONS}


def is_torch_tensor(value: Any) -> bool:
    """Return whether ``value`` is a PyTorch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # absent while torch is being imported
    return tensor is not None and isinstance(value, tensor)


def host_array(value: Any) -> np.ndarray:
    """Return an array of any library, or what numpy makes an array of, as a numpy array that shares its memory.

    Raises :class:`InputError` for elements that are not on the host, or that cannot be seen without a copy.
    """
    if isinstance(value, np.ndarray):
        return value
    if is_torch_tensor(value):
        return _of_torch(value)
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return shared_array(value)
    try:
        return np.asarray(value)
    except InputError:
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{type(value).__name__} is not an array on the host: {error}") from None


def shared_array(value: Any) -> np.ndarray:
    """Return an object with ``__dlpack__`` as an array of its memory; raise :class:`InputError` if there is none."""
    if is_torch_tensor(value):
        return _of_torch(value)
    try:
        return np.from_dlpack(value)
    except InputError:
        raise
    except (AttributeError, TypeError, RuntimeError, BufferError) as error:
        raise InputError(
            f"{type(value).__name__} does not share memory of the host by DLPack: {error}",
            hint="pass an array whose elements are on the host",
        ) from None


def _of_torch(tensor: Any) -> np.ndarray:
    """Return a PyTorch tensor as an array; types that numpy lacks are those of ``ml_dtypes``."""
    torch = sys.modules["torch"]
    if tensor.requires_grad:
        if torch.is_grad_enabled():
            raise InputError(
                "the PyTorch tensor requires a gradient, which inference does not compute",
                hint="pass tensor.detach(), or run under torch.no_grad()",
            )
        tensor = tensor.detach()
    if tensor.device.type != "cpu":
        raise InputError(f"the PyTorch tensor is on '{tensor.device}'", hint="pass tensor.cpu()")
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise InputError(f"the PyTorch tensor is {kind}, not dense", hint="pass .to_dense() or .dequantize() of it")
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        plain = tensor.resolve_conj().resolve_neg()
        if name not in _BEYOND_NUMPY:
            return np.asarray(plain.numpy())
        bits = torch.uint8 if plain.element_size() == 1 else torch.int16
        return np.asarray(plain.view(bits).numpy()).view(interface_dtype(_BEYOND_NUMPY[name]))
    except (TypeError, RuntimeError) as error:
        raise InputError(f"the PyTorch tensor of {name} has no array: {error}") from None


def export_array(array: np.ndarray, max_version: Any, copy: bool | None) -> Any:
    """Return the DLPack capsule of an array, of its own memory unless ``copy`` demands another.

    Raises :class:`MemorySharingError` for a type that numpy does not export.
    """
    shared = array.copy() if copy else array
    try:
        return shared.__dlpack__() if max_version is None else shared.__dlpack__(max_version=max_version)
    except (BufferError, TypeError) as error:
        raise MemorySharingError(
            f"numpy does not export {array.dtype.name} by DLPack: {error}",
            hint="take the bits: tensor.numpy().view('uint16'), or 'uint8' of 8-bit types",
        ) from None
