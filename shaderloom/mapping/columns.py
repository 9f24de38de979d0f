"""What the inputs of a model are made of: the arrays of one row, from numbers of a table or a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..model.header import ModelHeader
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.dtypes import BY_NAME, interface_dtype
from ..runtime.plan.errors import InputError, UnsupportedError
from ..runtime.plan.record import record

#: Bytes of a copy of several rows
_MOST_BYTES = 16 << 20


@record(slots=False)
class RowInput:
    """An input of the model that gets one row: its dtype, and the sizes behind its first axis, None where open."""

    name: str
    dtype: np.dtype[Any]
    sizes: tuple[int | None, ...]

    def array(self, values: Any, source: str) -> np.ndarray:
        """Return the array with one row of these elements, which are the shape of a row, or flat.

        Raises :class:`InputError` that names ``source`` for elements of another number or type.
        """
        try:
            row = np.asarray(values)
            if row.dtype != self.dtype:
                row = _converted(row, self.dtype)
            return row.reshape(1, *self._shape(row))
        except (TypeError, ValueError, OverflowError) as error:
            raise self.misfit(source, error) from None

    def arrays(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the arrays of rows [rows, ...] behind one another, with a copy only if their dtype is another one.

        None if :meth:`array` refuses one of them, or if that copy were large.
        """
        if rows.dtype != self.dtype and rows.size * self.dtype.itemsize > _MOST_BYTES:
            return None
        try:
            converted = np.asarray(rows) if rows.dtype == self.dtype else _converted(np.asarray(rows), self.dtype)
            return converted.reshape(len(rows), *self._shape(converted[0]))
        except (TypeError, ValueError, OverflowError):
            return None

    def misfit(self, source: str, reason: object) -> InputError:
        """Return the error of elements that are no row of this input."""
        return InputError(
            f"{source} does not fit: {reason}",
            tensor=self.name,
            hint=f"a row is {self.dtype}{[size or '?' for size in self.sizes]}",
        )

    def _shape(self, row: np.ndarray) -> tuple[int, ...]:
        if row.ndim == len(self.sizes):
            if all(size in (None, actual) for size, actual in zip(self.sizes, row.shape)):
                return row.shape
        elif row.ndim == 1 and sum(size is None for size in self.sizes) <= 1:
            return tuple(-1 if size is None else size for size in self.sizes)
        raise ValueError(f"its shape is {list(row.shape)}")


def row_inputs(header: ModelHeader) -> dict[str, RowInput]:
    """Return the inputs of a model whose first axis is rows; raise :class:`UnsupportedError` for one that is not."""
    if not header.inputs:
        raise UnsupportedError("the model has no inputs", hint="shaderloom run")
    return {port.name: _row_input(port) for port in header.inputs}


def _row_input(port: DeclaredPort) -> RowInput:
    dtype = BY_NAME.get(port.dtype or "")
    if dtype is None or not port.dims or (isinstance(port.dims[0], int) and port.dims[0] != 1):
        raise UnsupportedError(
            "the first axis of every input must be rows, an open size or 1", tensor=port.name, hint="use Pool in Python"
        )
    sizes = tuple(dim if isinstance(dim, int) else None for dim in port.dims[1:])
    return RowInput(port.name, np.dtype(interface_dtype(dtype)), sizes)


def _converted(row: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return ``row`` as ``dtype``; raise ValueError if numbers would change by more than a float's rounding."""
    if row.dtype.kind not in "biuf":
        raise ValueError(f"it has {row.dtype} elements")
    with np.errstate(all="ignore"):
        result = row.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(result.astype(row.dtype), row):
        raise ValueError(f"{row.dtype} elements are no {dtype}")
    return result


def parse_columns(texts: Mapping[str, str], names: list[str], inputs: Mapping[str, RowInput]) -> dict[str, str]:
    """Return the column of each input: the one that ``texts`` name, that of its own name, or the only one there is.

    Raises :class:`InputError` if there is none.
    """
    columns = {}
    for name in texts:
        if name not in inputs:
            raise InputError(f"the model has no input '{name}'", hint=f"its inputs are {', '.join(inputs)}")
    for name in inputs:
        column = texts.get(name, name)
        if column not in names and name not in texts and len(inputs) == 1 and len(names) == 1:
            column = names[0]
        if column not in names:
            raise InputError(
                f"there is no column '{column}' for the input",
                tensor=name,
                hint=f"--columns {name}=COLUMN, of {', '.join(names)}",
            )
        columns[name] = column
    return columns
