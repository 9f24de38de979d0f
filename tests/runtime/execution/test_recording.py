"""Runs that repeat are encoded ahead: what is submitted is always what was asked for."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from onnx import helper

import shaderloom
from shaderloom.runtime.execution import recording
from shaderloom.runtime.execution.attachment import Attacher

from ...support.kernels import make_model


@pytest.fixture(params=[None, False], ids=["native", "wrapped"])
def session(request, device):
    x = np.zeros((2, 8), np.float32)
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": x}, ["y"])
    with shaderloom.InferenceSession(model, device=device, cache=False, use_native=request.param) as made:
        yield made


def array(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 8)).astype(np.float32)


def test_repeated_runs_read_the_inputs_of_their_own(session, encoded):
    for seed in range(5):
        np.testing.assert_allclose(session.run(None, {"x": array(seed)})[0], np.exp(array(seed)), rtol=1e-5)
    assert len(encoded) == 6  # the first; the second, which repeats it; and one ahead after each but the first


def test_runs_of_other_sizes_are_encoded_once_each(device, encoded):
    """Nothing is remembered for a size that the next run hardly has; one that stays is encoded ahead."""
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": np.zeros((2, 8), np.float32)}, ["y"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with shaderloom.InferenceSession(model, device=device, cache=False, dynamic={"n": (1, 64)}) as session:
        for rows in (2, 5, 3, 5, 2, 64, 9):
            x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x), rtol=1e-5)
        assert len(encoded) == 7
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x), rtol=1e-5)
        assert len(encoded) == 11  # the first; the second, which repeats it; and one ahead after each but the first


def test_other_tensors_are_encoded_anew(session, encoded, device):
    inputs = [shaderloom.Tensor.from_numpy(array(seed), device) for seed in range(2)]
    outputs = [shaderloom.Tensor.empty((2, 8), np.float32, device) for _ in range(2)]
    for which in (0, 0, 0, 1, 0, 1, 1, 1):
        session.run(["y"], {"x": inputs[which]}, outputs={"y": outputs[which]})
        np.testing.assert_allclose(outputs[which].numpy(), np.exp(array(which)), rtol=1e-5)


def test_what_was_encoded_in_vain_makes_the_next_rarer(session, encoded, device):
    """wgpu-native would never free what changing runs leave; a run that stays the same is encoded ahead again."""
    x = array(0)
    for _ in range(20):
        output = shaderloom.Tensor.empty((2, 8), np.float32, device)
        for _ in range(2):
            session.run(["y"], {"x": x}, outputs={"y": output})
        gc.collect()
    assert len(encoded) == 40 + 1  # the first pair of runs alone has commands behind it
    for _ in range(6):
        session.run(["y"], {"x": x}, outputs={"y": output})
    assert len(encoded) == 41 + 6 + 1


def test_runs_in_turns_with_a_few_tensors_are_encoded_ahead(session, encoded, device):
    """A run in between leaves the commands that wait for another one, as a scan of all outputs from time to time."""
    outputs = [shaderloom.Tensor.empty((2, 8), np.float32, device) for _ in range(recording.MOST_REMEMBERED + 1)]
    turns = [0, 0, 0, 1, 0, 1, 0, 2, 0, 1, 2]
    for seed, which in enumerate(turns):
        session.run(["y"], {"x": array(seed)}, outputs={"y": outputs[which]})
        np.testing.assert_allclose(outputs[which].numpy(), np.exp(array(seed)), rtol=1e-5)
    assert len(encoded) == len(turns) + 3  # the first two of each are encoded at once, and one waits at the end
    for output in outputs[1:]:
        session.run(["y"], {"x": array(0)}, outputs={"y": output})
    before = len(encoded)
    session.run(["y"], {"x": array(0)}, outputs={"y": outputs[0]})
    assert len(encoded) == before + 1  # as many others have come since: it is forgotten


def test_a_scan_in_between_leaves_what_waits(device, encoded):
    """A run with another list of dispatches behind it, and that of another session, are recordings of their own."""
    x = np.zeros((2, 8), np.float16)
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": x}, ["y"])
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        tensors = [shaderloom.Tensor.empty((2, 8), np.float16, device) for _ in range(4)]
        pairs = list(zip(tensors[::2], tensors[1::2]))
        for number in range(40):
            source, target = pairs[number // 4 % 2]
            session.run(["y"], {"x": source}, outputs={"y": target})
        recordings = session._engine.ready({"x": (2, 8)}).executor._replay._remembered.values()
        assert sorted(each.count for each in recordings)[-2:] == [14, 14]
        assert all(each.commands is not None for each in recordings if each.count)


def test_memory_of_dropped_tensors_is_not_used_again(session, device):
    for seed in range(6):
        x, y = shaderloom.Tensor.from_numpy(array(seed), device), shaderloom.Tensor.empty((2, 8), np.float32, device)
        for _ in range(3):
            session.run(["y"], {"x": x}, outputs={"y": y})
        np.testing.assert_allclose(y.numpy(), np.exp(array(seed)), rtol=1e-5)
        x.dispose()
        del y
        gc.collect()


def test_commands_that_wait_go_with_the_session(session):
    for _ in range(3):
        session.run(None, {"x": array(0)})
    session.close()
    gc.collect()


def test_a_repeated_run_needs_no_more_than_its_submission(session, device, monkeypatch):
    x, y = (shaderloom.Tensor.from_numpy(array(seed), device) for seed in (0, 1))
    session.run(["y"], {"x": x}, outputs={"y": y})
    attached = []
    monkeypatch.setattr(Attacher, "attach", lambda *arguments: attached.append(arguments))
    for seed in range(3):
        x.update(array(seed))
        (result,) = session.run(["y"], {"x": x}, outputs={"y": y})
        assert result is y
        np.testing.assert_allclose(y.numpy(), np.exp(array(seed)), rtol=1e-5)
    assert not attached
    monkeypatch.undo()
    other = shaderloom.Tensor.from_numpy(array(5), device)
    session.run(["y"], {"x": other}, outputs={"y": y})
    np.testing.assert_allclose(y.numpy(), np.exp(array(5)), rtol=1e-5)
    np.testing.assert_allclose(session.run(None, {"x": array(6)})[0], np.exp(array(6)), rtol=1e-5)


def test_a_repeated_run_is_not_checked_again(session, device, monkeypatch):
    """The same tensors were checked in the run before; whatever else is given is checked as ever."""
    x, y = (shaderloom.Tensor.from_numpy(array(seed), device) for seed in (0, 1))
    wrong = shaderloom.Tensor.from_numpy(array(0).astype(np.float16), device)
    session.run(["y"], {"x": x}, outputs={"y": y})
    checked = []
    module = shaderloom.session.session
    check_feeds = module.check_feeds
    monkeypatch.setattr(module, "check_feeds", lambda *rest, **more: checked.append(rest) or check_feeds(*rest, **more))
    assert session.run(["y"], {"x": x}, outputs={"y": y}) == [y]
    assert session.run(None, {"x": x}, outputs={"y": y}) == [y]
    assert not checked
    assert session.run(["y"], {"x": x}) is not None
    assert len(checked) == 1
    for names, feeds, outputs in (
        (["y"], {"x": wrong}, {"y": y}),
        (["y"], {"z": x}, {"y": y}),
        (["z"], {"x": x}, {"z": y}),
        (["y", "y"], {"x": x}, {"z": y}),
        (["y"], [x], {"y": y}),
        (["y"], {"x": x}, {"y": wrong}),
    ):
        with pytest.raises(shaderloom.InputError):
            session.run(names, feeds, outputs=outputs)
    session.close()
    with pytest.raises(shaderloom.ClosedError):
        session.run(["y"], {"x": x}, outputs={"y": y})


def test_a_run_whose_result_takes_the_place_of_its_input_is_repeated(session, device, encoded):
    """The input is copied first, in the same submission."""
    wanted = array(0) - 9
    tensor = shaderloom.Tensor.from_numpy(wanted, device)
    for _ in range(4):
        session.run(None, {"x": tensor}, outputs={"y": tensor})
        wanted = np.exp(wanted)
    np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-4)
    assert len(encoded) == 5  # the first; the second, which repeats it; and one ahead after each but the first


def test_a_repeated_run_is_not_repeated_with_a_disposed_tensor(session, device):
    x, y = (shaderloom.Tensor.from_numpy(array(seed), device) for seed in (0, 1))
    for _ in range(3):
        session.run(["y"], {"x": x}, outputs={"y": y})
    y.dispose()
    with pytest.raises(shaderloom.ClosedError, match="disposed"):
        session.run(["y"], {"x": x}, outputs={"y": y})
    again = shaderloom.Tensor.from_numpy(array(2), device)
    session.run(["y"], {"x": x}, outputs={"y": again})
    np.testing.assert_allclose(again.numpy(), np.exp(array(0)), rtol=1e-5)


def test_a_long_run_is_submitted_in_pieces(device, encoded, monkeypatch):
    """The commands stay in order, and what repeats is one submission."""
    monkeypatch.setattr(recording, "PIECE", 2)
    nodes = [helper.make_node("CumSum", [f"x{step}", "axis"], [f"x{step + 1}"]) for step in range(5)]
    x = np.arange(6, dtype=np.float32)
    model = make_model(nodes, {"x0": x}, ["x5"], constants={"axis": np.array(0)})
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        for _ in range(3):
            expected = x
            for _ in range(5):
                expected = np.cumsum(expected)
            np.testing.assert_array_equal(session.run(None, {"x0": x})[0], expected)
    assert encoded == [2, 2, 1, 2, 2, 1, 5, 5]
