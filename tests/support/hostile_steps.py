"""A catalogue of hostile steps: single faults of programs, each with the rule that refuses it."""

from __future__ import annotations

import copy
from typing import Any

from shaderloom.runtime.bundle.format import plan_file

from .hostile import Change, drop, put

STEP = ("programs", 0, "steps")


def _at_end(step: Any) -> Change:
    """Add a step behind the branch of a program."""
    return lambda root: root["programs"][0]["steps"].append(step)


def _many_steps(root: Any) -> None:
    steps = root["programs"][0]["steps"]
    steps[:0] = [{"kind": "alias", "value": f"x{number}", "source": "x"} for number in range(4100)]


def _nested_branches(root: Any) -> None:
    branch = root["programs"][0]["steps"][-1]
    for _ in range(60):
        branch = {"kind": "branch", "condition": "c", "true": [branch], "false": branch["false"]}
    root["programs"][0]["steps"][-1] = branch


def _program_twice(root: Any) -> None:
    root["programs"].append(copy.deepcopy(root["programs"][0]))


def _step(kind: str, *path: Any, value: Any) -> Change:
    """Replace a field of the first step of a kind."""

    def change(root: Any) -> None:
        steps = root["programs"][0]["steps"]
        put(value, *path)(next(step for step in steps if step["kind"] == kind))

    return change


def _loop(number: int, *path: Any, value: Any) -> Change:
    """Replace a field of one of the loops of a program."""

    def change(root: Any) -> None:
        steps = root["programs"][0]["steps"]
        put(value, *path)([step for step in steps if step["kind"] == "loop"][number])

    return change


def _nested_loops(outer: int, inner: int) -> Any:
    """An empty loop in another."""

    def empty(count: int, steps: list[Any]) -> Any:
        open_ends = dict.fromkeys(("symbol", "condition", "going"))
        return {
            "kind": "loop", "count": count, **open_ends, "iteration": f"{count}", "carried": [], "stacked": [],
            "steps": steps,
        }  # fmt: skip

    return empty(outer, [empty(inner, [])])


#: By name: a change of the manifest of the program (:data:`~.bundles.STEPS`), and the rule by which it is refused
PROGRAMS: dict[str, tuple[Change, str]] = {
    "neither plans nor programs": (put([], "programs"), "plans"),
    "no programs": (drop("programs"), "plans"),
    "a program twice": (_program_twice, "plan twice"),
    "a stage that is a plan": (
        lambda root: root["plans"].append(
            {
                "key": root["programs"][0]["steps"][0]["plan"],
                "shapes": {},
                "file": plan_file(root["programs"][0]["steps"][0]["plan"]),
            }
        ),
        "plan twice",
    ),
    "a stage without a file": (_step("stage", "plan", value="0" * 64), "listed"),
    "a stage without its software": (_step("stage", "software", value="0" * 64), "listed"),
    "more steps than any program needs": (_many_steps, "steps"),
    "branches in branches": (_nested_branches, "json"),
    "an input of another program": (put({"y": []}, "programs", 0, "shapes"), "plan input"),
    "a dimension without a range": (put(["q", 3], "programs", 0, "shapes", "w"), "dimension"),
    "a range that is a dimension": (put({"low": 1, "high": 9, "step": 1}, "programs", 0, "ranges", "n"), "names"),
    "a range without a size": (put({"low": 9, "high": 1, "step": 1}, "programs", 0, "ranges", "m"), "range"),
    "a range of more than can be counted": (
        put({"low": -1, "high": 2**53 - 1, "step": 1}, "programs", 0, "ranges", "m"),
        "range",
    ),
    "a range of half a step": (put({"low": 0, "high": 3, "step": 2}, "programs", 0, "ranges", "m"), "range"),
    "a range beyond what can be counted": (
        put({"low": 0, "high": 2**53 - 1, "step": 1}, "programs", 0, "ranges", "m"),
        "overflow",
    ),
    "a step behind a branch": (_at_end({"kind": "alias", "value": "q", "source": "x"}), "last step"),
    "a step behind a refusal": (
        lambda root: root["programs"][0]["steps"].insert(0, {"kind": "refuse", "reason": "no"}),
        "last step",
    ),
    "a reason that is no text": (_at_end({"kind": "refuse", "reason": 1}), "type"),
    "a step of another kind": (_at_end({"kind": "host"}), "choice"),
    "a condition that is not there": (_step("branch", "condition", value="no"), "value"),
    "a condition of floats": (_step("branch", "condition", value="x"), "read"),
    "a value that is not there": (_step("stage", "inputs", value=["no"]), "value"),
    "a value named as a prototype": (_step("stage", "inputs", value=["__proto__"]), "value"),
    "a value of the other side": (_step("branch", "false", value=[]), "result"),
    "a value twice": (
        lambda root: root["programs"][0]["steps"].insert(0, {"kind": "alias", "value": "x", "source": "w"}),
        "value twice",
    ),
    "an alias of what is not there": (
        lambda root: root["programs"][0]["steps"].insert(0, {"kind": "alias", "value": "q", "source": "q"}),
        "value",
    ),
    "a size before it is read": (_step("stage", "sizes", value={"rows": "m"}), "size"),
    "a size of what is an input, too": (_step("stage", "sizes", value={"x": "n"}), "size"),
    "a size that is a value": (
        lambda root: root["programs"][0]["steps"][-1]["true"][0].update(sizes={"w": "m"}),
        "size",
    ),
    "a size named as a prototype": (_step("stage", "sizes", value={"rows": "__proto__"}), "size"),
    "an output of a size before it is read": (_step("stage", "outputs", 0, "shape", value=["m"]), "symbol"),
    "an output that is negative": (_step("stage", "outputs", 0, "shape", value=[-1]), "negative"),
    "an output of no elements that no array has": (
        _step("stage", "outputs", 0, "shape", value=[0, 2**52, 2**52]),
        "overflow",
    ),
    "an output larger than memory": (_step("stage", "outputs", 0, "shape", value=[2**52, 4]), "overflow"),
    "more integers than are there": (_step("read", "symbols", value=["m", "m"]), "read"),
    "integers of floats": (_step("read", "value", value="x"), "read"),
    "no symbols": (_step("read", "symbols", value=[]), "count"),
    "more symbols than a step reads": (_step("read", "symbols", value=["m"] * 257), "count"),
    "a symbol without a range": (_step("read", "symbols", value=["n"]), "read symbol"),
    "a symbol named as a prototype": (_step("read", "symbols", value=["__proto__"]), "read symbol"),
    "an output of another type": (put("int32", "outputs", 1, "dtype"), "result"),
    "a sample of no program": (
        put([{"plan": "0" * 64, "file": f"samples/{'0' * 64}.safetensors", "tolerance": 0}], "samples"),
        "sample plan",
    ),
}

#: By name: a change of the manifest of the loops (:data:`~.bundles.LOOPS`), and the rule by which it is refused
LOOPS: dict[str, tuple[Change, str]] = {
    "no bound": (_step("loop", "symbol", value=None), "loop"),
    "a condition without a symbol": (_loop(1, "condition", value="no"), "loop"),
    "an end without a symbol": (_loop(1, "going", value="x"), "loop"),
    "a condition of numbers": (_step("loop", "condition", value="limit"), "read"),
    "a condition that is not there": (_step("loop", "condition", value="no"), "value"),
    "too many iterations": (_loop(1, "count", value=65_537), "iterations"),
    "a count of no symbol": (_loop(1, "count", value="q"), "symbol"),
    "a count below none": (_loop(1, "count", value=-1), "negative"),
    "a count beyond what can be counted": (_loop(1, "count", value=["*", 2**40, 2**40]), "overflow"),
    "a symbol without a range": (_step("loop", "symbol", value="no"), "read symbol"),
    "a symbol of two loops": (_loop(1, "symbol", value="iterations of y"), "read symbol"),
    "a range of too many iterations": (
        put({"low": 0, "high": 65_537, "step": 1}, "programs", 0, "ranges", "iterations of y"),
        "iterations",
    ),
    "a range of iterations from below 0": (
        put({"low": -1, "high": 9, "step": 1}, "programs", 0, "ranges", "iterations of y"),
        "read symbol",
    ),
    "an initial value that is not there": (_step("loop", "carried", 0, "initial", value="no"), "value"),
    "a carried value that is there": (_step("loop", "carried", 0, "name", value="x"), "value twice"),
    "a number that is there": (_step("loop", "iteration", value="x"), "value twice"),
    "a next value of another type": (_step("loop", "carried", 0, "next", value="Loop_0.body/d"), "carried"),
    "a next value that is not there": (_step("loop", "carried", 0, "next", value="no"), "result"),
    "a next value of another shape": (_step("loop", "carried", 1, "initial", value="x"), "result"),
    "a result that is there": (_step("loop", "carried", 0, "result", value="x"), "value twice"),
    "a row that is not there": (_step("loop", "stacked", 0, "row", value="no"), "result"),
    "a row of another type": (_step("loop", "stacked", 0, "dtype", value="int64"), "result"),
    "a row of half a word": (_step("loop", "stacked", 0, "dtype", value="float16"), "row"),
    "a row that is carried as another type": (_step("loop", "stacked", 0, "row", value="Loop_0.body/w"), "row"),
    "rows beyond what can be counted": (_step("loop", "stacked", 0, "shape", value=[2**40]), "overflow"),
    "rows of no elements that no array has": (_step("loop", "stacked", 0, "shape", value=[0, 2**50]), "overflow"),
    "loops in loops of many iterations": (
        lambda root: root["programs"][0]["steps"].insert(0, _nested_loops(65_536, 64)),
        "work",
    ),
    "as many loops as are too much together": (
        lambda root: root["programs"][0]["steps"].__setitem__(
            slice(0, 0), [_nested_loops(number, 999) for number in range(1_000, 1_010)]
        ),
        "work",
    ),
    "an end by a number": (_step("loop", "going", value="Loop_0.body/w"), "loop"),
    "an end that is not there": (_step("loop", "going", value="no"), "result"),
    "a body without steps": (_step("loop", "steps", value=[]), "result"),
    "a body that reads what follows": (_step("loop", "steps", 0, "inputs", value=["z"]), "value"),
    "a value of a body behind it": (_loop(1, "carried", 0, "initial", value="Loop_0.body/w"), "value"),
}

#: By name: a change of the manifest of loops that carry more and more (:data:`~.bundles.GROWING`), and the rule that
#: refuses it
GROWTH: dict[str, tuple[Change, str]] = {
    "a size from below 0": (
        put({"low": -1, "high": 60, "step": 1}, "programs", 0, "ranges", "size of rows"), "read symbol"),
    "symbols of another rank": (_step("loop", "carried", 0, "symbols", value=["size of y"]), "carried"),
    "more symbols than axes": (_step("loop", "carried", 0, "symbols", value=[None] * 33), "count"),
    "a symbol that is no text": (_step("loop", "carried", 0, "symbols", 0, value=1), "type"),
    "a symbol without a range": (_step("loop", "carried", 0, "symbols", 0, value="no"), "read symbol"),
    "a symbol that has a size": (_step("loop", "carried", 0, "symbols", 0, value="k"), "read symbol"),
    "a symbol twice": (_step("loop", "carried", 0, "symbols", 1, value="size of y"), "read symbol"),
    "a symbol named as a prototype": (_step("loop", "carried", 0, "symbols", 0, value="__proto__"), "read symbol"),
    "no symbol for what changes": (_step("loop", "carried", 0, "symbols", value=[None, None]), "symbol"),
    "a symbol for what does not change": (
        _step("loop", "carried", 0, "symbols", value=["size of y", "size of rows"]), "read symbol"),
    "more than can be counted": (
        put({"low": 0, "high": 2**52, "step": 1}, "programs", 0, "ranges", "size of y"), "overflow"),
    "rows of a size that changes": (
        _step("loop", "stacked", value=[{"row": "Loop_0.body/v", "result": "more", "dtype": "float32",
                                         "shape": ["size of y", 3]}]), "symbol"),
}  # fmt: skip

#: By name: a change of the manifest by which its first stage is no longer what the manifest says, and the rule
STAGES: dict[str, tuple[Change, str]] = {
    "another type of an output": (_step("stage", "outputs", 0, "dtype", value="uint8"), "signature"),
    "another shape of an output": (_step("stage", "outputs", 0, "shape", value=[40, 5]), "signature"),
    "an output more": (
        lambda root: root["programs"][0]["steps"][0]["outputs"].append({"name": "q", "dtype": "bool", "shape": []}),
        "signature",
    ),
    "an input less": (_step("stage", "inputs", value=[]), "signature"),
    "a size more": (_step("stage", "sizes", value={"rows": "n"}), "signature"),
    "another input": (put([4, 40], "programs", 0, "shapes", "x"), "signature"),
}
