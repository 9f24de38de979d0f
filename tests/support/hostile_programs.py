"""Hostile programs within the rules: what runs of them must refuse, or compute in both runtimes alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shaderloom.runtime.bundle.format import MANIFEST

from .bundles import seal

#: Changes the steps of the program of two loops (:data:`.bundles.LOOPS`), and the plans of the bundle by their keys
Attack = Callable[[list[Any], dict[str, Any]], list[Any]]


def attacked(folder: Path, attack: Attack, **ranges: tuple[int, int]) -> Path:
    """Change the bundle in a folder, with ranges of the program's symbols and right digests; return the folder."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    plans = {path.stem.removeprefix("plan-"): json.loads(path.read_bytes()) for path in folder.glob("plan-*.json")}
    program = manifest["programs"][0]
    program["steps"] = attack(program["steps"], plans)
    for name, (low, high) in ranges.items():
        program["ranges"][name] = {"low": low, "high": high, "step": 1}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    for key, plan in plans.items():
        (folder / f"plan-{key}.json").write_text(json.dumps(plan))
    seal(folder)
    return folder


def loop(count: Any, *carried: tuple[str, str, str, str | None], steps: Any = (), stacked: Any = ()) -> dict[str, Any]:
    """A loop of a fixed count; what it carries is name, initial value, next value and result."""
    fields = ("name", "initial", "next", "result")
    return {
        "kind": "loop", "count": count, "symbol": None, "condition": None, "going": None, "iteration": f"i{count}",
        "carried": [dict(zip(fields, each)) for each in carried], "stacked": list(stacked), "steps": list(steps),
    }  # fmt: skip


def alias(value: str, source: str) -> dict[str, str]:
    return {"kind": "alias", "value": value, "source": source}


READ_K = {"kind": "read", "value": "k", "symbols": ["k"]}
#: Defines the outputs that only need the right element type
REST = [alias("steps", "k"), alias("sums", "x"), alias("rows", "x"), alias("numbers", "x")]


def same_names(steps: list[Any], plans: dict[str, Any]) -> list[Any]:
    """Two loops carry values of one name; the result of the first is there behind the second."""
    return [loop(2, ("v", "x", "v", "y")), loop(2, ("v", "limit", "v", "z")), *REST]


def swapped(steps: list[Any], plans: dict[str, Any]) -> list[Any]:
    """Both of two values are what the other was, an odd number of times, and begin as one input and an alias of it."""
    pair = [("v", "x", "u", "y"), ("u", "doubled", "v", "z")]
    return [alias("doubled", "x"), loop(3, *pair), *REST]


def rows_of_inputs(steps: list[Any], plans: dict[str, Any]) -> list[Any]:
    """Each row is an input, or the number of the iteration."""
    rows = [{"row": "x", "result": "rows", "dtype": "float32", "shape": ["n"]},
            {"row": "ik", "result": "steps", "dtype": "int64", "shape": []}]  # fmt: skip
    return [READ_K, loop("k", ("v", "x", "v", "y"), stacked=rows), alias("z", "y"), *REST[1:2], REST[3]]


def loops_in_loops(steps: list[Any], plans: dict[str, Any]) -> list[Any]:
    """As many iterations as the cube of an integer that is read."""
    inner = {**loop("k"), "iteration": "a"}
    middle = {**loop("k", steps=[inner]), "iteration": "b"}
    return [READ_K, loop("k", ("v", "x", "v", "y"), steps=[middle]), alias("z", "y"), *REST]


def tiring_stages(steps: list[Any], plans: dict[str, Any]) -> list[Any]:
    """Every stage of the second loop has 65,536 times as many dispatches, none of which has work."""
    stage = steps[-1]["steps"][0]
    for key in (stage["plan"], stage["software"]):
        plan = plans[key]
        calls = [{**call, "grid": [0, 1, 1]} for call in plan["commands"][0]["calls"]] * 4
        plan["commands"] = [{"kind": "repeat", "count": 65_536, "calls": calls}]
        plan["facts"]["calls"] = plan["notes"]["calls"] = []
    return steps


def alias_of_another_shape(steps: list[Any], plans: dict[str, Any]) -> list[Any]:
    """An int64 that a stage gives is the beginning of an input of floats, and decides how often a loop runs."""
    key = steps[0]["plan"]
    stage = {"kind": "stage", "plan": key, "software": key, "inputs": ["x"], "sizes": {},
             "outputs": [{"name": "count", "dtype": "int64", "shape": []}]}  # fmt: skip
    plan = plans[key]
    plan["inputs"] = [{"name": "x", "dtype": "float32", "shape": ["n"]}]
    plan["symbols"] = [{"name": "n", "low": 1, "high": 9, "step": 1}]
    plan["outputs"] = stage["outputs"]
    plan["constants"], plan["aliases"] = [], [{"output": "count", "source": "input:x", "size": 8}]
    read = {"kind": "read", "value": "count", "symbols": ["k"]}
    return [stage, read, loop("k", ("v", "x", "v", "y")), alias("z", "y"), alias("steps", "count"), *REST[1:]]


def rows_without_elements(steps: list[Any], plans: dict[str, Any]) -> list[Any]:
    """Rows of a shape that no array has, were it not for a size of zero."""
    shape = [0, 2**52, 2**52]
    stage, plan = steps[0], plans[steps[0]["plan"]]
    name = stage["outputs"][0]["name"]
    for port in (stage["outputs"][0], plan["outputs"][0], plan["constants"][0]):
        port["shape"] = shape
    plan["constants"][0]["data"] = ""
    row = {"row": name, "result": "steps", "dtype": "int64", "shape": shape}
    return [stage, READ_K, loop("k", ("v", "x", "v", "y"), stacked=[row]), alias("z", "y"), *REST[1:]]
