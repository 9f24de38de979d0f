"""A plan as a bundle stores it: without shader texts and sources, its weights ready to be uploaded.

:func:`encode` and :func:`decode` are inverse to each other for plans whose weights have no calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plan.errors import InternalError
from ..plan.json_reader import Reader
from ..plan.plan import Plan
from ..plan.validate import check_plan
from .format import canonical_json, own_feature, web_feature
from .manifest import Part


def encode(plan: Plan) -> bytes:
    """Return the content of ``plan-KEY.json``.  Raises :class:`InternalError` if a weight has calls."""
    if any(weight.calls for weight in plan.weights):
        raise InternalError("a plan of a bundle has a weight that is not evaluated")
    data = plan.to_json()
    del data["sources"]
    for kernel in data["kernels"]:
        del kernel["wgsl"]
        kernel["features"] = [web_feature(name) for name in kernel["features"]]
    for weight in data["weights"]:
        del weight["sources"], weight["calls"]
    data["constants"] = [
        {
            "output": constant["output"],
            "dtype": constant["source"]["dtype"],
            "shape": constant["source"]["shape"],
            "data": constant["source"]["data"]["base64"],
        }
        for constant in data["constants"]
    ]
    return canonical_json(data)


def decode(content: bytes, shader: Callable[[str], str], weights: Mapping[str, Sequence[Part]]) -> Plan:
    """Read ``plan-KEY.json``.

    ``shader`` gives the text of a kernel by its key, ``weights`` the parts of every weight: they become the sources of
    the plan.  Unknown fields are ignored.  Raises :class:`ValueError` if the content is not a plan that can run.
    """
    try:
        root = Reader(json.loads(content), "")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    data = {**root.object(), "sources": [], "weights": []}
    data["kernels"] = [_kernel(item, shader) for item in root.get("kernels").items()]
    data["constants"] = [_constant(item) for item in root.get("constants").items()]
    for item in root.get("weights").items():
        weight, sources = _weight(item, weights)
        data["weights"].append(weight)
        data["sources"] += sources
    try:
        plan = Plan.from_json(data)
    except RecursionError:
        raise ValueError("its dimensions are nested too deeply") from None
    check_plan(plan)
    return plan


def _kernel(item: Reader, shader: Callable[[str], str]) -> dict[str, Any]:
    features = [own_feature(name.text()) for name in item.get("features").items()]
    return {**item.object(), "wgsl": shader(item.get("key").key()), "features": features}


def _constant(item: Reader) -> dict[str, Any]:
    data = item.get("data").text()
    source = {
        "key": "",
        "path": None,
        "offset": 0,
        "length": len(data) // 4 * 3 - data[-2:].count("="),
        "dtype": item.get("dtype").text(),
        "shape": item.get("shape").value,
        "data": {"base64": data},
    }
    return {"output": item.get("output").text(), "source": source}


def _weight(item: Reader, weights: Mapping[str, Sequence[Part]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a weight and the sources that it consists of."""
    key, size = item.get("key").key(), item.get("bytes").number()
    if key not in weights:
        raise ValueError(f"the manifest does not have weight '{key}'")
    if sum(part.length for part in weights[key]) != size:
        raise ValueError(f"weight '{key}' has not the size that the manifest says")
    sources = [
        {
            "key": f"{key}.{number}",
            "path": part.file,
            "offset": part.offset,
            "length": part.length,
            "dtype": "uint8",
            "shape": [part.length],
            "data": None,
        }
        for number, part in enumerate(weights[key])
    ]
    weight = {
        "key": key,
        "bytes": size,
        "sources": [source["key"] for source in sources],
        "calls": [],
        "description": item.get("description").text(),
    }
    return weight, sources
