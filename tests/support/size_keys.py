"""Keys of inputs whose sizes keep changing."""

from __future__ import annotations

import numpy as np

from shaderloom.model.open_sizes import Key


def key(known: bytes = b"", dtype: str = "float32", **shapes: tuple[int, ...]) -> Key:
    """Return the key of inputs of these shapes, and of a bool whose element is ``known``."""
    values = tuple((name, (dtype, shape)) for name, shape in shapes.items())
    return (*values, ("k", ("bool", (), known))) if known else values


def counted(count: int, *more: int, **shapes: tuple[int, ...]) -> Key:
    """Return the key of inputs of these shapes, and of integers that are compiled in."""
    numbers = np.array([count, *more])
    return (*key(**shapes), ("n", ("int64", numbers.shape, numbers.tobytes())))
