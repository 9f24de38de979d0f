"""Tensors over HTTP, with the client that programs use: results of the session, joined requests, wrong bodies.

Covers: shaderloom/server/kserve.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx.parser
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from shaderloom.execution.engine import WgpuEngine
from shaderloom.runtime.plan.errors import InputError
from shaderloom.server.errors import RequestError
from shaderloom.server.kserve.routes import KServeApi
from shaderloom.server.kserve.served_session import ServedSession
from shaderloom.server.kserve.tensors import write_tensor
from shaderloom.server.limits import ServerLimits
from shaderloom.server.running import ApiServer
from shaderloom.session.session import InferenceSession

from ....support.bundles import small_bundle
from ....support.kserve import INFER, MODEL, connect, infer, infer_body, wrong_requests
from ....support.patience import PATIENCE

LIMITS = ServerLimits(body=1 << 16)
#: Rows that depend on each other
MIXED = """<ir_version: 9, opset_import: ["" : 17]>
g (float[batch, 3] x) => (float[batch, 3] y) { y = CumSum(x, axis) }"""

TEXTS = {"joined": MODEL, "mixed": MIXED}
NUMBERS = {"name": "x", "datatype": "FP32", "data": [1] * 8}
LOST = (503, {"error": "the device was lost; ask again when the server is ready"})


def saved(folder: Path, text: str) -> Path:
    model = onnx.parser.parse_model(text)
    if "axis" in text:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "axis"))
    onnx.save(model, folder / "small.onnx")
    return folder / "small.onnx"


def serve(path: Path, device: Any, **options: int) -> ApiServer:
    model = ServedSession(path, device=device, cache=False, **{"rows": 8, "queue": 64} | options)
    return ApiServer(KServeApi(model, "small", LIMITS), LIMITS)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, device: Any) -> Iterator[ApiServer]:
    with serve(saved(tmp_path_factory.mktemp("kserve"), MODEL), device) as server:
        yield server


def test_health_and_metadata(served: ApiServer):
    with connect(served.port) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("small")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        metadata = client.get_model_metadata("small", "1")
        assert metadata["inputs"] == [
            {"name": "x", "datatype": "FP32", "shape": [-1, 3]}, {"name": "add", "datatype": "INT64", "shape": [-1, 3]}
        ]  # fmt: skip
        assert [port["datatype"] for port in metadata["outputs"]] == ["FP32", "BOOL"]
        with pytest.raises(InferenceServerException, match="'small'"):
            client.get_model_metadata("other")


@pytest.mark.parametrize("binary", [True, False])
def test_tensors(served: ApiServer, binary: bool):
    x, add = np.float32([[1, 2.5, -3], [0.1, 1e-9, 3e30]]), np.array([[1, 0, -1], [1 << 40, 0, 1]])
    with connect(served.port) as client:
        result = infer(client, x, add, binary=binary)
        assert result.get_response()["id"] == "one"
        np.testing.assert_array_equal(result.as_numpy("y"), x + add.astype(np.float32))
        np.testing.assert_array_equal(result.as_numpy("large"), x + add.astype(np.float32) > x)


def test_wrong_bodies_are_refused(served: ApiServer):
    with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
        for request in wrong_requests(LIMITS.body):
            answer = client.post(request.path, content=request.content, headers=request.headers)
            assert answer.status_code == request.status, request
            assert list(answer.json()) == ["error"]
        assert client.get(INFER).status_code == 405
        answer = client.post(INFER, content=json.dumps(infer_body())).json()
        assert answer["outputs"][0] == {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [2, 4, 6]}


def test_a_name_has_no_slash():
    with pytest.raises(InputError, match="no slash"):
        KServeApi(None, "org/model", LIMITS)


def test_numbers_that_json_does_not_have_come_as_bytes():
    array = np.float32([1, np.nan, np.inf])
    with pytest.raises(RequestError, match="binary"):
        write_tensor("y", array, binary=False)
    head, data = write_tensor("y", array, binary=True)
    assert (head["parameters"], data) == ({"binary_data_size": 12}, array.tobytes())
    with pytest.raises(RequestError, match="object"):
        write_tensor("y", np.array(["a"], object), binary=True)


@pytest.mark.parametrize("kind", ["joined", "mixed", "bundle"])
def test_a_lost_device_is_replaced(kind: str, tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch):
    """Requests on it get an error that says so, and nothing is ready until the session has another device."""
    may_go, begun, lost = threading.Event(), threading.Event(), threading.Event()
    recover, run = InferenceSession.recover, WgpuEngine.run

    def late(session: InferenceSession) -> None:
        assert may_go.wait(PATIENCE)
        recover(session)

    def held(engine: WgpuEngine, *arguments: Any) -> Any:
        begun.set()
        assert lost.wait(PATIENCE)
        return run(engine, *arguments)

    monkeypatch.setattr(InferenceSession, "recover", late)
    doomed = device.sibling()
    doomed.own = True  # as one that a session opens by its name, which others would share
    path = small_bundle(tmp_path / "b.shaderbundle", 5) if kind == "bundle" else saved(tmp_path, TEXTS[kind])
    request = {"inputs": [NUMBERS | {"shape": [2, 5, 8], "data": [1] * 80}, NUMBERS | {"name": "bias", "shape": [8]}]}
    request = request if kind == "bundle" else {"inputs": infer_body()["inputs"][: 1 + (kind == "joined")]}
    with serve(path, doomed) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:

        def infer() -> httpx.Response:
            return client.post("/v2/models/small/infer", json=request)

        first = infer()
        assert first.status_code == 200, first.text
        with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
            patch.setattr(WgpuEngine, "run", held)
            in_flight = pool.submit(infer)
            assert begun.wait(PATIENCE)
            doomed.gpu.destroy()
            lost.set()
            assert (in_flight.result(PATIENCE).status_code, in_flight.result().json()) == LOST
        for path in ("/v2/health/ready", "/v2/models/small/ready", "/v2/models/small/versions/1/ready"):
            assert client.get(path).status_code == 400
        assert not client.get("/v2/models/small/ready").json()["ready"]
        assert client.get("/health").status_code == 503
        assert client.get("/v2/health/live").status_code == 200
        assert (infer().status_code, infer().json()) == LOST
        may_go.set()
        while client.get("/v2/health/ready").status_code != 200:
            pass
        assert client.get("/v2/models/small/ready").json() == {"name": "small", "ready": True}
        assert infer().json()["outputs"] == first.json()["outputs"]


def test_a_device_of_the_caller_is_not_replaced(tmp_path: Path, device: Any, caplog: pytest.LogCaptureFixture):
    doomed = device.sibling()
    model = ServedSession(saved(tmp_path, MODEL), device=doomed, cache=False, rows=8, queue=2)
    assert model.is_ready
    doomed.gpu.destroy()
    assert not model.is_ready
    model.close()
    assert "made by the caller" in caplog.text


@pytest.mark.parametrize("kind", ["mixed", "bundle"])
def test_models_whose_rows_are_not_joined_run_in_turn(kind: str, tmp_path: Path, device: Any):
    path = small_bundle(tmp_path / "small.shaderbundle", 5) if kind == "bundle" else saved(tmp_path, MIXED)
    model = ServedSession(path, device=device, cache=False, rows=8, queue=2)
    assert not model.is_joined
    with ApiServer(KServeApi(model, "small", LIMITS), LIMITS) as server, connect(server.port) as client:
        feeds, inputs = {}, []
        for port in client.get_model_metadata("small")["inputs"]:
            shape = [2 if size == -1 else size for size in port["shape"]]
            feeds[port["name"]] = np.ones([2, 5, 8] if kind == "bundle" and len(shape) == 3 else shape, np.float32)
            inputs.append(triton.InferInput(port["name"], feeds[port["name"]].shape, port["datatype"]))
            inputs[-1].set_data_from_numpy(feeds[port["name"]])
        result = client.infer("small", inputs)
        for output, array in zip(model.session.get_outputs(), model.session.run(None, feeds)):
            np.testing.assert_array_equal(result.as_numpy(output.name), array)
