"""A plan as a bundle stores it: without shader texts and sources, its weights ready to be uploaded.

:func:`encode` and :func:`decode` are inverse to each other for plans whose weights have no calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plan.errors import InternalError
from ..plan.plan import Plan
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


def decode(root: Any, shader: Callable[[str], str], weights: Mapping[str, Sequence[Part]]) -> Plan:
    """Return the plan of a JSON value that was checked (:mod:`.structure`, :mod:`.plan_relations`).

    ``shader`` gives the text of a kernel by its key, ``weights`` the parts of every weight: they become the sources of
    the plan.  Unknown fields are ignored.
    """
    data = {**root, "sources": [], "weights": []}
    data["kernels"] = [
        {**item, "wgsl": shader(item["key"]), "features": [own_feature(name) for name in item["features"]]}
        for item in root["kernels"]
    ]
    data["constants"] = [
        {"output": item["output"], "source": _source(item["dtype"], item["shape"], data=item["data"])}
        for item in root["constants"]
    ]
    for item in root["weights"]:
        parts = {f"{item['key']}.{number}": part for number, part in enumerate(weights[item["key"]])}
        data["weights"].append({**item, "sources": list(parts), "calls": []})
        data["sources"] += [_source("uint8", [part.length], key=key, part=part) for key, part in parts.items()]
    return Plan.from_json(data)


def _source(
    dtype: str, shape: list[int], *, key: str = "", part: Part | None = None, data: str | None = None
) -> dict[str, Any]:
    """Return the source of a weight's part, or of a constant's base64 data."""
    return {
        "key": key,
        "path": None if part is None else part.file,
        "offset": 0 if part is None else part.offset,
        "length": 0 if part is None else part.length,
        "dtype": dtype,
        "shape": shape,
        "data": None if data is None else {"base64": data},
    }
