"""Types of what a session takes and gives, for type checkers and for those who write functions around sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, Union, runtime_checkable

import numpy as np


@runtime_checkable
class SupportsArray(Protocol):
    """What numpy makes an array of: arrays, :class:`Tensor`, :class:`OrtValue`, PyTorch tensors on the host."""

    def __array__(self) -> Any:
        """Return the elements on the host."""
        ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of another library that shares its memory by DLPack."""

    def __dlpack__(self) -> Any:
        """Return a capsule of the memory; raise :class:`BufferError` if it cannot be shared."""
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's number of the kind of device, and the device's own."""
        ...


#: A value for an input: an array of any library, or a number, text or list of them that makes an array of its type
InputValue: TypeAlias = Union[SupportsArray, SupportsDLPack, Sequence[Any], bool, int, float, complex]

#: A value of an output: an array; or, as the session and the model say, a :class:`Tensor` on the device, a PyTorch
#: tensor, a list of arrays or of maps.  Type checkers take it for an array, and for any type that a check narrows it to
OutputValue: TypeAlias = Union[np.ndarray, Any]


class Session(Protocol):
    """What sessions of this package and of onnxruntime have in common."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> Sequence[Any]:
        """Run the model; return the outputs in the order of ``output_names``, None for all."""
        ...

    def get_inputs(self) -> Sequence[Any]:
        """Return name, type and shape of each input."""
        ...

    def get_outputs(self) -> Sequence[Any]:
        """Return name, type and shape of each output."""
        ...
