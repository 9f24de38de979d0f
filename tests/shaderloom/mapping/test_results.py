"""Files of results have an entry for each row of the inputs, whatever the rows of the outputs.

Covers: shaderloom/mapping/results.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from pyarrow import parquet

from shaderloom.mapping.results import write_npz, write_parquet
from shaderloom.runtime.plan.errors import InputError


@pytest.mark.parametrize(
    ("shape", "entry"), [((1, 2, 5), (2, 5)), ((3, 5), (3, 5)), ((1,), ()), ((), ()), ((0, 5), (0, 5))]
)
def test_an_entry_is_what_a_row_has_of_an_output(shape, entry):
    outputs = np.random.default_rng(1).standard_normal((4, *shape), dtype=np.float32)
    results = [({"row": row}, [output]) for row, output in enumerate(outputs)]
    arrays, table = io.BytesIO(), io.BytesIO()
    write_npz(arrays, ["y"], results)
    write_parquet(table, ["y"], results, has_errors=False)
    arrays.seek(0)
    np.testing.assert_array_equal(np.load(arrays)["y"], outputs.reshape(4, *entry))
    written = parquet.read_table(table)
    assert (written.schema.field("y").metadata or {}).get(b"shape", b"").decode() == ",".join(map(str, entry))
    np.testing.assert_array_equal(np.array(written["y"].to_pylist()).reshape(4, *entry), outputs.reshape(4, *entry))


def test_entries_of_different_shapes_are_lists():
    results = [({"row": row}, [np.full((count, 2), row, np.float32)]) for row, count in enumerate((1, 3, 0))]
    with pytest.raises(InputError, match="differ in shape"):
        write_npz(io.BytesIO(), ["y"], results)
    table = io.BytesIO()
    write_parquet(table, ["y"], results, has_errors=False)
    assert parquet.read_table(table)["y"].to_pylist() == [[0.0] * 2, [1.0] * 6, []]
