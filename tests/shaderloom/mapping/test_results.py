"""Files of results have an entry for each row of the inputs, whatever the rows of the outputs.

Covers: shaderloom/mapping/results.
"""

from __future__ import annotations

import io

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from shaderloom.mapping.results import write_npz, write_parquet
from shaderloom.runtime.plan.declared_port import DeclaredPort
from shaderloom.runtime.plan.errors import InputError

PORT = DeclaredPort("y", "float32", None)


@pytest.mark.parametrize(
    ("shape", "entry"), [((1, 2, 5), (2, 5)), ((3, 5), (3, 5)), ((1,), ()), ((), ()), ((0, 5), (0, 5))]
)
def test_an_entry_is_what_a_row_has_of_an_output(shape, entry):
    outputs = np.random.default_rng(1).standard_normal((4, *shape), dtype=np.float32)
    results = [({"row": row}, [output]) for row, output in enumerate(outputs)]
    arrays, table = io.BytesIO(), io.BytesIO()
    write_npz(arrays, [PORT], results)
    write_parquet(table, [PORT], results, has_errors=False)
    arrays.seek(0)
    np.testing.assert_array_equal(np.load(arrays)["y"], outputs.reshape(4, *entry))
    written = parquet.read_table(table)
    assert (written.schema.field("y").metadata or {}).get(b"shape", b"").decode() == ",".join(map(str, entry))
    np.testing.assert_array_equal(np.array(written["y"].to_pylist()).reshape(4, *entry), outputs.reshape(4, *entry))


def test_entries_of_different_shapes_are_lists():
    results = [({"row": row}, [np.full((count, 2), row, np.float32)]) for row, count in enumerate((1, 3, 0))]
    with pytest.raises(InputError, match="differ in shape"):
        write_npz(io.BytesIO(), [PORT], results)
    table = io.BytesIO()
    write_parquet(table, [PORT], results, has_errors=False)
    assert parquet.read_table(table)["y"].to_pylist() == [[0.0] * 2, [1.0] * 6, []]


@pytest.mark.parametrize(
    ("dims", "sizes", "kind"),
    [
        (("batch", 2, 3), [(2, 3)] * 2, pyarrow.list_(pyarrow.float32(), 6)),
        (("batch",), [(), ()], pyarrow.float32()),
        (("batch", "n"), [(3,), (5,)], pyarrow.list_(pyarrow.float32())),
    ],
)
def test_parts_of_a_result_have_one_type(dims, sizes, kind, tmp_path):
    """Where all rows have failed, some, or none; and where each part has rows of another size."""
    rows = [np.ones((1, *size), np.float32) for size in sizes]
    outcomes = [[InputError("none")] * 2, [[rows[0]], InputError("none")], *([[row]] * 2 for row in rows)]
    for number, each in enumerate(outcomes):
        with open(tmp_path / f"{number}.parquet", "wb") as file:
            port = DeclaredPort("y", "float32", dims)
            write_parquet(file, [port], [({"row": 0}, outcome) for outcome in each], has_errors=True)
    result = parquet.read_table(tmp_path)
    assert result.schema.field("y").type.equals(kind) and result["y"].null_count == 3
