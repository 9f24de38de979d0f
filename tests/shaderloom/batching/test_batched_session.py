"""Joined requests give what single runs give, and errors belong to their request.

Covers: shaderloom/batching, shaderloom/forks.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import wait

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom.batching.requests import RequestQueue
from shaderloom.batching.row_runner import RowRunner
from shaderloom.runtime.plan.errors import ClosedError, InputError, LimitError, UnsupportedError

from ...support.patience import PATIENCE

CLASSIFIER = """
<ir_version: 8, opset_import: ["" : 18]>
classifier (float[batch, k, 4] x, float[4] b, int64[batch, 1] i) => (float[batch, k] y, float[batch, 1, 4] z) {
    a = Add(x, b)
    p = Softmax<axis = -1>(a)
    last = Constant<value_ints = [2]>()
    y = ReduceSum<keepdims = 0>(a, last)
    two = Constant<value_ints = [-1]>()
    j = Unsqueeze(i, two)
    k4 = Constant<value_ints = [1, 1, 4]>()
    e = Tile(j, k4)
    z = GatherElements<axis = 1>(p, e)
}
"""
NEGATIVE = '<ir_version: 8, opset_import: ["" : 18]> negative (float[n, k] x) => (float[n, k] y) { y = Neg(x) }'


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(CLASSIFIER)
    onnx.checker.check_model(parsed)
    return parsed


@pytest.fixture
def session(model, each_device):
    with shaderloom.InferenceSession(model, device=each_device, cache=False) as opened:
        yield opened


def feeds(number: int, rows: int = 1, length: int = 3) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(number)
    return {
        "x": generator.standard_normal((rows, length, 4), dtype=np.float32),
        "b": np.arange(4, dtype=np.float32),
        "i": generator.integers(0, length, (rows, 1)),
    }


def check(futures, requests, session) -> None:
    for future, request in zip(futures, requests, strict=True):
        for joined, alone in zip(future.result(PATIENCE), session.run(None, request), strict=True):
            np.testing.assert_array_equal(joined, alone)
            assert joined.dtype == alone.dtype and joined.flags.writeable


def test_joined_requests_equal_single_runs(session):
    requests = [
        feeds(number, rows, length) for number, (rows, length) in enumerate([(1, 3), (2, 3), (1, 5), (3, 3)] * 4)
    ]
    with session.batched(8, max_wait_ms=50) as batched:
        check([batched.submit(each) for each in requests], requests, session)
        assert (batched.stats.requests, batched.stats.rows) == (16, 28)
        assert batched.stats.runs < 16


def test_padding_changes_nothing(session):
    requests = [feeds(number) for number in range(7)]
    with session.batched(4, max_wait_ms=60_000 - 1) as batched:
        for _ in range(3):
            futures = [batched.submit(each) for each in requests[:4]]
            check(futures, requests[:4], session)
        futures = [batched.submit(each) for each in requests]
        batched.close()
        check(futures, requests, session)


def test_only_requests_with_equal_shared_inputs_are_joined(session):
    requests = [feeds(number) for number in range(4)]
    for number, each in enumerate(requests):
        each["b"] = each["b"] * (number % 2)
    with session.batched(8, max_wait_ms=50) as batched:
        check([batched.submit(each) for each in requests], requests, session)


def test_stacked_inputs_are_one_request_unless_some_have_no_rows(session, each_device):
    requests = [feeds(number) for number in range(3)]
    stacks = {name: np.stack([each[name] for each in requests]) for name in requests[0]}
    runner = RowRunner(session.as_rows(), 8)
    assert [each.items for each in runner.requests(stacks, 3)] == [1, 1, 1]
    outcomes = runner.outcomes(runner.requests(stacks, 3))
    for outputs, request in zip(outcomes, requests, strict=True):
        for joined, alone in zip(outputs, session.run(None, request), strict=True):
            np.testing.assert_array_equal(joined, alone)
    negative = onnx.parser.parse_model(NEGATIVE)
    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    with shaderloom.InferenceSession(negative, device=each_device, cache=False) as opened:
        runner = RowRunner(opened.as_rows(), 8)
        (request,) = runner.requests({"x": x}, 3)
        assert np.shares_memory(request.feeds["x"], x) and (request.items, request.rows) == (3, 6)
        parts = [request.between(1, 3), request.between(0, 1)]
        np.testing.assert_array_equal(list(runner.outcomes(parts)), -x[[1, 2, 0], None])
        with pytest.raises(InputError):
            runner.requests({"x": x.astype(np.float64)}, 3)


def test_many_threads(session):
    requests = [feeds(number) for number in range(64)]
    futures = {}
    with session.batched(16) as batched:

        def ask(start: int) -> None:
            for number in range(start, 64, 8):
                futures[number] = batched.submit(requests[number])

        threads = [threading.Thread(target=ask, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        check([futures[number] for number in range(64)], requests, session)


def test_threads_that_wait_are_joined(session):
    requests = [feeds(number) for number in range(64)]
    outputs = {}
    with session.batched(16) as batched:

        def ask(start: int) -> None:
            for number in range(start, 64, 8):
                outputs[number] = batched.run(None, requests[number])

        threads = [threading.Thread(target=ask, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert batched.stats.requests == 64
    for number, request in enumerate(requests):
        for joined, alone in zip(outputs[number], session.run(None, request), strict=True):
            np.testing.assert_array_equal(joined, alone)


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_a_single_caller_runs_in_its_own_thread(rows, session, monkeypatch):
    request = feeds(0, rows)
    with session.batched(16, max_wait_ms=0) as batched:
        batched.run(None, request)
        monkeypatch.delattr(RequestQueue, "put")
        for joined, alone in zip(batched.run(None, request), session.run(None, request), strict=True):
            np.testing.assert_array_equal(joined, alone)
        with pytest.raises(InputError, match="float64"):
            batched.run(None, {**request, "x": request["x"].astype(np.float64)})
        assert batched.stats.requests == 2
    with pytest.raises(ClosedError):
        batched.run(None, request)


def test_inputs_that_are_converted_are_checked_every_time(session):
    request = feeds(0)
    with session.batched() as batched:
        for scale in (1, 2):
            listed = {**request, "b": [float(scale * value) for value in range(4)]}
            expected = session.run(None, {**request, "b": request["b"] * scale})
            for joined, alone in zip(batched.run(None, listed), expected, strict=True):
                np.testing.assert_array_equal(joined, alone)


def test_requests_are_awaited(session):
    requests = [feeds(number) for number in range(5)]

    async def ask(batched):
        return await asyncio.gather(*(batched.run_async(["y"], each) for each in requests))

    with session.batched() as batched:
        for (joined,), request in zip(asyncio.run(ask(batched)), requests, strict=True):
            np.testing.assert_array_equal(joined, session.run(["y"], request)[0])


def test_errors_belong_to_their_request(session):
    good, bad = feeds(1), feeds(2)
    bad["x"] = bad["x"].astype(np.float64)
    uneven = {**feeds(3), "i": feeds(4, rows=2)["i"]}
    with session.batched() as batched:
        futures = [batched.submit(each) for each in (good, bad, uneven, {"x": good["x"]}, good)]
        wait(futures, PATIENCE)
        assert isinstance(futures[1].exception(), InputError)
        with pytest.raises(InputError, match="has 2 rows, 'x' has 1"):
            futures[2].result()
        assert isinstance(futures[3].exception(), InputError)
        for shape, reason in (((1, 3, 5), "dimension 2 is 5, expected 4: the model declares"), ((1, 12), "has rank 2")):
            with pytest.raises(InputError, match=f"tensor 'x': {reason}"):
                batched.run(None, {**good, "x": np.zeros(shape, np.float32)})
        check([futures[0], futures[4]], [good, good], session)
        for wrong in (None, 5, [feeds(0)]):
            assert isinstance(batched.submit(wrong).exception(PATIENCE), InputError)
        with pytest.raises(InputError, match="timeout"):
            batched.run(None, feeds(0), timeout="x")
        for names in (5, "y"):
            with pytest.raises(InputError, match="output_names"):
                batched.run(names, feeds(0))
        with pytest.raises(InputError, match="no output 'no'"):
            batched.run(["no"], good)


def test_a_failure_of_a_joined_run_belongs_to_the_request_that_causes_it(model, each_device):
    options = shaderloom.SessionOptions()
    options.check_indices = True
    requests = [feeds(number) for number in range(4)]
    requests[2]["i"][:] = 7
    with shaderloom.InferenceSession(model, options, device=each_device, cache=False) as session:
        with session.batched(4, max_wait_ms=60_000 - 1) as batched:
            futures = [batched.submit(each) for each in requests]
            assert "idx=7" in str(futures[2].exception(PATIENCE))
        del futures[2], requests[2]
        check(futures, requests, session)


def test_a_declared_dimension_has_one_plan_for_all_sizes(model, each_device):
    requests = [feeds(number) for number in range(13)]
    with shaderloom.InferenceSession(model, device=each_device, dynamic={"batch": (1, 16)}, cache=False) as session:
        batched = session.batched(16, max_wait_ms=60_000 - 1)
        futures = [batched.submit(each) for each in requests]
        batched.close()
        assert (batched.stats.runs, batched.stats.padding) == (1, 0)
        assert len(session.stats.keys) == 1
        check(futures, requests, session)


def test_every_size_is_compiled_and_timed(session):
    with session.batched(16) as batched:
        seconds = batched.measure(feeds(0))
        assert list(seconds) == [1, 4, 16] and min(seconds.values()) > 0
        with pytest.raises(InputError, match="one row"):
            batched.measure(feeds(0, rows=2))


def test_the_host_joins_requests_too(model):
    requests = [feeds(number) for number in range(6)]
    with shaderloom.InferenceSession(model, providers=["cpu"]) as session, session.batched() as batched:
        check([batched.submit(each) for each in requests], requests, session)


def test_a_closed_session(session):
    batched = session.batched()
    batched.close()
    batched.close()
    with pytest.raises(ClosedError):
        batched.submit(feeds(0))
    with session.batched() as batched:
        session.close()
        assert isinstance(batched.submit(feeds(0)).exception(PATIENCE), ClosedError)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_leaves_the_batched_session_to_its_parent(session):
    with session.batched() as batched:
        batched.run(None, feeds(0))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for ask in (batched.submit, lambda each: batched.run(None, each)):
                    with pytest.raises(ClosedError, match="has opened it"):
                        ask(feeds(0))
                batched.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        batched.run(None, feeds(0))


def test_what_cannot_be_joined_is_refused(device):
    texts = {
        "float[n, 4] x) => (float[n, 4] y) { y = Softmax<axis = 0>(x)": "mixes the rows",
        "float[2, 4] x) => (float[2, 4] y) { y = Relu(x)": "batch='open'",
    }
    for text, reason in texts.items():
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g ({text} }}')
        session = shaderloom.InferenceSession(model, device=device, cache=False)
        with session, pytest.raises(UnsupportedError, match=reason):
            session.batched()


def test_options_are_checked(session):
    wrong = [("max_batch", value) for value in (0, True, 2.5, "a", None)]
    wrong += [("max_wait_ms", value) for value in (-1, "x", None, True, float("nan"))]
    wrong += [("max_queue", value) for value in (0, "a", 2.5)]
    for name, value in wrong:
        with pytest.raises(InputError, match=name):
            session.batched(**{name: value})
    session.batched(np.int64(4), np.float32(1.5), max_queue=np.int32(2)).close()
    with session.batched(max_wait_ms=60_000 - 1, max_queue=1) as batched:
        batched.submit(feeds(0))
        with pytest.raises(LimitError):
            batched.submit(feeds(0))
        for seconds in ("1", True, float("nan"), float("inf")):
            with pytest.raises(InputError, match="timeout"):
                batched.run(None, feeds(0), timeout=seconds)
