"""Rows of tables: what is no array is refused, what the result has besides keeps its type.

Covers: shaderloom/mapping/tables, shaderloom/mapping/sources, shaderloom/mapping/columns, shaderloom/mapping/results.
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
from shaderloom.mapping.sources import ArraySource
from shaderloom.mapping.tables import TableSource
from shaderloom.runtime.plan.declared_port import DeclaredPort
from shaderloom.runtime.plan.errors import InputError

PORT = DeclaredPort("y", "float32", None)
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
        write_parquet(file, [PORT], results[:stop], has_errors=False)
        written = parquet.read_table(file)["c"].combine_chunks()
        assert written.type == column.type and written.equals(column[:stop])


def test_arrays_have_no_nulls(tmp_path):
    table = pyarrow.table({"x": pyarrow.array([[1, 2, 3, 4]] * 2, FLOATS), "c": ["a", None], "n": [1, 2]})
    results = [(each, [np.ones((1, 2), np.float32)]) for each, _ in source_of(tmp_path, table, "c", "n").rows(0, 2)]
    with pytest.raises(InputError, match="column 'c'"):
        write_npz(io.BytesIO(), [PORT], results)
    file = io.BytesIO()
    write_npz(file, [PORT], [({"n": carried["n"]}, outputs) for carried, outputs in results])
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


@pytest.mark.parametrize(
    ("column", "kind", "shape"),
    [
        (pyarrow.array([[1.5, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], FLOATS), np.float32, (4,)),
        (pyarrow.array([[1, 2, 3, 4]] * 3, pyarrow.list_(pyarrow.int64(), 4)), np.int64, (2, 2)),
        (pyarrow.array([[1, 2], [3, 4], [5, 6]], pyarrow.large_list(pyarrow.uint8())), np.float32, (2,)),
        (pyarrow.array([[[1], [2]], [[3], [4]], [[5], [6]]], NESTED), np.float32, (2, None)),
        (pyarrow.array([1, 2, 3], pyarrow.int16()), np.int64, ()),
        (pyarrow.array([1.0, 2.0, 3.0], pyarrow.float64()), np.float32, ()),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_columns_are_decoded_at_once(column, kind, shape, tmp_path):
    """Rows are views of one array, with the elements that they have one by one."""
    port = RowInput("x", np.dtype(kind), shape)
    parquet.write_table(pyarrow.table({"x": column}), tmp_path / "t.parquet")
    rows = [feeds["x"] for _, feeds in TableSource(tmp_path / "t.parquet", {"x": port}, {}, (), None).rows(1, 3)]
    assert rows[0].base is rows[1].base is not None
    for row, value in zip(rows, column.to_pylist()[1:], strict=True):
        expected = port.array(np.array(value).reshape(-1) if shape else value, "it")
        np.testing.assert_array_equal(row, expected)
        assert row.dtype == kind and row.shape == expected.shape


@pytest.mark.parametrize("bad", [[1.5, 2], [1], [1 << 40, 0]])
def test_a_row_that_does_not_fit_leaves_the_others(bad, tmp_path):
    port = RowInput("x", np.dtype(np.int32), (2,))
    parquet.write_table(pyarrow.table({"x": [[1.0, 2], bad, [3, 4]]}), tmp_path / "t.parquet")
    first, second, third = TableSource(tmp_path / "t.parquet", {"x": port}, {}, (), None).rows(0, 3)
    assert isinstance(second[1], InputError) and "row 1 of" in str(second[1])
    np.testing.assert_array_equal([first[1]["x"], third[1]["x"]], [[[1, 2]], [[3, 4]]])


def test_arrays_are_read_in_blocks(tmp_path):
    """A block with a row that does not fit is read row by row, and so is one whose copy would be large."""
    values = np.arange(2000.0).reshape(1000, 2)
    values[300] = 0.5
    np.save(tmp_path / "x.npy", values)
    port = RowInput("x", np.dtype(np.int64), (2,))
    rows = [feeds for _, feeds in ArraySource(tmp_path / "x.npy", {"x": port}, {}).rows(0, 1000)]
    assert isinstance(rows.pop(300), InputError)
    assert rows[0]["x"].base is rows[1]["x"].base and rows[256]["x"].base is not rows[257]["x"].base
    np.testing.assert_array_equal(np.concatenate([feeds["x"] for feeds in rows]), np.delete(values, 300, 0))
    assert port.arrays(np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 20, 2), (0, 0))) is not None
    assert port.arrays(np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 21, 2), (0, 0))) is None
