"""Results of a session as PyTorch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..runtime.plan.dtypes import EXTENSIONS, from_numpy


def as_torch(value: Any) -> Any:
    """Return an array as a PyTorch tensor of the same memory, a sequence with such elements, other values unchanged."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_torch, value))
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return value
    if from_numpy(value.dtype).name not in EXTENSIONS:
        return torch.from_numpy(value)
    bits = value.view(np.uint8 if value.dtype.itemsize == 1 else np.int16)
    dtype = getattr(torch, value.dtype.name, None)
    return torch.from_numpy(bits) if dtype is None else torch.from_numpy(bits).view(dtype)
