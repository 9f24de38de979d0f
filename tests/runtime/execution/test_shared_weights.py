"""Weights of one file: there once for all sessions on a device, as long as one of them is open."""

from __future__ import annotations

import os
import threading

import numpy as np
import onnx
import pytest

import shaderloom
from shaderloom.bundles.compile import FurtherModel, compile_bundle
from shaderloom.bundles.session import load_bundle
from shaderloom.runtime.execution import shared_weights
from shaderloom.runtime.plan.caps import Caps
from shaderloom.runtime.plan.errors import LimitError

from ...support.programs import parse
from ...support.sessions import engine_of

X = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    """A product whose weight is transformed, and a sum whose other operand is uploaded as it is."""
    model = parse("g (float[n, 64] x) => (float[n, 48] y) { t = MatMul(x, w)  y = Add(t, b) }")
    draw = np.random.default_rng(1).standard_normal
    for name, shape in (("w", (64, 48)), ("b", (48,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(draw(shape).astype(np.float32), name))
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def wanted(path) -> np.ndarray:
    w, b = (onnx.numpy_helper.to_array(each).astype(np.float64) for each in onnx.load(path).graph.initializer)
    return X.astype(np.float64) @ w + b


def open_session(path, device, **options) -> shaderloom.InferenceSession:
    return shaderloom.InferenceSession(path, device=device, cache=False, **options)


def shared(device, path) -> list[str]:
    """Return the keys of the weights of a file that sessions share now."""
    return [key for files, key in shared_weights._devices.get(device, {}) if str(path) in files]


def check(session: shaderloom.InferenceSession, expected: np.ndarray) -> None:
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, atol=1e-4)


def test_the_second_session_uploads_nothing(device, path) -> None:
    expected = wanted(path)
    first, second = open_session(path, device), open_session(path, device)
    check(first, expected)
    check(second, expected)
    assert len(shared(device, path)) == 2
    pools = [engine_of(session).resources.pool for session in (first, second)]
    assert pools[0].uploaded_bytes > 0 == pools[1].uploaded_bytes and pools[0].bytes == pools[1].bytes
    first.close()
    check(second, expected)
    third = open_session(path, device)
    check(third, expected)
    assert engine_of(third).resources.pool.uploaded_bytes == 0
    account = engine_of(second).resources.account
    second.close()
    assert account.used == 0
    check(third, expected)
    third.close()
    assert not shared(device, path)
    fourth = open_session(path, device)
    check(fourth, expected)
    assert engine_of(fourth).resources.pool.uploaded_bytes == pools[0].uploaded_bytes
    fourth.close()


def test_what_may_have_changed_is_not_shared(device, path) -> None:
    """A file that was written anew, models in memory, and loaders of the caller's."""
    first = open_session(path, device)
    check(first, wanted(path))
    model = onnx.load(path)
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.ones(48, np.float32), "b"))
    onnx.save(model, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)
    for opened in (path, path.read_bytes(), path.read_bytes()):
        other = open_session(opened, device)
        check(other, wanted(path))
        assert engine_of(other).resources.pool.uploaded_bytes > 0
        other.close()
    first.close()


def test_what_is_shared_counts_for_each_session(device, path) -> None:
    first = open_session(path, device)
    check(first, wanted(path))
    small = open_session(path, device, caps=Caps(device_memory=4096))
    with pytest.raises(LimitError, match="weight"):
        check(small, wanted(path))
    small.close()
    check(first, wanted(path))
    first.close()
    assert not shared(device, path)


@pytest.mark.slow
def test_sessions_that_open_and_close_side_by_side(device, path) -> None:
    expected, failures = wanted(path), []

    def work() -> None:
        try:
            for _ in range(8):
                with open_session(path, device) as session:
                    check(session, expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and not shared(device, path)


def test_models_of_a_bundle_share_what_is_alike(device, path) -> None:
    """Its own model and a further one, whose plans are of other sizes."""
    shapes, target = [{"x": (2, 64)}, {"x": (3, 64)}], path.parent / "b"
    compile_bundle(path, target, shapes=shapes[:1], models={"more": FurtherModel(path, shapes)}, target="web-software")
    expected = wanted(path)
    own, more = load_bundle(target, device=device), load_bundle(target, device=device, model="more")
    check(own, expected)
    check(more, expected)
    pools = [engine_of(session).resources.pool for session in (own, more)]
    assert pools[0].uploaded_bytes > 0 == pools[1].uploaded_bytes and pools[0].bytes == pools[1].bytes
    own.close()
    check(more, expected)
    more.close()
