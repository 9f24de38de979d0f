"""What a worker answers to the items of a chunk, in this process.

Covers: shaderloom/pool/worker.
"""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from shaderloom.batching.joined import JoinedOutputs
from shaderloom.pool.chunk import Item
from shaderloom.pool.worker import WorkerJob, open_answers, threads_for
from shaderloom.runtime.plan.errors import InputError
from shaderloom.session.session import InferenceSession

from .test_answers import apart
from .test_chunk import passed

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
negative (float[batch, k] x) => (float[batch, k] y) { y = Neg(x) }
"""
AXES = """
<ir_version: 8, opset_import: ["" : 18]>
axes (float[batch, k] x, float[k, batch] t, int64[batch] i, float b) => (float[batch, k] y) {
    u = Transpose<perm = [1, 0]>(t)
    v = Mul(x, u)
    one = Constant<value_ints = [1]>()
    j = Unsqueeze(i, one)
    f = Cast<to = 1>(j)
    w = Add(v, f)
    y = Add(w, b)
}
"""
TABLE = """
<ir_version: 8, opset_import: ["" : 18]>
table (int64[batch, 1] i) => (float[batch, 1, 2] y) <float[3, 2] rows = {0, 1, 2, 3, 4, 5}> { y = Gather(rows, i) }
"""


@pytest.fixture(scope="module")
def answer(device):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    session, answer = open_answers(WorkerJob(model, device.adapter.index, {}, 4, True))
    yield answer
    session.close()


def items_of(*lengths: int) -> list[Item]:
    draw = np.random.default_rng(0)
    return [(10 + number, {"x": draw.random((1, length), np.float32)}) for number, length in enumerate(lengths)]


@pytest.mark.parametrize("length", [5, 9000])
def test_outputs_stay_joined(answer, length):
    items = items_of(length, length, length)
    answers = answer(passed(items))
    assert [type(outcomes) for _, outcomes in answers] == [JoinedOutputs]
    for (number, (y,)), (expected, feeds) in zip(apart(answers), items, strict=True):
        assert number == expected
        np.testing.assert_array_equal(y, -feeds["x"])


def test_each_item_has_its_answer(answer):
    """Other shapes and errors among more rows than a batch has."""
    items = items_of(5, 7, 5, 5, 5, 5, 3)
    items[1] = items[1][0], {"x": np.zeros((1, 7))}
    outcomes = dict(apart(answer(passed(items))))
    assert list(outcomes) == [number for number, _ in items]
    assert isinstance(outcomes.pop(11), InputError)
    for number, (y,) in outcomes.items():
        np.testing.assert_array_equal(y, -dict(items)[number]["x"])


def test_items_of_unequal_rows_fill_batches_together(answer):
    """Groups of one row, two rows and five, beside an item of lists, of which batches have four rows, or one item."""
    draw = np.random.default_rng(1)
    items = [
        (number, {"x": draw.random((rows, 3), np.float32)}) for number, rows in enumerate((1, 2, 1, 1, 2, 1, 1, 5))
    ]
    items.append((8, {"x": [[1.0, 2.0, 3.0]]}))
    answers = answer(passed(items))
    assert [numbers for numbers, _ in answers] == [[0, 2, 3, 5], [6, 1], [4], [7], [8]]
    for (number, (y,)), (expected, feeds) in zip(apart(answers), items, strict=True):
        assert number == expected
        np.testing.assert_array_equal(y, -np.float32(feeds["x"]))


@pytest.mark.parametrize(("is_asked", "most"), [(False, range(6, 7)), (True, range(1, 5))])
def test_a_large_item_runs_at_once_unless_a_batch_is_asked_for(is_asked, most, monkeypatch):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    ran: list[int] = []
    run = InferenceSession._run_checked
    monkeypatch.setattr(
        InferenceSession,
        "_run_checked",
        lambda self, feeds, targets: ran.append(len(feeds["x"])) or run(self, feeds, targets),
    )
    session, answer = open_answers(WorkerJob(model, None, {"providers": ["cpu"]}, 4, is_asked))
    items = [(number, {"x": np.full((count, 3), number, np.float32)}) for number, count in enumerate((6, 3))]
    for (_, (y,)), (_, feeds) in zip(apart(answer(passed(items))), items, strict=True):
        np.testing.assert_array_equal(y, -feeds["x"])
    assert max(ran) in most
    session.close()


@pytest.mark.parametrize("batch", [4, 1], ids=["joined", "single"])
def test_rows_along_other_axes_and_inputs_without_rows(batch, device):
    model = onnx.parser.parse_model(AXES).SerializeToString()
    session, answer = open_answers(WorkerJob(model, device.adapter.index, {}, batch, False))
    draw = np.random.default_rng(2)
    items = [(number, {"x": draw.random((rows, 3), np.float32), "t": draw.random((3, rows), np.float32),
                       "i": draw.integers(0, 9, rows), "b": np.array(number % 2, np.float32)})
             for number, rows in enumerate((1, 2, 1, 1, 2, 1))]  # fmt: skip
    items.append((6, {**items[0][1], "t": np.zeros((2, 1), np.float32)}))
    with session:
        *outcomes, (_, error) = apart(answer(passed(items)))
    assert isinstance(error, InputError)
    for (number, (y,)), (expected, feeds) in zip(outcomes, items, strict=False):
        assert number == expected
        np.testing.assert_allclose(y, feeds["x"] * feeds["t"].T + feeds["i"][:, None] + feeds["b"], rtol=1e-6)


def test_a_run_that_fails_is_the_error_of_one_item():
    """An index beyond the table, which onnxruntime refuses, among items of equal shapes."""
    model = onnx.parser.parse_model(TABLE).SerializeToString()
    session, answer = open_answers(WorkerJob(model, None, {"providers": ["cpu"]}, 4, False))
    items = [(number, {"i": np.array([[index]])}) for number, index in enumerate((0, 1, 7, 2, 0, 1))]
    with session:
        outcomes = dict(apart(answer(passed(items))))
    assert "out of data bounds" in str(outcomes.pop(2))
    for number, (y,) in outcomes.items():
        np.testing.assert_array_equal(y, np.arange(6, dtype=np.float32).reshape(3, 2)[dict(items)[number]["i"]])


@pytest.mark.parametrize(("in_flight", "threads"), [(1, 1), (2, 4)])
def test_more_threads_answer_where_a_device_has_several_batches(in_flight, threads):
    assert threads_for(in_flight) == threads
