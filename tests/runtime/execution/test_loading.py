"""Weights on their way to the device: loaders of the caller, interruptions, limits, initializers that are inputs.

Covers: runtime/memory/data_loader, runtime/execution/weight_pool.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.memory.data_loader import chunks_of
from shaderloom.runtime.memory.tensor import Tensor
from shaderloom.runtime.plan.errors import InputError, LimitError, ModelError, ShaderloomError

from ...support.patience import PATIENCE
from ...support.sessions import engine_of
from ..device.test_device_leaks import device_objects

ELEMENTS = 20003  # more than the compiler reads; not a whole number of 16-byte blocks


def external_model(location: str = "weights.bin", *, offset: int = 8, elements: int = ELEMENTS) -> onnx.ModelProto:
    """y = (x * w) with ``w`` in a data file, then + t, of which the compiler transposes the layout."""
    graph = onnx.parser.parse_graph(f"g (float[{elements}] x) => (float[{elements}] y) {{ y = Mul(x, w) }}")
    tensor = onnx.TensorProto(
        name="w", data_type=onnx.TensorProto.FLOAT, dims=[elements], data_location=onnx.TensorProto.EXTERNAL
    )
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(elements * 4))):
        tensor.external_data.add(key=key, value=value)
    graph.initializer.append(tensor)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def data() -> bytes:
    return b"header__" + np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32).tobytes()


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).standard_normal(ELEMENTS).astype(np.float32)


def expected(x: np.ndarray, data: bytes) -> np.ndarray:
    return x * np.frombuffer(data, np.float32, ELEMENTS, 8)


def ragged(piece: bytes):
    """Chunks of sizes that fit nothing."""
    sizes = [1, 3, 4, 1001, 2, 0, 7, 4096]
    start = step = 0
    while start < len(piece):
        size = sizes[step % len(sizes)]
        yield piece[start : start + size]
        start, step = start + size, step + 1


def make_loader(form: str, data: bytes, calls: list):
    def bytes_of(path, offset, length):
        calls.append((path, offset, length))
        return data[offset : offset + length]

    async def later(piece):
        await asyncio.sleep(0)
        return piece

    async def stream(piece):
        for chunk in ragged(piece):
            await asyncio.sleep(0)
            yield chunk

    return {
        "bytes": bytes_of,
        "view": lambda *where: memoryview(bytes_of(*where)),
        "array": lambda *where: np.frombuffer(bytes_of(*where), np.float32),
        "chunks": lambda *where: ragged(bytes_of(*where)),
        "list": lambda *where: list(ragged(bytes_of(*where))),
        "awaitable": lambda *where: later(bytes_of(*where)),
        "stream": lambda *where: stream(bytes_of(*where)),
    }[form]


@pytest.mark.parametrize("form", ["bytes", "view", "array", "chunks", "list", "awaitable", "stream"])
@pytest.mark.parametrize("given", ["bytes", "path"])
def test_data_can_come_from_anywhere(device, tmp_path, data, x, form, given):
    calls: list[tuple[str, int, int]] = []
    model = external_model("far/away.bin").SerializeToString()
    if given == "path":
        (tmp_path / "model.onnx").write_bytes(model)
        model = tmp_path / "model.onnx"
    with shaderloom.InferenceSession(
        model, device=device, external_data_loader=make_loader(form, data, calls)
    ) as session:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected(x, data))
    assert calls == [("far/away.bin", 8, ELEMENTS * 4)], "once, and only what is needed"


def test_an_asynchronous_loader_inside_a_running_loop(device, data, x):
    async def work():
        with shaderloom.InferenceSession(
            external_model(), device=device, external_data_loader=make_loader("stream", data, [])
        ) as session:
            return session.run(None, {"x": x})[0]

    np.testing.assert_array_equal(asyncio.run(work()), expected(x, data))


async def fails(chunks: int):
    for _ in range(chunks):
        yield b"abcd"
    raise OSError("the line is dead")


async def endless():
    while True:
        yield b"\0" * 1000


@pytest.mark.parametrize(
    ("loader", "error", "reason"),
    [
        (lambda *where: b"", ModelError, "has 0 bytes instead of 80012"),
        (lambda *where: [b"\0" * 80012, b"\0"], ModelError, "has 80013 bytes instead of 80012"),
        (lambda *where: [b"\0" * 80011], ModelError, "has 80011 bytes"),
        (lambda *where: endless(), ModelError, "instead of 80012"),
        (lambda *where: 5, ModelError, "gave int"),
        (lambda *where: "text", ModelError, "gave str"),
        (lambda *where: fails(3), OSError, "line is dead"),
        (lambda *where: (_ for _ in ()).throw(OSError("gone")), OSError, "gone"),
    ],
)
def test_a_loader_that_fails_leaves_nothing(device, loader, error, reason):
    before, threads = device_objects(), threading.enumerate()
    session = shaderloom.InferenceSession(external_model(), device=device, external_data_loader=loader)
    for _ in range(2):
        with pytest.raises(error, match=reason):
            session.run(None, {"x": np.zeros(ELEMENTS, np.float32)})
    assert session.device_bytes == 0
    session.close()
    assert device_objects() == before
    for thread in set(threading.enumerate()) - set(threads):
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_loader_that_fails_while_the_model_is_compiled(device, data, x):
    """Small tensors are read by the compiler."""

    def loader(*where):
        raise ZeroDivisionError("no luck")

    session = shaderloom.InferenceSession(external_model(elements=8), device=device, external_data_loader=loader)
    with session, pytest.raises(ModelError, match="tensor 'w': external_data_loader raised ZeroDivisionError: no luck"):
        session.run(None, {"x": x[:8]})


def test_names_for_a_loader_are_checked_as_those_of_files(device):
    for location in ("../secret", "/etc/passwd", "a\0b", "..\\x", ""):
        with pytest.raises(ModelError):
            shaderloom.InferenceSession(
                external_model(location), device=device, external_data_loader=lambda *where: b"\0" * 80012
            )


def test_results_of_a_loader_are_not_kept_on_the_disk(device, data, x, cache_folder):
    for _ in range(2):
        with shaderloom.InferenceSession(
            external_model(), device=device, external_data_loader=make_loader("bytes", data, [])
        ) as session:
            session.run(None, {"x": x})
            assert session.stats.disk_hits == 0


def test_chunks_arrive_while_the_loader_still_works():
    """An asynchronous loader is not drained before the first chunk is used."""
    sent: list[int] = []

    async def stream():
        for index in range(20):
            sent.append(index)
            yield b"abcd"

    iterator = chunks_of(stream())
    assert bytes(next(iterator)) == b"abcd"
    time.sleep(0.2)
    assert len(sent) < 10
    iterator.close()


# Interruption


@pytest.mark.parametrize("moment", ["first chunk", "after the weights"])
def test_an_interrupt_leaves_nothing_behind(device, tmp_path, data, x, moment):
    (tmp_path / "weights.bin").write_bytes(data)
    (tmp_path / "model.onnx").write_bytes(external_model().SerializeToString())
    before = device_objects()

    def progress(what: str, done: int, total: int) -> None:
        if what == "loading weights" and (moment == "first chunk" or done == total):
            raise KeyboardInterrupt

    session = shaderloom.InferenceSession(tmp_path / "model.onnx", device=device, cache=False, progress=progress)
    with pytest.raises(KeyboardInterrupt):
        session.run(None, {"x": x})
    assert session.device_bytes == 0
    session.close()
    assert device_objects() == before
    with shaderloom.InferenceSession(tmp_path / "model.onnx", device=device, cache=False) as session:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected(x, data))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system has no signals to a thread")
def test_control_c_at_any_moment(device, tmp_path, x, interrupts):
    """A real signal while sessions open, run and close: afterwards the process works and nothing is left."""
    elements = 1 << 20
    (tmp_path / "weights.bin").write_bytes(b"header__" + np.ones(elements, np.float32).tobytes())
    (tmp_path / "model.onnx").write_bytes(external_model(elements=elements).SerializeToString())
    feed = {"x": np.ones(elements, np.float32)}

    def attempt() -> None:
        with shaderloom.InferenceSession(tmp_path / "model.onnx", device=device, cache=False) as session:
            session.run(None, feed)

    attempt()
    before = device_objects()
    main = threading.main_thread().ident
    interrupted = 0
    for step in range(12):
        timer = threading.Timer(0.004 * step, signal.pthread_kill, (main, signal.SIGINT))
        try:
            timer.start()
            attempt()
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
    assert interrupted > 0
    attempt()
    after = device_objects()
    # wgpu-py forgets the handle of the one object that it is making when a signal comes
    lost = sum(abs(after[kind] - before[kind]) for kind in before)
    assert lost <= interrupted


def test_progress_counts_every_byte(device, data, x, tmp_path):
    (tmp_path / "weights.bin").write_bytes(data)
    (tmp_path / "model.onnx").write_bytes(external_model().SerializeToString())
    seen: list[tuple[int, int]] = []
    with shaderloom.InferenceSession(
        tmp_path / "model.onnx",
        device=device,
        cache=False,
        progress=lambda what, done, total: seen.append((done, total)) if what == "loading weights" else None,
    ) as session:
        session.prepare()
    assert seen[-1] == (ELEMENTS * 4, ELEMENTS * 4)
    assert seen == sorted(seen)


# Limits


def test_a_weight_beyond_the_device_is_named(device):
    """Nothing scatters into parts of a tensor."""
    limits = {"max-storage-buffer-binding-size": 1 << 20, "max-buffer-size": 1 << 21}
    gpu = device.gpu.adapter.request_device_sync(required_limits=limits)
    elements = (1 << 18) + 4
    graph = onnx.parser.parse_graph(
        "g (int64[1, 1] i, float[1] x) => (float[1] y) { s = ScatterND(huge, i, x) y = ReduceMax(s) }"
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones(elements, np.float32), "huge"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    with shaderloom.InferenceSession(model, device=Device.from_wgpu(gpu), cache=False) as session:
        with pytest.raises(LimitError) as caught:
            session.run(None, {"i": np.zeros((1, 1), np.int64), "x": np.ones(1, np.float32)})
        assert "1,048,576" in str(caught.value)
        assert "1,048,592" in str(caught.value)
        assert session.device_bytes == 0
    gpu.destroy()


# Initializers that are inputs

OVERRIDABLE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x, float[1] scale) => (float[n] y) <float[1] scale = {3}> { y = Mul(x, scale) }
"""


def test_an_initializer_that_is_an_input_is_a_constant_unless_fed(device):
    x = np.arange(4, dtype=np.float32)
    with shaderloom.InferenceSession(onnx.parser.parse_model(OVERRIDABLE), device=device, cache=False) as session:
        assert [port.name for port in session.get_inputs()] == ["x"]
        assert [port.name for port in session.get_overridable_initializers()] == ["scale"]
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * 3)
        for scale in (5, 7):
            fed = {"x": x, "scale": np.array([scale], np.float32)}
            np.testing.assert_array_equal(session.run(None, fed)[0], x * scale)
        on_device = Tensor.from_numpy(np.array([9], np.float32), device)
        np.testing.assert_array_equal(session.run(None, {"x": x, "scale": on_device})[0], x * 9)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * 3)
        assert session.stats.misses == 2, "one plan with the constant, one with the input"
        with pytest.raises(InputError, match=r"'scale'.*dimension 0 is 2, expected 1"):
            session.run(None, {"x": x, "scale": np.ones(2, np.float32)})


def test_a_second_plan_uploads_nothing(device, tmp_path):
    graph = onnx.parser.parse_graph("g (float[n, 64] x) => (float[n, 64] y) { y = MatMul(x, w) }")
    graph.initializer.append(onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        session.run(None, {"x": np.ones((2, 64), np.float32)})
        uploaded = engine_of(session).resources.pool.uploaded_bytes
        assert uploaded == 64 * 64 * 4
        for n in (3, 5, 8):
            x = np.random.default_rng(n).random((n, 64), np.float32)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], x, rtol=1e-5)
        assert engine_of(session).resources.pool.uploaded_bytes == uploaded
        assert session.stats.misses == 3, "the last two sizes share a plan"


def test_every_error_of_loading_is_of_the_family(device, tmp_path, data):
    path = tmp_path / "model.onnx"
    path.write_bytes(external_model().SerializeToString())
    with pytest.raises(ShaderloomError, match="there is no file"):
        shaderloom.InferenceSession(path, device=device, cache=False)
    (tmp_path / "weights.bin").write_bytes(data)
    session = shaderloom.InferenceSession(path, device=device, cache=False)
    os.truncate(tmp_path / "weights.bin", 100)
    with session, pytest.raises(ModelError, match="has changed"):
        session.run(None, {"x": np.zeros(ELEMENTS, np.float32)})
