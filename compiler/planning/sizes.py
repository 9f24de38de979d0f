"""Bytes that values take in memory."""

from __future__ import annotations

from ...runtime.plan.dtypes import DType, padded_bytes
from ...runtime.plan.errors import InternalError
from ..ir.graph import Value
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim


def tensor_bytes(elements: Dim, dtype: DType) -> Dim:
    """Return the size of a tensor's range, padded as in :func:`~.dtypes.padded_bytes`."""
    if isinstance(elements, ix.Index):
        return ix.maximum(ix.multiply(ix.ceildiv(ix.multiply(elements, dtype.bits), 128), 16), 16)
    return padded_bytes(elements, dtype)


def stored_bytes(value: Value) -> Dim:
    """Return the bytes that a value takes in memory, padding of its layout included."""
    return tensor_bytes(value.layout.stored_elements(value.shape), value.dtype)


def static_bytes(value: Value) -> int:
    """Return the bytes of a constant, or of a value that depends on constants alone.

    Raises :class:`InternalError` for a value whose size depends on dynamic dimensions.
    """
    size = stored_bytes(value)
    if isinstance(size, ix.Index):
        raise InternalError(f"{value!r} has no fixed size")
    return size
