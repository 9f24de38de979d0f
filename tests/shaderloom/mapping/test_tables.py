"""Rows of tables: what is no array is refused, what the result has besides keeps its type.

Covers: shaderloom/mapping/tables, shaderloom/mapping/results.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from shaderloom.mapping.columns import RowInput
from shaderloom.mapping.results import write_npz, write_parquet
from shaderloom.mapping.tables import TableSource
from shaderloom.runtime.plan.errors import InputError

INPUT = {"x": RowInput("x", np.dtype(np.float32), (4,))}
FLOATS = pyarrow.list_(pyarrow.float32())
NESTED = pyarrow.list_(FLOATS)


def source_of(path: Path, table: pyarrow.Table, *carried: str) -> TableSource:
    parquet.write_table(table, path / "t.parquet")
    return TableSource(path / "t.parquet", INPUT, {}, carried, None)


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        ([1, 2, None, 4], FLOATS, "an element is null"),
        (None, FLOATS, "it is null"),
        ([[1, 2], None, [3, 4]], NESTED, "an element is null"),
        ([[1], [2, 3, 4]], NESTED, "differ in length"),
        ([[1, 2], [3, None]], NESTED, "an element is null"),
    ],
)
def test_nulls_and_ragged_lists_are_no_row(value, kind, reason, tmp_path):
    good = [1, 2, 3, 4] if kind is FLOATS else [[1, 2], [3, 4]]
    source = source_of(tmp_path, pyarrow.table({"x": pyarrow.array([good, value], kind)}))
    (_, feeds), (_, bad) = source.rows(0, 2)
    np.testing.assert_array_equal(feeds["x"], [[1, 2, 3, 4]])
    assert isinstance(bad, InputError) and reason in str(bad) and "row 1 of" in str(bad)


def test_a_column_twice_is_refused(tmp_path):
    column = pyarrow.array([[1, 2, 3, 4]], FLOATS)
    with pytest.raises(InputError, match="several columns 'x'"):
        source_of(tmp_path, pyarrow.Table.from_arrays([column, column], ["x", "x"]))


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([None, None, "c"], pyarrow.string()),
        pyarrow.array([None, 1001, 2], pyarrow.timestamp("ns")),
        pyarrow.array([None, [1, None], []], pyarrow.list_(pyarrow.int8())),
        pyarrow.array([3, 2, 1], pyarrow.uint8()),
    ],
    ids=lambda column: str(column.type),
)
def test_carried_columns_keep_their_type(column, tmp_path):
    table = pyarrow.table({"x": pyarrow.array([[1, 2, 3, 4]] * 3, FLOATS), "c": column})
    results = [(carried, [np.ones((1, 2), np.float32)]) for carried, _ in source_of(tmp_path, table, "c").rows(0, 3)]
    for stop in (1, 3):
        file = io.BytesIO()
        write_parquet(file, ["y"], results[:stop], has_errors=False)
        written = parquet.read_table(file)["c"].combine_chunks()
        assert written.type == column.type and written.equals(column[:stop])


def test_arrays_have_no_nulls(tmp_path):
    table = pyarrow.table({"x": pyarrow.array([[1, 2, 3, 4]] * 2, FLOATS), "c": ["a", None], "n": [1, 2]})
    results = [(each, [np.ones((1, 2), np.float32)]) for each, _ in source_of(tmp_path, table, "c", "n").rows(0, 2)]
    with pytest.raises(InputError, match="column 'c'"):
        write_npz(io.BytesIO(), ["y"], results)
    file = io.BytesIO()
    write_npz(file, ["y"], [({"n": carried["n"]}, outputs) for carried, outputs in results])
    file.seek(0)
    assert np.load(file)["n"].tolist() == [1, 2]


def test_a_damaged_page_is_an_error_of_the_table(tmp_path: Path) -> None:
    table = pyarrow.table({"x": pyarrow.array([[1.0, 2, 3, 4]] * 50, FLOATS)})
    source = source_of(tmp_path, table)
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[4:40] = b"\xff" * 36  # the head of the first page
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"'.*t\.parquet' cannot be read"):
        list(source.rows(0, 50))
