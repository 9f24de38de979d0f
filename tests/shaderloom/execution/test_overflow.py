"""Outputs on the device that are not finite: the first run of a plan is mended, later ones are reported."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from shaderloom import InferenceSession, Tensor
from shaderloom.execution import overflow
from shaderloom.runtime.execution.finite_scan import FiniteScan

HALF = TensorProto.FLOAT16
ROW = np.array([[0.5, 1.0, 2.0, 3.5]], np.float16)
#: small enough to stay in the range
LOW = ROW / np.float16(64)
SMALL = np.float64(np.float16(1e-3))


def growing(*, rows: str = "n", negated: bool = False) -> ModelProto:
    """``b`` reaches 3e5, ``y`` is back in the range; ``z`` is ``-x``."""
    weights = {"w": np.eye(4, dtype=np.float16) * np.float16(300), "v": np.eye(4, dtype=np.float16) * np.float16(1e-3)}
    nodes = [("MatMul", "x w", "a"), ("MatMul", "a w", "b"), ("MatMul", "b v", "y"), *[("Neg", "x", "z")] * negated]
    graph = helper.make_graph(
        [helper.make_node(operator, reads.split(), [makes]) for operator, reads, makes in nodes],
        "growing",
        [helper.make_tensor_value_info("x", HALF, [rows, 4])],
        [helper.make_tensor_value_info(name, HALF, [rows, 4]) for name in ("y", "z")[: 1 + negated]],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def is_grown(y: Any, x: np.ndarray) -> bool:
    found, expected = np.asarray(y).astype(np.float64), x.astype(np.float64) * 300 * 300 * SMALL
    return bool(np.abs(found - expected).max() <= 3 * 2.0**-11 * np.abs(expected).max())


def opened(model: ModelProto, device: Any, location: str | None = "gpu-buffer", **options: Any) -> InferenceSession:
    return InferenceSession(model, device=device, cache=False, preferred_output_location=location, **options)


@pytest.fixture
def silent(fresh_notices: None) -> Iterator[None]:
    """No warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*(finite|NaN)")
        yield


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("on_device", [False, True])
def test_the_first_run_of_a_plan_is_mended(device, calibrations, on_device: bool) -> None:
    x = Tensor.from_numpy(ROW, device) if on_device else ROW
    with opened(growing(), device) as session:
        for _ in range(3):
            assert is_grown(session.run(None, {"x": x})[0], ROW)
        assert len(calibrations) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("silent")
def test_memory_of_the_caller_and_repeated_runs(device, calibrations) -> None:
    x, y = Tensor.from_numpy(ROW, device), Tensor.empty(ROW.shape, np.float16, device)
    with opened(growing(), device) as session:
        binding = session.io_binding()
        binding.bind_input("x", x)
        binding.bind_output("y", y)
        for _ in range(4):
            session.run_with_iobinding(binding)
            assert is_grown(y, ROW)
        assert len(calibrations) == 1


def test_a_later_run_is_reported_and_the_next_is_mended(device, calibrations, fresh_notices) -> None:
    """By the time its answer comes the run is over: the answer comes with a download, or when the session waits."""
    x, y = Tensor.from_numpy(LOW, device), Tensor.empty(ROW.shape, np.float16, device)
    with opened(growing(), device) as session:
        for _ in range(3):  # the last two are replayed
            session.run(None, {"x": x}, outputs={"y": y})
        assert is_grown(y, LOW)
        x.update(ROW)
        session.run(None, {"x": x}, outputs={"y": y})
        with pytest.warns(UserWarning, match=r"output y is not finite in run 4 with outputs on the device"):
            assert not np.isfinite(y.numpy()).all()
        assert not calibrations
        session.run(None, {"x": x}, outputs={"y": y})
        assert is_grown(y, ROW) and len(calibrations) == 1


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["synchronize", "close", "another run"])
def test_the_answer_comes_without_a_download(device, monkeypatch, fresh_notices, wait: str) -> None:
    monkeypatch.setattr("shaderloom.runtime.execution.finite_scan.INTERVAL", 0.0)
    session = opened(growing(), device)
    session.run(None, {"x": LOW})
    session.run(None, {"x": ROW})

    def run_again() -> None:
        for _ in range(100):
            session.run(None, {"x": LOW})
            session.device.wait()

    with pytest.warns(UserWarning, match=r"output y is not finite in run 2 "):
        {"another run": run_again, "synchronize": session.synchronize, "close": session.close}[wait]()
    session.close()


@pytest.mark.slow
@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("on_device", [False, True])
def test_inputs_that_are_no_numbers(device, calibrations, on_device: bool) -> None:
    bad = ROW.copy()
    bad[0, 1] = np.nan
    with opened(growing(), device) as session:
        for _ in range(3):
            x = Tensor.from_numpy(bad, device) if on_device else bad
            (y,) = session.run(None, {"x": x})
            assert np.isnan(y.numpy()).any()
            session.synchronize()
        assert not calibrations


@pytest.mark.slow
@pytest.mark.usefixtures("silent")
def test_declared_dimensions(device, calibrations) -> None:
    with opened(growing(), device, dynamic={"n": (1, 64)}) as session:
        for rows in (1, 3, 64):
            x = np.tile(ROW, (rows, 1))
            assert is_grown(session.run(None, {"x": x})[0], x)
        assert len(calibrations) == 1


@pytest.mark.slow
def test_runs_in_the_background(device, fresh_notices) -> None:
    with opened(growing(), device) as session:
        session.run(None, {"x": LOW})
        for run in [session.run_async(None, {"x": LOW}) for _ in range(4)]:
            run.result()
        session.run_async(None, {"x": ROW}).result()
        with pytest.warns(UserWarning, match="output y is not finite in run 6 "):
            session.synchronize()
        assert is_grown(session.run(None, {"x": ROW})[0], ROW)


@pytest.mark.slow
def test_a_run_that_overwrites_its_input_is_measured_ahead(device, calibrations, fresh_notices) -> None:
    with opened(growing(negated=True), device) as session:
        x = Tensor.from_numpy(ROW, device)
        with pytest.warns(UserWarning, match="output y is not finite, of a run that has overwritten its inputs"):
            y, _ = session.run(["y", "z"], {"x": x}, outputs={"z": x})
        assert np.isnan(y.numpy()).any() and not calibrations
        np.testing.assert_array_equal(x.numpy(), -ROW)
        y, _ = session.run(["y", "z"], {"x": x}, outputs={"z": x})
        assert is_grown(y, -ROW) and len(calibrations) == 1


@pytest.mark.slow
def test_an_output_that_is_infinite_by_its_type(device, calibrations, fresh_notices) -> None:
    """It is measured once, and reported never."""
    model = growing()
    model.graph.output.append(helper.make_tensor_value_info("b", HALF, None))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*(finite|NaN)")
        with opened(model, device) as session:
            for _ in range(3):
                y, b = session.run(None, {"x": ROW})
                assert is_grown(y, ROW) and np.isinf(b.numpy()).any()
            assert len(calibrations) == 1


@pytest.mark.slow
def test_an_output_that_is_not_a_number_by_itself(device, calibrations, fresh_notices) -> None:
    model = growing()
    model.graph.node.append(helper.make_node("Sqrt", ["x"], ["r"]))
    model.graph.output.append(helper.make_tensor_value_info("r", HALF, None))
    with opened(model, device, None) as session:
        with pytest.warns(UserWarning, match="output r holds NaN although no input does"):
            session.run(None, {"x": -LOW})
        assert len(calibrations) == 1


@pytest.mark.slow
@pytest.mark.parametrize("end", ["close", "recover", "collect"])
def test_a_reading_in_flight_ends_with_the_session(device, monkeypatch, fresh_notices, end: str) -> None:
    monkeypatch.setattr("shaderloom.runtime.execution.finite_scan.INTERVAL", 0.0)
    session = opened(growing(), device)
    for _ in range(3):
        session.run(None, {"x": LOW})
    assert session._engine.watch._scan.is_pending
    if end == "collect":
        del session
        gc.collect()
        device.wait()
    elif end == "close":
        session.close()
    else:
        session.recover(device)
        assert is_grown(session.run(None, {"x": ROW})[0], ROW)
        session.close()


@pytest.mark.slow
def test_threads_that_run_and_download(device, fresh_notices) -> None:
    """Some runs overflow while others are read: each value is right or reported, and all are right in the end."""
    with opened(growing(), device) as session, ThreadPoolExecutor(4) as threads:
        session.run(None, {"x": LOW})

        def work(number: int) -> bool:
            x = ROW if number % 3 == 0 else LOW
            return is_grown(session.run(None, {"x": x})[0], x)

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            right = list(threads.map(work, range(24)))
            session.synchronize()
        assert all(right) or any("not finite in" in str(each.message) for each in seen)
        assert all(threads.map(work, range(24)))


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arrays and tensors whose elements a run looks at."""
    seen: list[Any] = []
    is_finite, submit = overflow.is_finite, FiniteScan.submit
    monkeypatch.setattr(overflow, "is_finite", lambda array: (seen.append(array.shape), is_finite(array))[1])
    monkeypatch.setattr(
        FiniteScan,
        "submit",
        lambda scan, outputs, inputs: (
            seen.extend(each.tensor.shape for each in outputs),
            submit(scan, outputs, inputs),
        )[1],
    )
    return seen


@pytest.mark.parametrize("location", ["cpu", "gpu-buffer"])
def test_the_elements_of_an_input_are_not_looked_at(device, monkeypatch, location: str) -> None:
    """``z`` is ``x`` transposed."""
    seen = looked_at(monkeypatch)
    model = growing()
    model.graph.node.append(helper.make_node("Transpose", ["x"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", HALF, [4, "n"]))
    with opened(model, device, location) as session:
        session.run(None, {"x": LOW})
        assert (1, 4) in seen and (4, 1) not in seen


def cached(capacity: int = 6) -> ModelProto:
    """``new`` is ``past`` with the row ``300 x`` at ``place``, in the memory of ``past`` if a caller binds both."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["row"]),
        helper.make_node("TensorScatter", ["past", "row", "place"], ["new"], axis=1),
        helper.make_node("Neg", ["x"], ["y"]),
    ]
    ports = [info("past", HALF, [1, capacity, 4]), info("x", HALF, [1, 1, 4]), info("place", TensorProto.INT64, [1])]
    outputs = [info("new", HALF, [1, capacity, 4]), info("y", HALF, [1, 1, 4])]
    weights = [numpy_helper.from_array(np.array([300], np.float16), "w")]
    graph = helper.make_graph(nodes, "cached", ports, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


@pytest.mark.parametrize("ends", ["runs", "download"])
def test_a_cache_in_place_is_looked_at_from_time_to_time(device, monkeypatch, fresh_notices, ends: str) -> None:
    """Other runs pass it over, but what they write is found: some runs later, or by the next download."""
    scanned: list[list[tuple[int, ...]]] = []
    dispatches = FiniteScan.dispatches

    def recorded(scan: FiniteScan, outputs: Any, inputs: Any) -> Any:
        scanned.append([each.tensor.shape for each in outputs])
        return dispatches(scan, outputs, inputs)

    monkeypatch.setattr(FiniteScan, "dispatches", recorded)
    monkeypatch.setattr(overflow, "STATE_RUNS", 5)
    past, x = Tensor.from_numpy(np.zeros((1, 6, 4), np.float16), device), Tensor.from_numpy(ROW[None], device)
    place, y = Tensor.from_numpy(np.array([2]), device), Tensor.empty((1, 1, 4), np.float16, device)
    feeds, targets = {"past": past, "x": x, "place": place}, {"new": past, "y": y}
    with opened(cached(), device) as session:
        for _ in range(4):
            session.run(list(targets), feeds, outputs=targets)
            session.synchronize()  # as after each token of a text: it reads no cache
        assert [(1, 6, 4) in shapes for shapes in scanned] == [True, False]  # what repeats is asked for once
        assert all((1, 1, 4) in shapes for shapes in scanned)
        x.update(ROW[None] * np.float16(1000))  # 300 x is beyond the range
        session.run(list(targets), feeds, outputs=targets)
        assert (1, 6, 4) not in scanned[-1]
        if ends == "runs":
            session.run(list(targets), feeds, outputs=targets)
        with pytest.warns(UserWarning, match="output new is not finite"):
            assert np.isinf(past.numpy()).any()
        assert (1, 6, 4) in scanned[-1]


def test_a_cache_that_was_passed_over_may_be_disposed(device, fresh_notices) -> None:
    """What is left to scan when the session is closed, or another output is read, is what there is still."""
    past, x = Tensor.from_numpy(np.zeros((1, 6, 4), np.float16), device), Tensor.from_numpy(ROW[None], device)
    place, y = Tensor.from_numpy(np.array([2]), device), Tensor.empty((1, 1, 4), np.float16, device)
    feeds, targets = {"past": past, "x": x, "place": place}, {"new": past, "y": y}
    with opened(cached(), device) as session:
        for _ in range(3):
            session.run(list(targets), feeds, outputs=targets)
        past.dispose()
        assert np.isfinite(y.numpy()).all()
