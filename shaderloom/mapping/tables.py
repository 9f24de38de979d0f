"""Rows of tables: Parquet files, and those of Arrow."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..runtime.plan.errors import InputError, UnsupportedError
from .columns import RowInput, parse_columns
from .pictures import PictureForm
from .sources import Feeds, Row, RowSource, guarded

#: Rows of a table that are decoded at once
_ROWS = 256


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
        for first, batch in self._batches(start, stop):
            columns = {name: batch.column(name) for name in {*self._columns.values(), *self._carried}}
            for offset in range(max(start - first, 0), min(stop - first, batch.num_rows)):
                row = first + offset
                carried = {column: columns[column][offset] for column in self._carried}
                values = {name: columns[column][offset] for name, column in self._columns.items()}
                yield {"file": str(self.path), "row": row, **carried}, guarded(partial(self._feeds, row, values))

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
                yield from self._file.iter_batches(batch_size=_ROWS, row_groups=[group], columns=names)
            else:
                yield self._file.get_batch(group)
        except (OSError, ValueError, ArrowException) as error:
            raise InputError(f"'{self.path}' cannot be read: {error}", hint="write it again") from None

    def _feeds(self, row: int, values: Mapping[str, Any]) -> Feeds:
        source = f"row {row} of '{self.path}'"
        feeds = {}
        for name, value in values.items():
            try:
                content = _elements(value)
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
