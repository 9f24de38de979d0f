"""What a worker answers to the items of a chunk, in this process.

Covers: shaderloom/pool/worker.
"""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from shaderloom.batching.joined import JoinedOutputs
from shaderloom.pool.channel import SMALL
from shaderloom.pool.worker import WorkerJob, apart, open_answers, threads_for
from shaderloom.runtime.plan.errors import InputError

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
negative (float[batch, k] x) => (float[batch, k] y) { y = Neg(x) }
"""


@pytest.fixture(scope="module")
def answer(device):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    session, answer = open_answers(WorkerJob(model, device.adapter.index, {}, 4, True))
    yield answer
    session.close()


def chunk_of(*lengths: int) -> list[tuple[int, dict[str, np.ndarray]]]:
    draw = np.random.default_rng(0)
    return [(10 + number, {"x": draw.random((1, length), np.float32)}) for number, length in enumerate(lengths)]


@pytest.mark.parametrize(("length", "is_joined"), [(5, True), (SMALL // 4, False)])
def test_small_outputs_stay_joined(answer, length, is_joined):
    chunk = chunk_of(length, length, length)
    answers = answer(chunk)
    assert [isinstance(outcomes, JoinedOutputs) for _, outcomes in answers] == [is_joined]
    for (number, (y,)), (expected, feeds) in zip(apart(answers), chunk, strict=True):
        assert number == expected
        np.testing.assert_array_equal(y, -feeds["x"])


def test_each_item_has_its_answer(answer):
    """Other shapes and errors among more rows than a batch has."""
    chunk = chunk_of(5, 7, 5, 5, 5, 5, 3)
    chunk[1][1]["x"] = np.zeros((1, 7))
    outcomes = dict(apart(answer(chunk)))
    assert list(outcomes) == [number for number, _ in chunk]
    assert isinstance(outcomes.pop(11), InputError)
    for number, (y,) in outcomes.items():
        np.testing.assert_array_equal(y, -dict(chunk)[number]["x"])


@pytest.mark.parametrize(("in_flight", "threads"), [(1, 1), (2, 4)])
def test_more_threads_answer_where_a_device_has_several_batches(in_flight, threads):
    assert threads_for(in_flight) == threads
