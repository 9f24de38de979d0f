"""Weights that are final: computed on the host, for bundles.

A session makes its weights on the device.  A bundle must not depend on a driver, so its weights are computed here with
numpy, and stored in the layout that the kernels of the run expect, padding and all.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ...runtime.plan.errors import InternalError
from ...runtime.plan.plan import SourceRef, Weight
from ..compilation import KeepWeight, Progress
from ..ir.graph import Value
from ..ir.layout import Layout
from ..reference.constant_eval import evaluate_constant
from ..symbolic.polynomial import Dim
from .sizes import static_bytes


class HostWeights:
    """Weights that are evaluated where they are asked for: ``keep`` gets the bytes of each once, and gives its key."""

    def __init__(self, expected: Collection[Value], keep: KeepWeight, progress: Progress) -> None:
        """Report progress in bytes of the ``expected`` values."""
        self._keep = keep
        self._progress = progress
        self._keys: dict[Value, str] = {}
        self._done = 0
        self._total = sum(map(static_bytes, expected))
        self.weights: dict[str, Weight] = {}
        self.sources: dict[str, SourceRef] = {}  #: stays empty

    def key_of(self, value: Value) -> str:
        """Return the key of the weight that holds ``value``.

        Raises :class:`InternalError` for a value that does not depend on constants alone.
        """
        if value not in self._keys:
            size = static_bytes(value)
            data = stored(evaluate_constant(value), value.layout)
            if len(data) > size:
                raise InternalError(f"weight {value!r} takes {len(data)} bytes instead of {size}")
            if len(data) < size:
                data = memoryview(bytes(data).ljust(size, b"\0"))
            key = self._keys[value] = self._keep(data)
            self.weights.setdefault(key, Weight(key, size, (), (), value.name))
            self._done += size
            self._progress("evaluating weights", self._done, max(self._done, self._total))
        return self._keys[value]


def _static(size: Dim) -> int:
    """Return a size that no dynamic dimension can have a part in."""
    if isinstance(size, int):
        return size
    raise InternalError(f"a weight has the size {size}")


def stored(array: np.ndarray, layout: Layout) -> memoryview:
    """Return a tensor's bytes in memory: axes in the layout's order, zero padding, blocks innermost; little-endian."""
    shape = array.shape
    padded = [_static(layout.stored_size(shape, axis)) for axis in range(array.ndim)]
    if tuple(padded) != shape:
        array = np.pad(array, [(0, stored_size - size) for stored_size, size in zip(padded, shape)])
    if layout.blocks:
        array = _split(array, layout)
    else:
        array = array.transpose(layout.order)
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data.toreadonly()


def _split(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Split axes with blocks in two: the number of the block stays in the axis's place, the rest is innermost."""
    blocks = dict(layout.blocks)
    sides: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for axis, size in enumerate(array.shape):
        outer[axis] = len(sides)
        sides.append(size // blocks.get(axis, 1))
        if axis in blocks:
            inner[axis] = len(sides)
            sides.append(blocks[axis])
    return array.reshape(sides).transpose(
        [*(outer[axis] for axis in layout.order), *(inner[axis] for axis, _ in layout.blocks)]
    )
