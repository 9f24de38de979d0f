"""Rows of tables: Parquet files, and those of Arrow."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.plan.errors import InputError, UnsupportedError
from .columns import RowInput, parse_columns
from .pictures import PictureForm
from .sources import BLOCK, Feeds, Row, RowSource, feeds_of


class TableSource(RowSource):
    """A table; columns have numbers, lists of them, or encoded pictures."""

    def __init__(
        self,
        path: Path,
        inputs: Mapping[str, RowInput],
        columns: Mapping[str, str],
        carried: Sequence[str],
        form: PictureForm | None,
    ) -> None:
        super().__init__(path, inputs)
        self._form = form
        self._file, names, self._counts = _open_table(path)
        self._columns = parse_columns(columns, names, inputs)
        for column in carried:
            if column not in names:
                raise InputError(f"'{path}' has no column '{column}'", hint=f"it has {', '.join(names)}")
        for column in (*self._columns.values(), *carried):
            if names.count(column) > 1:
                raise InputError(f"'{path}' has several columns '{column}'", hint="rename them")
        self._carried = list(carried)

    def __len__(self) -> int:
        return sum(self._counts)

    def rows(self, start: int, stop: int) -> Iterator[Row]:
        file = str(self.path)
        for first, batch in self._batches(start, stop):
            columns = {name: batch.column(column) for name, column in self._columns.items()}
            carried = {column: batch.column(column) for column in self._carried}
            blocks = {name: self._block(name, column) for name, column in columns.items()}
            for offset in range(max(start - first, 0), min(stop - first, batch.num_rows)):
                row = first + offset
                besides = {name: column[offset] for name, column in carried.items()}
                feeds = feeds_of(blocks, offset, partial(self._feeds, columns, row, offset))
                yield {"file": file, "row": row, **besides}, feeds

    def _block(self, name: str, column: Any) -> np.ndarray | None:
        """Return the arrays of an input for all rows of a column; None where they are decoded one by one."""
        rows = _all_elements(column)
        return None if rows is None else self.inputs[name].arrays(rows)

    def _batches(self, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """Yield record batches that have rows ``start`` to ``stop``, each with the number of its first row."""
        names = list(dict.fromkeys([*self._columns.values(), *self._carried]))
        first = 0
        for group, count in enumerate(self._counts):
            if first < stop and start < first + count:
                begin = first
                for batch in self._batches_of(group, names):
                    if begin < stop and start < begin + batch.num_rows:
                        yield begin, batch
                    begin += batch.num_rows
            first += count

    def _batches_of(self, group: int, names: list[str]) -> Iterator[Any]:
        from pyarrow import ArrowException

        try:
            if hasattr(self._file, "iter_batches"):
                several = len(names) > 1  # which threads would decode; to start one costs more than a small column
                yield from self._file.iter_batches(BLOCK, row_groups=[group], columns=names, use_threads=several)
            else:
                yield self._file.get_batch(group)
        except (OSError, ValueError, ArrowException) as error:
            raise InputError(f"'{self.path}' cannot be read: {error}", hint="write it again") from None

    def _feeds(self, columns: Mapping[str, Any], row: int, offset: int) -> Feeds:
        source = f"row {row} of '{self.path}'"
        feeds = {}
        for name, column in columns.items():
            try:
                content = _elements(column[offset])
            except ValueError as error:
                raise self.inputs[name].misfit(source, error) from None
            if isinstance(content, bytes) and self._form is not None:
                feeds[name] = self._form.array(io.BytesIO(content), self.inputs[name], source)
            else:
                feeds[name] = self.inputs[name].array(content, source)
        return feeds


def _elements(value: Any) -> Any:
    """Return a number, the elements of a list, flat, or bytes.

    Raises ValueError for nulls, of which numpy would make NaN or nothing, and for lists in it of unequal lengths.
    """
    from pyarrow import compute

    if not value.is_valid:
        raise ValueError("it is null")
    if not hasattr(value.type, "value_field"):
        return value.as_py()
    values = value.values
    while not values.null_count and hasattr(values.type, "value_field"):
        if len(compute.list_value_length(values).unique()) > 1:
            raise ValueError("its lists differ in length")
        values = values.flatten()
    if values.null_count:
        raise ValueError("an element is null")
    return values.to_numpy(zero_copy_only=False)


def _all_elements(column: Any) -> np.ndarray | None:
    """Return what :func:`_elements` does for all rows of a column of numbers [rows] or lists of them [rows, elements].

    None for other columns, and those with nulls or lists of unequal lengths, whose errors are those of rows.
    """
    from pyarrow import compute, types

    values, is_list = column, False
    while not values.null_count and hasattr(values.type, "value_field"):
        if len(compute.list_value_length(values).unique()) != 1:
            return None
        values, is_list = values.flatten(), True
    if values.null_count or not (types.is_integer(values.type) or types.is_floating(values.type)):
        return None
    elements: np.ndarray = values.to_numpy(zero_copy_only=False)
    return elements.reshape(len(column), -1) if is_list else elements


def _open_table(path: Path) -> tuple[Any, list[str], list[int]]:
    """Return an open file, the names of its columns, and the numbers of rows of its parts."""
    try:
        from pyarrow import ArrowException, ipc, memory_map, parquet
    except ImportError as error:
        raise UnsupportedError("tables need pyarrow", hint="pip install 'shaderloom[data]'") from error
    try:
        if path.suffix.lower() == ".parquet":
            file = parquet.ParquetFile(path)
            counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            return file, list(file.schema_arrow.names), counts
        stream = ipc.open_file(memory_map(str(path)))
        return (
            stream,
            list(stream.schema.names),
            [stream.get_batch(i).num_rows for i in range(stream.num_record_batches)],
        )
    except (OSError, ValueError, ArrowException) as error:
        raise InputError(
            f"'{path}' cannot be read: {error}", hint="write it as Parquet, or as a file of Arrow"
        ) from None
