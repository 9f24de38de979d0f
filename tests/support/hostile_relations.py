"""A catalogue of hostile plans and manifests: single faults, each with the rule that refuses it."""

from __future__ import annotations

import copy
import json
from typing import Any

from .hostile import Change, Seed, drop, put, twice

CALL = ("commands", 0, "calls", 0)
RANGE = (*CALL, "ranges", 0)


def _first(name: str, *path: Any, value: Any) -> Change:
    """Replace a field of the first entry of an object."""

    def change(root: Any) -> None:
        put(value, min(root[name]), *path)(root[name])

    return change


def _deep(root: Any) -> None:
    value: Any = 1
    for _ in range(600):
        value = ["+", 1, value]
    root["arenas"] = [value]


def _share(root: Any) -> None:
    """Two weights of the same bytes."""
    (first, second) = sorted(root["weights"])[:2]
    root["weights"][second] = copy.deepcopy(root["weights"][first])


def _repeat(count: Any) -> Change:
    """Repeat the first command."""

    def change(root: Any) -> None:
        root["commands"][0] |= {"kind": "repeat", "count": count}

    return change


def _repeated_often(root: Any) -> None:
    _repeat(65_536)(root)
    root["commands"][0]["calls"] *= 65


def _command_without_iterations(root: Any) -> None:
    """A call of a command without iterations binds their number."""
    call = root["commands"][0]["calls"][0]
    kernel = next(kernel for kernel in root["kernels"] if kernel["key"] == call["kernel"])
    kernel["bindings"].append({"name": "iteration", "access": "iteration", "element": "Iteration"})
    call["ranges"].append({"buffer": "iteration", "offset": 0, "size": 16})


def _alias_itself(root: Any) -> None:
    root["aliases"] = [{"output": "y", "source": "output:y", "size": 16}]


def _alias_circle(root: Any) -> None:
    root["aliases"] = [
        {"output": "y", "source": "output:same", "size": 16}, {"output": "same", "source": "output:y", "size": 16},
    ]  # fmt: skip


#: By name: the file, the change of the small model's bundle, and the rule by which it is refused
RELATIONS: dict[str, tuple[str, Change, str]] = {
    "a file outside": ("manifest", lambda root: root["files"].update({"../x": {"size": 0, "sha256": []}}), "file name"),
    "a file named as a prototype": (
        "manifest", lambda root: root["files"].update({"__proto__": {"size": 0, "sha256": []}}), "file name"),
    "a missing hash": ("manifest", _first("files", "sha256", value=[]), "hashes"),
    "19 GB of one chunk": ("manifest", _first("files", "size", value=19 << 30), "hashes"),
    "an input twice": ("manifest", twice("inputs"), "names"),
    "an output twice": ("manifest", twice("outputs"), "names"),
    "a range without a size": ("manifest", put({"n": {"low": 5, "high": 1, "step": 1}}, "dynamic"), "range"),
    "a step of zero": ("manifest", put({"n": {"low": 5, "high": 5, "step": 0}}, "dynamic"), "range"),
    "a plan twice": ("manifest", twice("plans"), "plan twice"),
    "another plan's file": ("manifest", put("plan-x.json", "plans", 0, "file"), "plan file"),
    "no such plan": ("manifest", put("0" * 64, "plans", 0, "software"), "listed"),
    "an input of no model": ("manifest", put([1], "plans", 0, "shapes", "z"), "plan input"),
    "an input without a type": ("manifest", put(None, "inputs", 0, "dtype"), "plan dtype"),
    "an input of strings": ("manifest", put("string", "inputs", 0, "dtype"), "plan dtype"),
    "a dimension without a range": ("manifest", put(["q"], "plans", 0, "shapes", "x"), "dimension"),
    "rows along no axis": (
        "manifest", put({"inputs": {"x": 3}, "outputs": {}}, "plans", 0, "rows"), "rows"),
    "rows of no input": (
        "manifest", put({"inputs": {"z": 0}, "outputs": {}}, "plans", 0, "rows"), "rows"),
    "rows of no output": (
        "manifest", put({"inputs": {"x": 0}, "outputs": {"z": 0}}, "plans", 0, "rows"), "rows"),
    "rows without inputs": (
        "manifest", put({"inputs": {}, "outputs": {}}, "plans", 0, "rows"), "rows"),
    "rows of some outputs": (
        "manifest", put({"inputs": {"x": 0}, "outputs": {"y": 0}}, "plans", 0, "rows"), "rows"),
    "70 axes of an input": ("manifest", put([1] * 70, "plans", 0, "shapes", "x"), "count"),
    "a sample without a plan": (
        "manifest", put([{"plan": "0" * 64, "file": "x", "tolerance": 0}], "samples"), "sample plan"),
    "a part between blocks": ("manifest", _first("weights", "parts", 0, "offset", value=8), "blocks"),
    "a part outside": ("manifest", _first("weights", "parts", 0, "length", value=1 << 40), "inside"),
    "a part of no file": ("manifest", _first("weights", "parts", 0, "file", value="w"), "listed"),
    "a weight of another size": ("manifest", _first("weights", "bytes", value=19 << 30), "weight bytes"),
    "one file for many weights": ("manifest", _share, "overlap"),
    "another plan": ("plan", put("0" * 64, "key"), "plan key"),
    "a symbol of no manifest": (
        "plan", put([{"name": "n", "low": 1, "high": 2, "step": 1}], "symbols"), "symbol range"),
    "70 axes": ("plan", put([1] * 70, "inputs", 0, "shape"), "count"),
    "a negative axis": ("plan", put(-5, "inputs", 0, "shape", 0), "negative"),
    "another shape": ("plan", put(3, "inputs", 0, "shape", 0), "signature"),
    "another type": ("plan", put("float16", "inputs", 0, "dtype"), "signature"),
    "an output named as a prototype": ("plan", put("__proto__", "outputs", 0, "name"), "signature"),
    "a port twice": ("plan", twice("inputs"), "names"),
    "an unknown symbol": ("plan", put([["+", "q", 1]], "arenas"), "symbol"),
    "a huge arena": ("plan", put([["*", 1 << 40, 1 << 40]], "arenas"), "overflow"),
    "a huge part of a small size": ("plan", put([["min", ["*", 1 << 40, 1 << 40], 1]], "arenas"), "overflow"),
    "a negative arena": ("plan", put([-16], "arenas"), "negative"),
    "a huge tensor": ("plan", put([1 << 40, 1 << 40], "outputs", 0, "shape"), "overflow"),
    "a deep size": ("plan", _deep, "json"),
    "a size 40 deep": ("plan", put([json.loads('["+",1,' * 40 + "1" + "]" * 40)], "arenas"), "size"),
    "a weight of no manifest": ("plan", put("0" * 64, "weights", 0, "key"), "weight"),
    "a weight that is larger": ("plan", put(1 << 40, "weights", 0, "bytes"), "weight"),
    "a weight twice": ("plan", twice("weights"), "names"),
    "a kernel twice": ("plan", twice("kernels"), "names"),
    "a kernel without a shader": ("plan", put("0" * 64, "kernels", 0, "key"), "listed"),
    "a workgroup of none": ("plan", put([64, 0, 1], "kernels", 0, "workgroup"), "workgroup"),
    "an unknown kernel": ("plan", put("0" * 64, *CALL, "kernel"), "kernel"),
    "too few ranges": ("plan", put([], *CALL, "ranges"), "bindings"),
    "a negative grid": ("plan", put([-1, 1, 1], *CALL, "grid"), "negative"),
    "a grid of two axes": ("plan", put([1, 1], *CALL, "grid"), "count"),
    "a grid of 50,000 factors": ("plan", put([["*", *[3] * 50_000], 1, 1], *CALL, "grid"), "size"),
    "a grid of 1,000 factors": ("plan", put([["*", *[3] * 1_000], 1, 1], *CALL, "grid"), "overflow"),
    "a grid beyond 32 bits": ("plan", put([1, 1, 1 << 33], *CALL, "grid"), "work"),
    "a grid of all workgroups that axes allow": ("plan", put([65_535] * 3, *CALL, "grid"), "work"),
    "millions of dispatches": ("plan", _repeated_often, "work"),
    "an unknown buffer": ("plan", put("input:q", *RANGE, "buffer"), "buffer"),
    "a buffer named as a prototype": ("plan", put("__proto__", *RANGE, "buffer"), "buffer"),
    "a range outside": ("plan", put(1 << 20, *RANGE, "offset"), "inside"),
    "an empty range": ("plan", put(0, *RANGE, "size"), "inside"),
    "a range of half words": ("plan", put(2, *RANGE, "size"), "words"),
    "a written input": ("plan", put("read_write", "kernels", 0, "bindings", 0, "access"), "access"),
    "a uniform tensor": ("plan", put("uniform", "kernels", 0, "bindings", 0, "access"), "access"),
    "a number of 33 bits": ("plan", put([[1 << 32]], "problems"), "problem"),
    "a problem of no numbers": ("plan", put([[]], "problems"), "count"),
    "an unknown problem": ("plan", put("problem:7", *RANGE, "buffer"), "buffer"),
    "a constant of no output": ("plan", put("q", "constants", 0, "output"), "output"),
    "a constant twice": ("plan", twice("constants"), "output"),
    "a constant of another type": ("plan", put("int8", "constants", 0, "dtype"), "constant"),
    "a constant of another shape": ("plan", put([4, 4], "constants", 0, "shape"), "constant"),
    "a short constant": ("plan", put("AAAA", "constants", 0, "data"), "constant"),
    "a constant in spaces": ("plan", put("AA AA", "constants", 0, "data"), "base64"),
    "an alias of itself": ("plan", _alias_itself, "circle"),
    "aliases in a circle": ("plan", _alias_circle, "circle"),
    "an alias of an arena": ("plan", put("arena:0", "aliases", 0, "source"), "buffer"),
    "an alias of nothing": ("plan", put("output:q", "aliases", 0, "source"), "buffer"),
    "an alias of less": ("plan", put(1 << 40, "aliases", 0, "size"), "inside"),
    "a state of no output": ("plan", put([{"output": "q", "input": "x"}], "states"), "output"),
    "a state of no input": ("plan", put([{"output": "y", "input": "q"}], "states"), "state"),
    "a state of another type": ("plan", put([{"output": "two", "input": "bias"}], "states"), "state"),
    "a state whose input is read": ("plan", put([{"output": "y", "input": "x"}], "states"), "buffer"),
    "a state that is an alias": ("plan", put([{"output": "same", "input": "x"}], "states"), "buffer"),
    "a command of another kind": ("plan", put("host", "commands", 0, "kind"), "choice"),
    "a million iterations": ("plan", _repeat(1_000_000), "iterations"),
    "iterations below zero": ("plan", _repeat(-1), "negative"),
    "iterations of no number": ("plan", _repeat(None), "number"),
    "a command without its iterations": ("plan", put("repeat", "commands", 0, "kind"), "missing"),
    "the number of no iteration": ("plan", _command_without_iterations, "buffer"),
    "facts of another call": ("plan", twice("facts", "calls"), "facts"),
    "facts of no tensor": ("plan", put([1 << 30], "facts", "calls", 0, "operands"), "facts"),
    "notes of another call": ("plan", twice("notes", "calls"), "notes"),
}  # fmt: skip


def _state(output: str, source: str) -> Change:
    """Let one more output begin as an input."""
    return lambda root: root["states"].append({"output": output, "input": source})


def _alias(output: str, source: str) -> Change:
    return lambda root: root["aliases"].append({"output": output, "source": source, "size": 16})


def _named_as_prototypes(root: Any) -> None:
    """Both ends of a state have names that objects of JavaScript have."""
    root["states"] = [{"output": "__proto__", "input": "constructor"}]


#: By name: a change of the plan of the cache with declared dimensions, whose output ``present`` begins as ``past``, and
#: the rule by which it is refused, if it is
STATES: dict[str, tuple[Change, str | None]] = {
    "no states": (drop("states"), "missing"),
    "states by name": (put({"present": "past"}, "states"), "type"),
    "a state of a text": (put(["present"], "states"), "type"),
    "a state without its input": (drop("states", 0, "input"), "missing"),
    "a state of two inputs": (put(["past", "past"], "states", 0, "input"), "type"),
    "more states than a plan has": (
        put([{"output": "present", "input": "past"}] * 65_537, "states"), "count"),
    "a state twice": (twice("states"), "output"),
    "one input of two states": (_state("y", "past"), "state"),
    "one output of two states": (_state("present", "row"), "output"),
    "an output that is an input": (put("past", "states", 0, "output"), "output"),
    "an input that is an output": (put("present", "states", 0, "input"), "state"),
    "an input that is a buffer": (put("input:past", "states", 0, "input"), "state"),
    "a symbol beyond 32 bits": (put(1 << 32, "symbols", 0, "high"), "range"),
    "states named as prototypes": (_named_as_prototypes, "output"),
    "an input named as a prototype": (put("__proto__", "states", 0, "input"), "state"),
    "another type of the output": (put("int32", "outputs", 0, "dtype"), "signature"),
    "another size of the output": (put(["batch", 4, 6], "outputs", 0, "shape"), "state"),
    "a size that is the same for no bound": (put(["+", "batch", 1], "outputs", 0, "shape", 0), "state"),
    "a size of the same value": (put(["+", "batch", 0], "outputs", 0, "shape", 0), "state"),
    "a state that is an alias": (_alias("present", "input:row"), "output"),
    "a state that is a constant": (
        lambda root: root["constants"].append(
            {"output": "present", "dtype": "float32", "shape": [1, 6, 4], "data": "A" * 128}), "output"),
    "an alias of the input": (_alias("y", "input:past"), "buffer"),
    "a call that reads the input": (put("input:past", *RANGE, "buffer"), "buffer"),
    "a call that writes the input": (put("input:past", *CALL, "ranges", 2, "buffer"), "buffer"),
    "a call that reads and writes": (put("output:present", *RANGE, "buffer"), "access"),
    "an alias of the state that a call binds": (_alias("y", "output:present"), "output"),
    "no call": (lambda root: root.update(commands=[], facts=root["facts"] | {"calls": []},
                                         notes=root["notes"] | {"calls": []}), None),
}  # fmt: skip


def with_alias_chain(seed: Seed, length: int) -> Seed:
    """Return the small model's seed with more outputs, each an alias of the next, the last one of the input ``x``."""
    made = copy.deepcopy(seed)
    (shape,) = (port["shape"] for port in made.plan["inputs"] if port["name"] == "x")
    for index in range(length):
        source = f"output:{index + 1}" if index + 1 < length else "input:x"
        made.manifest["outputs"].append({"name": f"{index}", "dtype": "float32", "dims": None})
        made.plan["outputs"].append({"name": f"{index}", "dtype": "float32", "shape": shape})
        made.plan["aliases"].append({"output": f"{index}", "source": source, "size": 320})
    return made


#: By name: the file, and a change within the rules that what runs the bundle refuses by its device's limits
BEYOND_LIMITS: dict[str, tuple[str, Change]] = {
    "an unknown feature": ("manifest", put(["moon"], "features")),
    "an unknown limit": ("manifest", put(1, "limits", "moon")),
    "a limit named as a method": ("manifest", put(1, "limits", "constructor")),
    "a limit that no device has": ("manifest", put(1 << 52, "limits", "maxBufferSize")),
    "a grid beyond 16 bits": ("plan", put([1 << 16, 1, 1], *CALL, "grid")),
    "a grid beyond 16 bits of the last axis": ("plan", put([1, 1, 1 << 20], *CALL, "grid")),
    "an arena of a terabyte": ("plan", put([1 << 40], "arenas")),
    "an arena of the last number": ("plan", put([(1 << 53) - 1], "arenas")),
    "arenas of more than the last number": ("plan", put([1 << 52] * 4, "arenas")),
    "many arenas": ("plan", put([1 << 30] * 300, "arenas")),
}  # fmt: skip


#: The same for the small model with declared dimensions: what is wrong for n = 5, and for no bound
FOUND_BY_RUNS: dict[str, tuple[str, Change]] = {
    "a range outside": ("plan", put(["*", "n", 128], *RANGE, "size")),
    "an empty range": ("plan", put(["+", "n", -5], *RANGE, "size")),
    "an offset outside": ("plan", put(["*", "n", 256], *RANGE, "offset")),
    "a negative size": ("plan", put(["+", "n", -40], "outputs", 0, "shape", 1)),
    "two negative sizes": ("plan", put([["+", "batch", -4], ["+", "n", -40], 8], "outputs", 0, "shape")),
    "a negative grid": ("plan", put([["+", "n", -40], 1, 1], *CALL, "grid")),
    "an alias of less": ("plan", put(["batch", "n", 64], "outputs", 1, "shape")),
}
