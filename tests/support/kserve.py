"""A small model for servers of the KServe protocol, with requests for it: right ones, and wrong ones of every kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.http as triton

from shaderloom.server.kserve.routes import HEADER_LENGTH

from .patience import PATIENCE

#: y = x + add, and whether that is more than x
MODEL = """<ir_version: 9, opset_import: ["" : 17]>
g (float[batch, 3] x, int64[batch, 3] add) => (float[batch, 3] y, bool[batch, 3] large) {
  numbers = Cast<to = 1>(add)
  y = Add(x, numbers)
  large = Greater(y, x)
}"""
#: Where the model called ``small`` is asked
INFER = "/v2/models/small/infer"


def connect(port: int) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(f"127.0.0.1:{port}", connection_timeout=PATIENCE, network_timeout=PATIENCE)


def infer(client: triton.InferenceServerClient, x: np.ndarray, add: np.ndarray, *, binary: bool) -> Any:
    inputs = []
    for name, array, datatype in (("x", x, "FP32"), ("add", add, "INT64")):
        inputs.append(triton.InferInput(name, array.shape, datatype))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("large", "y")]
    return client.infer("small", inputs, outputs=outputs, request_id="one")


def infer_body() -> dict[str, Any]:
    return {
        "inputs": [
            {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]},
            {"name": "add", "shape": [1, 3], "datatype": "INT64", "data": [[1, 2, 3]]},
        ]
    }


def changed(**fields: Any) -> dict[str, Any]:
    """The request with other fields of its first tensor; None removes one."""
    request = infer_body()
    request["inputs"][0] |= fields
    request["inputs"][0] = {name: value for name, value in request["inputs"][0].items() if value is not None}
    return request


_WRONG: list[Any] = [
    [], 3, {}, {"inputs": 3}, {"inputs": []}, {"inputs": [3]}, {"inputs": [{}]}, infer_body() | {"unheard": 1},
    {"inputs": infer_body()["inputs"] * 2}, {"inputs": infer_body()["inputs"][:1]}, infer_body() | {"id": 3},
    infer_body() | {"parameters": 3}, infer_body() | {"parameters": {"binary_data_output": 1}},
    infer_body() | {"parameters": {"sequence_id": 1}}, infer_body() | {"outputs": 3},
    infer_body() | {"outputs": [{"name": "z"}]}, infer_body() | {"outputs": [{"name": "y"}, {"name": "y"}]},
    infer_body() | {"outputs": [{"name": []}]},
    infer_body() | {"outputs": [{"name": "y", "parameters": {"classification": 2}}]},
    infer_body() | {"outputs": [{"name": "y", "parameters": {"binary_data": "yes"}}]},
    changed(name=None), changed(name="other"), changed(name=3), changed(shape=None), changed(shape=[3]),
    changed(shape=[1, -3]), changed(shape=[1, 3.0]), changed(shape=[1 << 60, 1 << 60]), changed(shape=[1] * 40),
    changed(shape=[0, 1 << 90], data=[]), changed(datatype=None), changed(datatype="FP8"), changed(datatype=[]),
    changed(datatype="INT64"), changed(datatype="BYTES", data=["a", "b", "c"]), changed(data=None), changed(data="abc"),
    changed(data=[1, 2]), changed(data=[[1, 2], 3]), changed(data=[1, 2, "3"]), changed(data=[1, 2, True]),
    changed(data=[1, 2, None]), changed(data=[1, 2, 10**400]), changed(data=[1, 2, 1e300]),
    changed(data=[1, 2, {}]), changed(extra=1),
    changed(datatype="UINT8", data=[1, 2, 300]), changed(datatype="BOOL", data=[1, 0, 1]),
    changed(parameters={"binary_data_size": 12}), changed(parameters={"shared_memory_region": "a"}),
    changed(data=None, parameters={"binary_data_size": 12}), changed(data=None, parameters={"binary_data_size": "12"}),
    changed(data=None, parameters={"binary_data_size": -12}), changed(data=None, parameters={"binary_data_size": 11}),
]  # fmt: skip


@dataclass(frozen=True)
class WrongRequest:
    """A request that a server must refuse with ``status``."""

    content: bytes
    status: int = 400
    path: str = INFER
    headers: Mapping[str, str] = field(default_factory=dict)


def wrong_requests(limit: int) -> list[WrongRequest]:
    """Requests that are wrong in more than 60 ways, for a server that reads bodies of up to ``limit`` bytes."""
    good = json.dumps(infer_body()).encode()
    infinite = json.dumps(infer_body() | {"parameters": {"binary_data_output": True}}).encode()
    infinite = infinite.replace(b"[1, 2, 3]", b"[1, 2, 1e400]", 1)
    lengths = (
        (good, "-1"), (good, "x"), (good, "9" * 30), (good, "0" * 5000), (good, str(len(good) + 1)), (good, "5"),
        (good + b"rest", str(len(good))),
    )  # fmt: skip
    return [
        *(WrongRequest(json.dumps(request).encode()) for request in _WRONG),
        *(WrongRequest(content) for content in (b"{", b"\xff\xfe", b"[" * 5000, good[:-3], infinite)),
        *(WrongRequest(content, headers={HEADER_LENGTH: length}) for content, length in lengths),
        WrongRequest(good, 415, headers={"Content-Encoding": "gzip"}),
        WrongRequest(good, 404, "/v2/models/other/infer"),
        WrongRequest(b" " * (limit + 1), 413),
    ]
