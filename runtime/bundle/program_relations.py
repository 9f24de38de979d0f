"""The relations between the fields of a program: what its steps read is there, and what they define is new.

``runtime/web/shaderloom/program_relations.js`` has the same checks in the same order, by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Union

from ..plan.plan import MOST_ITERATIONS, MOST_WORK
from ..plan.record import record
from ..plan.size_bounds import LARGEST, Bounds
from .format import plan_file
from .shape_relations import Path, byte_bounds, check_range, check_shapes, size_bounds
from .structure import Refusal, in_order, schema

#: Element types of integers that a run may read
_INTEGERS = ("int32", "int64", "uint8", "int8", "uint16", "int16", "uint32", "uint64")


#: The fields with the steps inside of a step, by its kind
_INNER = {"branch": ("true", "false"), "compare": ("true", "false"), "loop": ("steps",)}

#: Kinds of steps that no other step follows
_LAST = ("branch", "compare", "refuse")

#: Element type and shape, None where they are open
PortType = tuple[Union[str, None], Any]

#: Types of the number of an iteration, and of the condition on which a loop goes on
_NUMBER: PortType = ("int64", [])
_CONDITION: PortType = ("bool", [])


def check_programs(manifest: Any, plan_keys: set[str]) -> None:
    """Raise :class:`Refusal` for the first relation that does not hold in the programs of a manifest.

    ``plan_keys`` are those of its plans that are no stages; no stage and no program may have one of them.
    """
    programs, total = manifest.get("programs", ()), 0
    if not manifest["plans"] and not programs:
        raise Refusal("plans", "has neither a plan nor a program", "plans")
    seen = set(plan_keys)
    for index, program in enumerate(programs):
        path: Path = ("programs", index)
        if program["key"] in seen:
            raise Refusal("plan twice", "is listed twice", *path)
        seen.add(program["key"])
        total += sum(1 for _ in steps_of(program["steps"]))
        if total > schema()["steps"]:
            raise Refusal("steps", f"has more than {schema()['steps']:,} steps with the programs before it", *path)
        _ProgramCheck(manifest, program, plan_keys).run(path)


def steps_of(steps: Any) -> Iterator[Any]:
    """Yield all steps, those inside of branches and loops too."""
    for step in steps:
        yield step
        for inner in inner_steps(step):
            yield from steps_of(inner)


def inner_steps(step: Any) -> list[Any]:
    """Return the lists of steps that a step has."""
    return [step[name] for name in _INNER.get(step["kind"], ())]


@record(slots=False)
class PlanUse:
    """What a plan must be: element types and shapes of its ports, None where they are open, and ranges of symbols."""

    inputs: Mapping[str, PortType]
    outputs: Mapping[str, PortType]
    ranges: Mapping[str, Any]


def stage_uses(manifest: Any, key: str) -> Iterator[PlanUse]:
    """Yield what the stages with the plan ``key`` ask of it."""
    for program in manifest.get("programs", ()):
        for step, types in _typed(program["steps"], _input_types(manifest, program)):
            if step["kind"] == "stage" and key in (step["plan"], step.get("software")):
                sizes: dict[str, PortType] = {port: ("uint8", [symbol, 0]) for port, symbol in step["sizes"].items()}
                inputs = {name: types[name] for name in step["inputs"]}
                outputs = {port["name"]: (port["dtype"], port["shape"]) for port in step["outputs"]}
                ranges = {name: _sizes(each) for name, each in program["ranges"].items()}
                yield PlanUse({**inputs, **sizes}, outputs, {**manifest["dynamic"], **ranges})


def _sizes(integers: Any) -> Any:
    """Return the range of the sizes of a symbol that stands for integers: without what is below 0."""
    below = min(integers["low"], 0)
    return {**integers, "low": integers["low"] - below, "high": integers["high"] - below}


def _input_types(manifest: Any, program: Any) -> dict[str, PortType]:
    dtypes = {port["name"]: port["dtype"] for port in (*manifest["inputs"], *manifest["overridable"])}
    return {name: (dtypes[name], shape) for name, shape in program["shapes"].items()}


def _typed(steps: Any, types: dict[str, PortType]) -> Iterator[tuple[Any, dict[str, PortType]]]:
    """Yield the steps of a checked program, each with the types of the values that are there before it."""
    before = len(types)
    for step in steps:
        yield step, types
        if step["kind"] in ("branch", "compare"):
            yield from _typed(step["true"], types)
            yield from _typed(step["false"], types)
        elif step["kind"] == "loop":
            inside = len(types)
            types[step["iteration"]] = _NUMBER
            types.update((each["name"], _carried_type(each, types)) for each in step["carried"])
            yield from _typed(step["steps"], types)
            _forget(types, inside)
            types.update(_loop_results(step, types))
        elif step["kind"] == "stage":
            types.update((port["name"], (port["dtype"], port["shape"])) for port in step["outputs"])
        elif step["kind"] == "alias":
            types[step["value"]] = types[step["source"]]
    _forget(types, before)


def _loop_results(step: Any, types: Mapping[str, PortType]) -> Iterator[tuple[str, PortType]]:
    """Yield what a loop defines, with its types."""
    for each in step["carried"]:
        if each["result"] is not None:
            yield each["result"], _carried_type(each, types)
    rows = step["count"] if step["symbol"] is None else step["symbol"]
    for each in step["stacked"]:
        yield each["result"], (each["dtype"], [rows, *each["shape"]])


def _carried_type(carried: Any, types: Mapping[str, PortType]) -> PortType:
    """Return the type of a carried value: that of the initial one, with symbols for the axes that change."""
    dtype, shape = types[carried["initial"]]
    symbols = carried.get("symbols", [None] * len(shape))
    return dtype, [size if symbol is None else symbol for size, symbol in zip(shape, symbols)]


def _fits(type_: PortType, value: PortType) -> bool:
    """Return whether a value has a type, of which an element type, a shape and an axis may be open: None."""
    (dtype, shape), (other, sizes) = type_, value
    if dtype not in (None, other) or (shape is not None and len(shape) != len(sizes)):
        return False
    return shape is None or all(size in (None, actual) for size, actual in zip(shape, sizes))


def _forget(items: dict[str, Any], before: int) -> None:
    """Remove all but the first ``before`` items."""
    while len(items) > before:
        items.popitem()


class _ProgramCheck:
    """The checks of one program, along its steps: which values and symbols are there."""

    def __init__(self, manifest: Any, program: Any, plan_keys: set[str]) -> None:
        self._manifest = manifest
        self._program = program
        self._plan_keys = plan_keys
        self._values: dict[str, PortType] = {}  #: those that are there, in the order of their definitions
        self._symbols: dict[str, Bounds] = {}  #: those that have a size

    def run(self, path: Path) -> None:
        manifest, program = self._manifest, self._program
        check_shapes(manifest, program["shapes"], path)
        for name in in_order(program["ranges"]):
            if name in manifest["dynamic"]:
                raise Refusal("names", "is a dynamic dimension, too", *path, "ranges", name)
            check_range(program["ranges"][name], (*path, "ranges", name))
        self._values = _input_types(manifest, program)
        for dim in (dim for shape in program["shapes"].values() for dim in shape if isinstance(dim, str)):
            self._symbols[dim] = manifest["dynamic"][dim]["low"], manifest["dynamic"][dim]["high"]
        outputs = {port["name"]: (port["dtype"], None) for port in manifest["outputs"]}
        self._check_steps(program["steps"], outputs, (*path, "steps"))

    def _check_steps(self, steps: Any, results: Mapping[str, PortType], path: Path) -> int:
        """Check the steps to the end of their block, where ``results`` are values of these types; afterwards only what
        was there before them is there.  Return how many steps they carry out at least.
        """
        values, symbols, least = len(self._values), len(self._symbols), 0
        for index, step in enumerate(steps):
            place = (*path, index)
            if step["kind"] in _LAST and index + 1 < len(steps):
                raise Refusal("last step", "is not the last step", *place)
            if step["kind"] in ("branch", "compare"):
                self._check_decision(step, place)
                sides = [self._check_steps(step[side], results, (*place, side)) for side in ("true", "false")]
                least += min(sides)
            elif step["kind"] == "loop":
                least += self._check_loop(step, place)
            elif step["kind"] == "stage":
                self._check_stage(step, place)
            elif step["kind"] == "read":
                self._require_read(step["value"], len(step["symbols"]), _INTEGERS, (*place, "value"))
                for at, symbol in enumerate(step["symbols"]):
                    self._define_symbol(symbol, (*place, "symbols", at), least=-LARGEST)
            elif step["kind"] == "alias":
                self._require(step["source"], (*place, "source"))
                self._define(step["value"], self._values[step["source"]], (*place, "value"))
            least += 1
            if least > MOST_WORK:
                raise Refusal("work", f"ends what carries out more than {MOST_WORK:,} steps in each run", *place)
        if not steps or steps[-1]["kind"] not in _LAST:
            self._check_results(results, path)
        _forget(self._values, values)
        _forget(self._symbols, symbols)
        return least

    def _check_decision(self, step: Any, path: Path) -> None:
        """Check what a step decides by: a condition, or sizes, which may be negative here."""
        if step["kind"] == "branch":
            self._require_read(step["condition"], 1, ("bool",), (*path, "condition"))
            return
        for name in ("left", "right"):
            size_bounds(step[name], self._symbols, (*path, name), is_signed=True)

    def _define_symbol(self, symbol: str, path: Path, least: int = 0) -> None:
        integers = self._program["ranges"].get(symbol)
        if integers is None or symbol in self._symbols or integers["low"] < least:
            raise Refusal("read symbol", "has no range, or is read twice", *path)
        sizes = _sizes(integers)
        self._symbols[symbol] = sizes["low"], sizes["high"]

    def _check_results(self, results: Mapping[str, PortType], path: Path) -> None:
        for name, type_ in results.items():
            value = self._values.get(name)
            if value is None or not _fits(type_, value):
                raise Refusal("result", f"ends without '{name}', or with one of another type", *path)

    def _check_loop(self, step: Any, path: Path) -> int:
        """Check a loop: how often it runs, what it carries and gives, and its body.  Return how many iterations and
        steps it carries out at least.
        """
        count: Bounds = (0, 0)
        if step["count"] is not None:
            count = size_bounds(step["count"], self._symbols, (*path, "count"))
        elif step["symbol"] is None:
            raise Refusal("loop", "has no bound of its iterations", *path)
        if count[1] > MOST_ITERATIONS:
            raise Refusal("iterations", f"has more than {MOST_ITERATIONS:,} iterations", *path, "count")
        if step["symbol"] is None and (step["condition"] is not None or step["going"] is not None):
            raise Refusal("loop", "has a number of iterations that only a symbol can have", *path)
        if step["condition"] is not None:
            self._require_read(step["condition"], 1, ("bool",), (*path, "condition"))
        for at, each in enumerate(step["carried"]):
            self._require(each["initial"], (*path, "carried", at, "initial"))
        inside = len(self._values)
        self._define(step["iteration"], _NUMBER, (*path, "iteration"))
        results: dict[str, PortType] = {}
        for at, each in enumerate(step["carried"]):
            dtype, shape = self._values[each["initial"]]
            symbols = each.get("symbols", [None] * len(shape))
            if len(symbols) != len(shape):
                raise Refusal("carried", "has symbols of another number of axes", *path, "carried", at, "symbols")
            self._define(each["name"], _carried_type(each, self._values), (*path, "carried", at, "name"))
            following = dtype, [size if symbol is None else None for size, symbol in zip(shape, symbols)]
            if results.setdefault(each["next"], following) != following:
                raise Refusal("carried", "is carried as values of two types", *path, "carried", at, "next")
        for at, each in enumerate(step["stacked"]):
            all_rows = {**each, "shape": [*each["shape"], MOST_ITERATIONS]}
            byte_bounds(all_rows, self._symbols, (*path, "stacked", at))
            if schema()["dtypes"][each["dtype"]] % 4:
                raise Refusal("row", "is not made of whole words", *path, "stacked", at)
            row = each["dtype"], each["shape"]
            if results.setdefault(each["row"], row) != row:
                raise Refusal("row", "has another type than what is carried", *path, "stacked", at)
        if step["going"] is not None and results.setdefault(step["going"], _CONDITION) != _CONDITION:
            raise Refusal("loop", "goes on by a value of another type than bool", *path, "going")
        for at, each in enumerate(step["carried"]):
            for axis, symbol in enumerate(each.get("symbols", ())):
                if symbol is not None:
                    self._define_symbol(symbol, (*path, "carried", at, "symbols", axis))
            dtype, shape = self._values[each["name"]]
            byte_bounds({"dtype": dtype, "shape": shape}, self._symbols, (*path, "carried", at))
        work = 1 + self._check_steps(step["steps"], results, (*path, "steps"))
        _forget(self._values, inside)
        if step["symbol"] is not None:
            self._define_symbol(step["symbol"], (*path, "symbol"))
            if self._symbols[step["symbol"]][1] > MOST_ITERATIONS:
                raise Refusal("iterations", f"has more than {MOST_ITERATIONS:,} iterations", *path, "symbol")
        for name, type_ in _loop_results(step, self._values):
            self._define(name, type_, path)
        ends_early = step["condition"] is not None or step["going"] is not None
        return 0 if ends_early else max(count[0], 0) * work

    def _check_stage(self, step: Any, path: Path) -> None:
        for key in (step["plan"], step.get("software", step["plan"])):
            if key in self._plan_keys:
                raise Refusal("plan twice", "is a plan of its own, too", *path)
            if plan_file(key) not in self._manifest["files"]:
                raise Refusal("listed", f"needs '{plan_file(key)}', which is not listed", *path)
        for at, name in enumerate(step["inputs"]):
            self._require(name, (*path, "inputs", at))
        for port in in_order(step["sizes"]):
            if step["sizes"][port] not in self._symbols or port in self._values:
                raise Refusal("size", "is of no symbol that is there, or a value, too", *path, "sizes", port)
        for at, port in enumerate(step["outputs"]):
            byte_bounds(port, self._symbols, (*path, "outputs", at))
            self._define(port["name"], (port["dtype"], port["shape"]), (*path, "outputs", at))

    def _require(self, name: str, path: Path) -> None:
        if name not in self._values:
            raise Refusal("value", "is no value that is there", *path)

    def _require_read(self, name: str, count: int, dtypes: tuple[str, ...], path: Path) -> None:
        """Check that a value that is there has ``count`` elements of one of these types, whatever the run."""
        self._require(name, path)
        dtype, shape = self._values[name]
        elements = 1
        for size in shape:
            elements = elements * size if isinstance(size, int) and elements * size <= schema()["reads"] else -1
        if dtype not in dtypes or elements != count:
            raise Refusal("read", "has another type or number of elements than what is read", *path)

    def _define(self, name: str, type_: PortType, path: Path) -> None:
        if name in self._values:
            raise Refusal("value twice", "is there already", *path)
        self._values[name] = type_
