"""Hostile manifests and plans: a catalogue of single faults, and random mutations of real bundles."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaderloom.runtime.bundle.format import DIGEST, MANIFEST, model_file, plan_file
from shaderloom.runtime.bundle.integrity import digest_line
from shaderloom.runtime.bundle.program_relations import steps_of

from .bundles import file_record

Change = Callable[[Any], None]

#: What stands in for a value of any type
WRONG: tuple[Any, ...] = (
    None, True, -1, 1.5, 2**53, 10**400, "", "x", "\ud800", "__proto__", [], {}, [None], [[]], {"__proto__": 1},
    ["+"], ["+", 1, [2, 3]], ["//", 4, 0], ["%", 4, -1], ["min", 1], ["moon", 1, 2], ["*", *[2] * 2000], ["+", "q", 1],
)  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """The JSON of a bundle's manifest and of one of its plans.

    Those of a further model have its name, and the manifest of the bundle as ``own``.
    """

    manifest: Any
    plan: Any
    own: Any = None
    model: str = ""

    @classmethod
    def of(cls, folder: Path, model: str = "") -> Seed:
        own = json.loads((folder / MANIFEST).read_bytes())
        manifest = json.loads((folder / model_file(model)).read_bytes()) if model else own
        plans = [plan["key"] for plan in manifest["plans"]]
        for program in manifest.get("programs", ()):
            plans += [step["plan"] for step in steps_of(program["steps"]) if step["kind"] == "stage"]
        plan = json.loads((folder / plan_file(plans[0])).read_bytes())
        return cls(manifest, plan, own, model) if model else cls(manifest, plan)

    @property
    def key(self) -> str:
        return self.plan["key"]

    def changed(self, file: str, change: Change) -> Seed:
        made = copy.deepcopy(self)
        change(getattr(made, file))
        return made

    def files(self) -> tuple[bytes, bytes]:
        return json.dumps(self.manifest).encode(), json.dumps(self.plan).encode()

    def sealed(self, bundle: Mapping[str, bytes], manifest: bytes, plan: bytes) -> dict[str, bytes]:
        """Return the files of the seed's bundle with another manifest or plan, and the digests that they need."""
        own_manifest, own_plan = self.files()
        files, name = dict(bundle), plan_file(self.key)
        if plan != own_plan:
            files[name] = plan
            manifest = _listing(manifest, name, plan)
        if self.model and manifest != own_manifest:
            further, own = model_file(self.model), json.dumps(self.own).encode()
            files[further] = manifest
            manifest = _listing(_listing(own, name, files[name]), further, manifest)
        if manifest != own_manifest:
            files |= {MANIFEST: manifest, DIGEST: digest_line(manifest)}
        return files


def _listing(manifest: bytes, name: str, content: bytes) -> bytes:
    """Return the manifest with the size and the hashes of a file, unless what it is has no place for them."""
    root = _parsed(manifest)
    if not isinstance(root, dict) or not isinstance(root.get("files"), dict):
        return manifest
    root["files"][name] = file_record(content)
    return json.dumps(root).encode()


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def put(value: Any, *path: Any) -> Change:
    """Replace what is at a path."""

    def change(root: Any) -> None:
        for name in path[:-1]:
            root = root[name]
        root[path[-1]] = value

    return change


def drop(*path: Any) -> Change:
    def change(root: Any) -> None:
        for name in path[:-1]:
            root = root[name]
        del root[path[-1]]

    return change


def twice(*path: Any) -> Change:
    """Repeat the first item of a list."""

    def change(root: Any) -> None:
        for name in path:
            root = root[name]
        root.append(copy.deepcopy(root[0]))

    return change


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value, of lists and of objects with keys for names that of the first item."""
    if path:
        yield path
    if isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))
    elif isinstance(value, dict):
        named = path and path[-1] in ("files", "weights", "shapes", "dynamic", "producer", "limits", "alternatives")
        for name in sorted(value)[: 1 if named else None]:
            yield from places(value[name], (*path, name))


def structural(seed: Seed) -> Iterator[tuple[str, str, Change]]:
    """Yield a name, the file and the change for every field and every wrong value, and for every field without it."""
    for file in ("manifest", "plan"):
        for path in places(getattr(seed, file)):
            text = ".".join(map(str, path))
            yield f"{file}.{text} missing", file, drop(*path)
            for number, value in enumerate(WRONG):
                yield f"{file}.{text} = wrong {number}", file, put(value, *path)


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


def mutated(seed: Seed, generator: random.Random, *, programs: bool = False) -> tuple[bytes, bytes]:
    """Return the files with one to four random changes of their values, or of their bytes.

    With ``programs`` two of three changes are of the manifest's programs.
    """
    made = copy.deepcopy(seed)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        root = made.manifest.get("programs") if programs and generator.random() < 2 / 3 else None
        _mutate(made, generator, root if isinstance(root, list) and root else None)
    manifest, plan = made.files()
    if generator.random() < 0.1:
        plan = _with_other_bytes(plan, generator)
    elif generator.random() < 0.1:
        manifest = _with_other_bytes(manifest, generator)
    return manifest, plan


def _mutate(seed: Seed, generator: random.Random, root: Any = None) -> None:
    """Change something below ``root``, or anywhere."""
    root = getattr(seed, generator.choice(("manifest", "plan", "plan"))) if root is None else root
    container, name = _choose(root, generator)
    kind = generator.randrange(6)
    value = container[name]
    if kind == 0:
        container[name] = copy.deepcopy(generator.choice(WRONG))
    elif kind == 1:
        del container[name]
    elif kind == 2 and isinstance(value, (int, float)) and abs(value) < 1 << 60:
        container[name] = generator.choice(
            (value + 1, value - 1, value * 2, -value, value * 16, value // 2, float(value))
        )
    elif kind == 3:
        source, place = _choose(getattr(seed, generator.choice(("manifest", "plan"))), generator)
        container[name] = copy.deepcopy(source[place])
    elif kind == 4 and isinstance(container, list):
        container.insert(name, copy.deepcopy(value))
    elif isinstance(container, dict):
        container[generator.choice(("__proto__", "constructor", "novelty", "0", "n", "y"))] = copy.deepcopy(value)
    else:
        container[name] = ["max", value, generator.choice((0, 4, "n", 1 << 30))]


def _choose(root: Any, generator: random.Random) -> tuple[Any, Any]:
    """Return a container and a name in it, at a random depth."""
    while True:
        names = list(root) if isinstance(root, dict) else list(range(len(root)))
        if not names:
            return {"": None}, ""
        name = generator.choice(names)
        if not isinstance(root[name], (dict, list)) or not root[name] or generator.random() < 0.15:
            return root, name
        root = root[name]


_PIECES = (b"NaN", b"Infinity", b"1e999", b"-0", b"1e3", b"9007199254740993", b'"\\ud800"', b"\xef\xbb\xbf", b"\xff",
           b'{"a":1,"a":2}', b"\x00", b"[" * 200, b"-", b"01", b'"\\u0000"', b"1" * 5000, b" ", b"\n")  # fmt: skip


def _with_other_bytes(content: bytes, generator: random.Random) -> bytes:
    start = generator.randrange(len(content))
    kind = generator.randrange(3)
    if kind == 0:
        return content[:start]
    if kind == 1:
        return content[:start] + bytes([content[start] ^ 1 << generator.randrange(8)]) + content[start + 1 :]
    end = start
    if generator.random() < 0.7:  # instead of a number
        digits = [
            index for index in range(start, min(start + 400, len(content))) if content[index : index + 1].isdigit()
        ]
        start = end = digits[0] if digits else start
        while end < len(content) and content[end : end + 1].isdigit():
            end += 1
    return content[:start] + generator.choice(_PIECES) + content[end:]
