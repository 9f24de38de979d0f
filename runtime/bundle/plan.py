"""A plan as a bundle stores it: without shader texts and sources, its weights ready to be uploaded.

:func:`encode` and :func:`decode` are inverse to each other for plans whose weights have no calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from ..plan.errors import InternalError
from ..plan.json_reader import Reader
from ..plan.plan import Alias, Binding, Kernel, KernelCall, Plan, Port, Range, Stage, Symbol
from ..plan.validate import check_plan
from .format import canonical_json, own_feature, web_feature
from .manifest import Part


def encode(plan: Plan) -> bytes:
    """The content of ``plan-KEY.json``."""
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
    the plan.  Fields that are not known are ignored; a field that a newer version added may be missing if it has a
    default.  Raises :class:`ValueError` if the content is not a plan that can run.
    """
    try:
        root = Reader(json.loads(content), "")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    data = _known(root, Plan)
    data["sources"], data["weights"] = [], []
    for name, kind in (("inputs", Port), ("outputs", Port), ("symbols", Symbol), ("aliases", Alias)):
        data[name] = [_known(item, kind) for item in root.get(name).items()]
    data["kernels"] = [_kernel(item, shader) for item in root.get("kernels").items()]
    data["stages"] = [_stage(item) for item in root.get("stages").items()]
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


def _known(item: Reader, kind: Any) -> dict[str, Any]:
    """The fields of ``item`` that the record has."""
    given = item.object()
    result = {}
    for field in fields(kind):
        if field.name in given:
            result[field.name] = given[field.name]
        elif field.default is not MISSING:
            result[field.name] = list(field.default) if isinstance(field.default, tuple) else field.default
        elif field.default_factory is not MISSING:
            result[field.name] = field.default_factory()
    return result


def _kernel(item: Reader, shader: Callable[[str], str]) -> dict[str, Any]:
    kernel = _known(item, Kernel)
    kernel["wgsl"] = shader(item.get("key").key())
    kernel["bindings"] = [_known(binding, Binding) for binding in item.get("bindings").items()]
    kernel["features"] = [own_feature(name.text()) for name in item.get("features").items()]
    return kernel


def _stage(item: Reader) -> dict[str, Any]:
    calls = []
    for call in item.get("calls").items():
        calls.append(_known(call, KernelCall))
        calls[-1]["ranges"] = [_known(span, Range) for span in call.get("ranges").items()]
    return {**_known(item, Stage), "calls": calls}


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
    """A weight and the sources that it consists of."""
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
    description = item.object().get("description", "")
    weight = {
        "key": key,
        "bytes": size,
        "sources": [source["key"] for source in sources],
        "calls": [],
        "description": description,
    }
    return weight, sources
