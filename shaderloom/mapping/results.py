"""Files of results: Parquet with a column for each output, or arrays of numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.dtypes import BY_NAME, interface_dtype
from ..runtime.plan.errors import InputError, UnsupportedError
from .npz import write_arrays

#: One row: what it carries, and the outputs or the error
Result = tuple[dict[str, Any], list[np.ndarray] | Exception]


def write_npz(file: IO[bytes], ports: Sequence[DeclaredPort], results: Sequence[Result]) -> None:
    """Write the outputs, stacked, and what the rows carry.  Raises :class:`InputError` for rows of unequal shapes."""
    arrays: dict[str, Any] = {}
    for key in results[0][0] if results else ():
        arrays[key] = _carried(key, [carried[key] for carried, _ in results])
    present = [outputs for _, outputs in results if not isinstance(outputs, Exception)]
    for position, port in enumerate(ports):
        try:
            arrays[port.name] = _stacked([outputs[position] for outputs in present])
        except ValueError as error:
            raise InputError(
                f"rows of the output differ in shape: {error}", tensor=port.name, hint="--format parquet"
            ) from None
    write_arrays(file, arrays)


def write_parquet(
    file: IO[bytes], ports: Sequence[DeclaredPort], results: Sequence[Result], *, has_errors: bool
) -> None:
    """Write a column for all that rows carry and for each output, whose rows are numbers or flat lists.

    With ``has_errors`` there is a column ``error``; outputs of a row with an error are null.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UnsupportedError(
            "Parquet needs pyarrow", hint="pip install 'shaderloom[data]', or --format npz"
        ) from error
    columns: dict[str, Any] = {}
    for key in results[0][0] if results else ():
        columns[key] = _carried_column(pyarrow, [carried[key] for carried, _ in results])
    shapes: dict[str, Any] = {}
    for position, port in enumerate(ports):
        rows = [None if isinstance(outputs, Exception) else row_of(outputs[position]) for _, outputs in results]
        columns[port.name], shapes[port.name] = _column(pyarrow, port, rows)
    if has_errors:
        texts = [str(outputs) if isinstance(outputs, Exception) else None for _, outputs in results]
        columns["error"] = pyarrow.array(texts, pyarrow.string())
    fields = [
        pyarrow.field(name, column.type, metadata={"shape": shapes[name]} if shapes.get(name) else None)
        for name, column in columns.items()
    ]
    parquet.write_table(pyarrow.table(list(columns.values()), pyarrow.schema(fields)), file)


def _carried(name: str, values: Sequence[Any]) -> np.ndarray:
    """Return values that rows carry, of which those of tables are scalars of Arrow, as an array without objects."""
    try:
        array = np.array([value.as_py() if hasattr(value, "as_py") else value for value in values])
    except ValueError as error:
        raise InputError(f"the column '{name}' is no array: {error}", hint="--format parquet") from None
    if array.dtype.hasobject:
        raise InputError(f"the column '{name}' has elements that no array has", hint="--format parquet")
    return array


def _carried_column(pyarrow: Any, values: Sequence[Any]) -> Any:
    """Return values that rows carry; those of a table have its type in every part, even where all are null."""
    if not isinstance(values[0], pyarrow.Scalar):
        return pyarrow.array(values)
    return pyarrow.array([value if value.is_valid else None for value in values], values[0].type)


def _column(pyarrow: Any, port: DeclaredPort, rows: Sequence[np.ndarray | None]) -> tuple[Any, str]:
    """Return the rows of an output as a column, and the shape of a row if it is the same for all.

    Its type follows from what the model declares, so that it is that of all parts: numbers, lists of a size, or lists.
    """
    present = [_stored(row) for row in rows if row is not None]
    shapes = {row.shape for row in present}
    shape = ",".join(map(str, next(iter(shapes)))) if len(shapes) == 1 else ""
    sizes = _declared_sizes(port)
    if sizes is None or not shapes <= {sizes}:  # a shape that is not declared, or not what is
        sizes = () if shapes == {()} else None
    elements = present[0].dtype if present else _declared_dtype(port)
    dtype = pyarrow.string() if elements.hasobject else pyarrow.from_numpy_dtype(elements)
    size = 0 if sizes is None else math.prod(sizes)
    if sizes == ():
        return pyarrow.array([None if row is None else _stored(row).reshape(-1)[0] for row in rows], dtype), shape
    if present and len(present) == len(rows) and size:
        flat = pyarrow.array(np.concatenate(present, None), dtype)
        return pyarrow.FixedSizeListArray.from_arrays(flat, size), shape
    lists = [None if row is None else _stored(row).reshape(-1) for row in rows]
    return pyarrow.array(lists, pyarrow.list_(dtype, size) if size else pyarrow.list_(dtype)), shape


def _declared_sizes(port: DeclaredPort) -> tuple[int, ...] | None:
    """Return the shape of what a row has of an output; None where the model leaves it open."""
    if port.dims is None:
        return None
    dims = port.dims[1:] if port.dims[:1] == (1,) or not isinstance((*port.dims, 0)[0], int) else port.dims
    sizes = tuple(dim for dim in dims if isinstance(dim, int))
    return sizes if len(sizes) == len(dims) else None


def _declared_dtype(port: DeclaredPort) -> np.dtype[Any]:
    """Return the type of elements in which an output is stored."""
    dtype = BY_NAME.get(port.dtype or "float32", BY_NAME["float32"])
    return _stored(np.empty(0, interface_dtype(dtype))).dtype


def row_of(output: np.ndarray) -> np.ndarray:
    """Return what a row has of an output: without the axis of rows, where it has one of a single row."""
    return output[0, ...] if output.shape[:1] == (1,) else output


def _stacked(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return what rows have of an output, behind one another.  Raises ValueError for unequal shapes."""
    shape = outputs[0].shape if outputs else ()
    is_row = shape[:1] == (1,) and all(output.shape == shape for output in outputs)
    stack = np.concatenate(outputs) if is_row else np.stack([row_of(output) for output in outputs])
    return stack.astype(str) if stack.dtype.hasobject else stack


def _stored(row: np.ndarray) -> np.ndarray:
    """Return the elements in a type that Arrow has."""
    return row.astype(np.float32) if row.dtype.kind not in "biufO" else row
