"""Keys and values of the tokens so far, on the device: extended in place, grown by doubling, copied for a fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..runtime.device.device import Device
from ..runtime.memory.tensor import Tensor
from ..runtime.memory.tensor_copy import copy_rows

#: Rows of the smallest cache in place; capacities are multiples of it
ROWS = 256
#: Batch, heads, size and element type of a cache
Layout = tuple[int, int, int, str]


class KeyValueCache:
    """Caches [batch, heads, capacity, size] by the names of the inputs that read them.

    Of one in place the first rows are valid, and the others anything; else all are.  ``encoded`` is what runs read of
    an encoder, by the names of the decoder's inputs; rows do not change it.
    """

    def __init__(self, layout: Mapping[str, Layout], device: Device, *, in_place: bool) -> None:
        self._layout = layout
        self._device = device
        self._in_place = in_place
        self.capacity = ROWS if in_place else 0
        self.tensors = self._of_rows(self.capacity, {})
        self.encoded: dict[str, Tensor] = {}

    def _of_rows(self, capacity: int, source: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors of ``capacity`` rows, which begin with those of ``source``."""
        tensors = {
            name: Tensor.empty((batch, heads, capacity, size), kind, self._device)
            for name, (batch, heads, size, kind) in self._layout.items()
        }
        copy_rows([(source[name], tensors[name]) for name in source], axis=2)
        return tensors

    def _resize(self, capacity: int) -> None:
        self.replace(self._of_rows(capacity, self.tensors), capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of memory on the device."""
        return sum(tensor.nbytes for tensor in (*self.tensors.values(), *self.encoded.values()))

    def grow(self, needed: int, limit: int) -> None:
        """Make room for ``needed`` rows: capacities double, up to ``limit``."""
        capacity = self.capacity
        while capacity < needed:
            capacity *= 2
        if capacity > self.capacity:
            self._resize(min(capacity, limit))

    def rewind(self, rows: int) -> None:
        """Forget what is behind the first ``rows``."""
        if not self._in_place and rows < self.capacity:
            self._resize(rows)

    def copy(self) -> KeyValueCache:
        """Return a cache of the same rows in memory of its own."""
        other = object.__new__(KeyValueCache)
        other._layout, other._device, other._in_place = self._layout, self._device, self._in_place
        other.capacity, other.tensors = self.capacity, self._of_rows(self.capacity, self.tensors)
        other.encoded = {
            name: Tensor.empty(tensor.shape, tensor.element_type, self._device) for name, tensor in self.encoded.items()
        }
        copy_rows([(tensor, other.encoded[name]) for name, tensor in self.encoded.items()], axis=0)
        return other

    def part(self, first: int, count: int) -> KeyValueCache:
        """Return ``count`` texts of the batch as a cache in this one's memory, which ends when this one grows.

        The cache is one in place, so that a text's bytes are a multiple of what devices align bindings to.
        """
        other = object.__new__(KeyValueCache)
        other._layout = {name: (count, *sizes[1:]) for name, sizes in self._layout.items()}
        other._device, other._in_place = self._device, self._in_place
        other.capacity, other.encoded = self.capacity, {}
        other.tensors = {}
        for name, tensor in self.tensors.items():
            begin = first * (tensor.nbytes // tensor.shape[0])
            shape = (count, *tensor.shape[1:])
            other.tensors[name] = Tensor.from_gpu_buffer(tensor.gpu_buffer, tensor.element_type, shape, begin)
        return other

    def add_encoded(self, tensors: Mapping[str, Tensor]) -> None:
        """Take results of an encoder, those of other names besides."""
        for name, tensor in tensors.items():
            if name in self.encoded:
                self.encoded[name].dispose()
            self.encoded[name] = tensor

    def forget_encoded(self) -> None:
        """Free what there is of an encoder's results."""
        for tensor in self.encoded.values():
            tensor.dispose()
        self.encoded.clear()

    def replace(self, tensors: Mapping[str, Tensor], capacity: int) -> None:
        """Take other tensors in place of the own ones, whose memory is freed."""
        self._free_rows()
        self.tensors, self.capacity = dict(tensors), capacity

    def _free_rows(self) -> None:
        for tensor in self.tensors.values():
            tensor.dispose()

    def dispose(self) -> None:
        """Free the memory."""
        self._free_rows()
        self.forget_encoded()


def common_prefix(had: Sequence[int], ids: Sequence[int]) -> int:
    """Return how many tokens both begin with, without the last of ``ids``, whose logits are wanted."""
    most = min(len(had), len(ids) - 1)
    return next((place for place in range(most) if had[place] != ids[place]), most)
