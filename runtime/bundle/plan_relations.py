"""The relations between the fields of a plan, and of a plan and its manifest.

``runtime/web/shaderloom/plan_relations.js`` has the same checks in the same order, by the same rules;
``tests/runtime/bundle/test_both_readers.py`` compares them.  Structures were checked before (:mod:`.structure`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..plan.plan import MOST_ITERATIONS, MOST_WORK, MOST_WORKGROUPS
from ..plan.size_bounds import Bounds, bounds_of
from .format import shader_file
from .program_relations import PlanUse, stage_uses
from .shape_relations import Path, byte_bounds, check_range, size_bounds
from .structure import Refusal, schema

#: The kinds of buffers that a call may bind with each access
_ACCESSIBLE = {
    "read": ("input", "output", "arena", "weight"),
    "read_write": ("output", "arena"),
    "uniform": ("symbols", "problem"),
    "iteration": ("iteration",),
}
#: Where an output may lie otherwise than in its buffer
_ALIASED = ("input", "output", "weight")
_LARGEST_NUMBER = (1 << 31) - 1


def check_plan(plan: Any, manifest: Any, key: str) -> None:
    """Raise :class:`Refusal` for the first relation that does not hold in the plan with a key of a manifest."""
    if plan["key"] != key:
        raise Refusal("plan key", "is another plan's", "key")
    _PlanCheck(plan, manifest, [*_plan_uses(manifest, key), *stage_uses(manifest, key)]).run()


def _plan_uses(manifest: Any, key: str) -> Iterator[PlanUse]:
    """Yield what the manifest asks of a plan that is the whole model."""
    dtypes = {port["name"]: port["dtype"] for port in (*manifest["inputs"], *manifest["overridable"])}
    for item in manifest["plans"]:
        if key in (item["key"], item.get("software")):
            inputs = {name: (dtypes[name], shape) for name, shape in item["shapes"].items()}
            outputs = {port["name"]: (port["dtype"], None) for port in manifest["outputs"]}
            yield PlanUse(inputs, outputs, manifest["dynamic"])


class _PlanCheck:
    """The checks of one plan.  ``buffers`` has the size of every buffer that it may name."""

    def __init__(self, plan: Any, manifest: Any, uses: Sequence[PlanUse]) -> None:
        self._plan = plan
        self._manifest = manifest
        self._uses = uses
        self._symbols: dict[str, tuple[int, int]] = {}
        self._buffers: dict[str, Bounds] = {}
        self._begun: set[str] = set()  #: outputs that begin as an input
        self._bound: set[str] = set()  #: buffers that calls bind

    def run(self) -> None:
        self._check_symbols()
        self._check_ports("inputs", "input")
        self._check_ports("outputs", "output")
        self._check_signature()
        for index, size in enumerate(self._plan["arenas"]):
            self._buffers[f"arena:{index}"] = self._padded(self._size(size, "arenas", index))
        self._check_weights()
        if self._plan["symbols"]:
            self._buffers["symbols"] = self._padded((4 * len(self._plan["symbols"]),) * 2)
        for index, problem in enumerate(self._plan.get("problems", ())):
            if any(abs(number) > _LARGEST_NUMBER for number in problem):
                raise Refusal("problem", "has a number of more than 32 bits", "problems", index)
            self._buffers[f"problem:{index}"] = self._padded((4 * len(problem),) * 2)
        self._check_kernels()
        self._check_states()
        self._check_calls()
        self._check_outputs()
        self._check_facts()

    def _size(self, value: Any, *path: str | int) -> Bounds:
        return size_bounds(value, self._symbols, path)

    def _padded(self, size: Bounds) -> Bounds:
        low, high = (max((value + 15) // 16 * 16, 16) for value in size)
        return low, high

    def _check_symbols(self) -> None:
        for index, symbol in enumerate(self._plan["symbols"]):
            path: Path = ("symbols", index)
            check_range(symbol, path)
            if symbol["high"] // symbol["step"] > _LARGEST_NUMBER:
                raise Refusal("range", "has sizes of more than 32 bits", *path)
            if symbol["name"] in self._symbols:
                raise Refusal("names", "is a symbol twice", *path)
            for use in self._uses:
                declared = use.ranges.get(symbol["name"])
                if declared is None or any(declared[name] != symbol[name] for name in ("low", "high", "step")):
                    raise Refusal("symbol range", "has another range in the manifest", *path)
            self._symbols[symbol["name"]] = (symbol["low"], symbol["high"])
        dims = {dim for port in self._plan["inputs"] for dim in port["shape"] if isinstance(dim, str)}
        for index, symbol in enumerate(self._plan["symbols"]):
            if symbol["name"] not in dims:
                raise Refusal("unfed symbol", "is a dimension of no input", "symbols", index)

    def _check_ports(self, field: str, kind: str) -> None:
        for index, port in enumerate(self._plan[field]):
            name = f"{kind}:{port['name']}"
            if name in self._buffers:
                raise Refusal("names", "is a name twice", field, index)
            self._buffers[name] = self._padded(byte_bounds(port, self._symbols, (field, index)))

    def _check_signature(self) -> None:
        """Check that inputs and outputs are those of the manifest."""
        for use in self._uses:
            for field, ports in (("inputs", use.inputs), ("outputs", use.outputs)):
                if {port["name"] for port in self._plan[field]} != set(ports):
                    raise Refusal("signature", f"has other {field} than the manifest says", field)
                for index, port in enumerate(self._plan[field]):
                    dtype, shape = ports[port["name"]]
                    if dtype not in (None, port["dtype"]) or shape not in (None, port["shape"]):
                        raise Refusal("signature", "has another type or shape than the manifest says", field, index)

    def _check_weights(self) -> None:
        for index, weight in enumerate(self._plan["weights"]):
            path: Path = ("weights", index)
            name, stored = f"weight:{weight['key']}", self._manifest["weights"].get(weight["key"])
            if name in self._buffers:
                raise Refusal("names", "is a weight twice", *path)
            if stored is None or stored["bytes"] != weight["bytes"]:
                raise Refusal("weight", "is not a weight of the manifest, or has another size there", *path)
            self._buffers[name] = (weight["bytes"],) * 2

    def _check_kernels(self) -> None:
        seen = set()
        for index, kernel in enumerate(self._plan["kernels"]):
            path: Path = ("kernels", index)
            if kernel["key"] in seen:
                raise Refusal("names", "is a kernel twice", *path)
            seen.add(kernel["key"])
            shader = self._manifest["files"].get(shader_file(kernel["key"]))
            if shader is None:
                raise Refusal("listed", f"needs '{shader_file(kernel['key'])}', which is not listed", *path)
            if shader["size"] > schema()["bytes"]["shader"]:
                raise Refusal("shader", f"has a shader of {shader['size']:,} bytes", *path)
            if min(kernel["workgroup"]) < 1:
                raise Refusal("workgroup", "has no invocations", *path, "workgroup")

    def _check_states(self) -> None:
        """Check the outputs that begin as inputs; no call and no alias may read such an input."""
        inputs, outputs = ({port["name"]: port for port in self._plan[field]} for field in ("inputs", "outputs"))
        for index, state in enumerate(self._plan["states"]):
            path: Path = ("states", index)
            begun, read = outputs.get(state["output"]), inputs.get(state["input"])
            if begun is None or state["output"] in self._begun:
                raise Refusal("output", "is no output of the plan, or one twice", *path)
            self._begun.add(state["output"])
            if read is None or self._buffers.pop(f"input:{state['input']}", None) is None:
                raise Refusal("state", "begins as no input of the plan, or as one that another is", *path)
            if (begun["dtype"], begun["shape"]) != (read["dtype"], read["shape"]):
                raise Refusal("state", "has another type or shape than its input", *path)

    def _check_calls(self) -> None:
        kernels = {kernel["key"]: kernel for kernel in self._plan["kernels"]}
        dispatches = 0
        for number, command in enumerate(self._plan["commands"]):
            dispatches += len(command["calls"]) * self._check_iterations(command, number)
            if dispatches > MOST_WORK:
                raise Refusal("work", f"has more than {MOST_WORK:,} dispatches in each run", "commands", number)
            for index, call in enumerate(command["calls"]):
                path: Path = ("commands", number, "calls", index)
                kernel = kernels.get(call["kernel"])
                if kernel is None:
                    raise Refusal("kernel", "names a kernel that the plan does not have", *path)
                if len(kernel["bindings"]) != len(call["ranges"]):
                    raise Refusal("bindings", "has another number of ranges than its kernel of bindings", *path)
                grid = [self._size(size, *path, "grid", axis) for axis, size in enumerate(call["grid"])]
                if math.prod(max(low, 0) for low, _ in grid) > MOST_WORKGROUPS:
                    raise Refusal("work", f"has more than {MOST_WORKGROUPS:,} workgroups", *path, "grid")
                for name in ("flops", "bytes"):
                    self._names(call[name], *path, name)
                self._check_ranges(kernel, call, any(size == (0, 0) for size in grid), path)

    def _check_iterations(self, command: Any, number: int) -> int:
        """Return how often a command runs at least, and make the buffer of a repeated one."""
        self._buffers.pop("iteration", None)
        if command["kind"] != "repeat":
            return 1
        count = self._size(command["count"], "commands", number, "count")
        if count[1] > MOST_ITERATIONS:
            raise Refusal("iterations", f"has more than {MOST_ITERATIONS:,} iterations", "commands", number, "count")
        self._buffers["iteration"] = (16, 16)
        return max(count[0], 0)

    def _names(self, value: Any, *path: str | int) -> None:
        """Check the symbols of a number that no run depends on."""
        try:
            bounds_of(value, self._symbols)
        except ValueError as error:
            raise Refusal("symbol", str(error), *path) from None

    def _check_span(self, item: Any, is_empty: bool, path: Path) -> None:
        buffer = self._buffers.get(item["buffer"])
        if buffer is None:
            raise Refusal("buffer", f"binds '{item['buffer']}', which the plan does not have", *path)
        self._bound.add(item["buffer"])
        offset, size = self._size(item["offset"], *path, "offset"), self._size(item["size"], *path, "size")
        if is_empty:
            return
        if offset[0] + size[0] > buffer[1] or size[1] < 1:
            raise Refusal("inside", "lies outside its buffer, or is empty", *path)
        if size[0] == size[1] and size[0] % 4:
            raise Refusal("words", "is not made of whole words", *path)

    def _check_ranges(self, kernel: Any, call: Any, is_empty: bool, path: Path) -> None:
        accesses: dict[str, str] = {}
        for at, (binding, item) in enumerate(zip(kernel["bindings"], call["ranges"])):
            place: Path = (*path, "ranges", at)
            self._check_span(item, is_empty, place)
            name, access = item["buffer"], binding["access"]
            if accesses.setdefault(name, access) != access:
                raise Refusal("access", "binds a buffer in two ways", *place)
            if name.partition(":")[0] not in _ACCESSIBLE[access]:
                raise Refusal("access", f"gives '{name}' the access '{access}', which it may not have", *place)

    def _check_outputs(self) -> None:
        outputs = {port["name"]: port for port in self._plan["outputs"]}
        settled = dict.fromkeys(self._begun, "")
        for index, constant in enumerate(self._plan["constants"]):
            path: Path = ("constants", index)
            port = outputs.get(constant["output"])
            if port is None or constant["output"] in settled:
                raise Refusal("output", "is no output of the plan, or one twice", *path)
            settled[constant["output"]] = ""
            if constant["dtype"] != port["dtype"] or constant["shape"] != port["shape"]:
                raise Refusal("constant", "has another type or shape than its output", *path)
            itemsize: int = schema()["dtypes"][constant["dtype"]]
            if _decoded(constant["data"]) != math.prod(constant["shape"]) * itemsize:
                raise Refusal("constant", "has another number of bytes than its shape", *path)
        for index, alias in enumerate(self._plan["aliases"]):
            path = ("aliases", index)
            if alias["output"] not in outputs or alias["output"] in settled:
                raise Refusal("output", "is no output of the plan, or one twice", *path)
            settled[alias["output"]] = alias["source"]
            held = self._buffers.get(alias["source"])
            if held is None or alias["source"].partition(":")[0] not in _ALIASED:
                raise Refusal("buffer", f"is an alias of '{alias['source']}', which the plan does not have", *path)
            size = self._size(alias["size"], *path, "size")
            needed = self._buffers[f"output:{alias['output']}"]
            if needed[0] > held[1] or size[0] > held[1]:
                raise Refusal("inside", "is larger than what it is an alias of", *path)
        ended: set[str] = set()
        for index, alias in enumerate(self._plan["aliases"]):
            source, chain = f"output:{alias['output']}", set[str]()
            while source.startswith("output:") and source not in ended:
                if source in chain:
                    raise Refusal("circle", "is an alias of itself", "aliases", index)
                chain.add(source)
                source = settled.get(source[7:], "")
            ended |= chain
        for field in ("constants", "aliases"):
            for index, item in enumerate(self._plan[field]):
                if f"output:{item['output']}" in self._bound:
                    raise Refusal("output", "is a constant or an alias, and a call binds it", field, index)

    def _check_facts(self) -> None:
        """Check that facts and notes are about calls and tensors that there are."""
        facts, notes = self._plan["facts"], self._plan["notes"]
        calls, tensors = sum(len(command["calls"]) for command in self._plan["commands"]), len(facts["tensors"])
        for index, tensor in enumerate(facts["tensors"]):
            for axis, size in enumerate(tensor["shape"]):
                self._names(size, "facts", "tensors", index, "shape", axis)
        if len(facts["calls"]) not in (0, calls):
            raise Refusal("facts", "has another number of calls than the plan", "facts", "calls")
        for index, call in enumerate(facts["calls"]):
            named = [*call["operands"], *call["also"], *([] if call["in_place"] is None else [call["in_place"]])]
            if max(named) >= tensors:
                raise Refusal("facts", "names a tensor that is not there", "facts", "calls", index)
        if len(notes["calls"]) not in (0, calls):
            raise Refusal("notes", "has another number of calls than the plan", "notes", "calls")


def _decoded(data: str) -> int:
    """Return the number of bytes of base64 data."""
    return len(data) // 4 * 3 - data[-2:].count("=")
