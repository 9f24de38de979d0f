"""The program of a bundle: the steps of a model that is no single plan, as data.

Values have names, each of which one step defines.  ``docs/guide/bundles.md`` says what each step does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

from ..plan.dimension import DimExpr
from ..plan.plan import Port
from ..plan.record import record
from ..plan.size_range import SizeRange
from .format import canonical_json


@record
class StageStep:
    """Runs the plan ``key``: ``software`` is the one for adapters that compute on the CPU.

    ``inputs`` are values, and ports of the plan, of the same names, ``outputs`` its ports and values that are defined.
    ``sizes`` are further inputs of the plan: each takes no elements, but as many rows as the symbol says.
    """

    key: str
    software: str | None
    inputs: tuple[str, ...]
    sizes: Mapping[str, str]
    outputs: tuple[Port, ...]


@record
class ReadStep:
    """Reads the integers of ``value``: each is the size of the symbol at its position."""

    value: str
    symbols: tuple[str, ...]


@record
class AliasStep:
    """Gives the value ``source`` another name."""

    value: str
    source: str


@record
class BranchStep:
    """Reads the one element of ``condition`` and goes on with the steps of one side; the last step of its block."""

    condition: str
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@record
class CompareStep:
    """Compares two sizes and goes on with the steps of one side; the last step of its block.

    ``test`` is ``equal``, or ``less`` for a ``left`` size that is less than the ``right`` one.
    """

    test: str
    left: DimExpr
    right: DimExpr
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@record
class CarriedValue:
    """A value of a loop's body that is ``initial`` in the first iteration, and what ``following`` was at the end of the
    iteration before in the others.  The loop defines ``result`` as the last one; None if nothing reads it.

    ``symbols`` are those of its axes that change from iteration to iteration, None for others; empty if none does.
    """

    name: str
    initial: str
    following: str
    result: str | None
    symbols: tuple[str | None, ...] = ()


@record
class StackedValue:
    """A value of a loop's body, of this type, and the value that the loop defines: those of all iterations along a new
    first axis.
    """

    row: str
    result: str
    dtype: str
    shape: tuple[DimExpr, ...]


@record
class IterateStep:
    """Runs ``steps`` for each iteration, ``count`` times at most; None stands for the upper bound of ``symbol``.

    ``condition`` and ``going`` are bools that are read if there are any, the first before the loop, the other behind
    each iteration: the loop ends where one is false.  ``symbol`` gets the number of iterations; None if that is
    ``count``.  ``iteration`` is a value of the body, the number of the iteration as an int64.
    """

    count: DimExpr | None
    symbol: str | None
    condition: str | None
    going: str | None
    iteration: str
    carried: tuple[CarriedValue, ...]
    stacked: tuple[StackedValue, ...]
    steps: tuple[Step, ...]


@record
class RefuseStep:
    """Ends the run with an error: the shapes do not fit this side of a branch.  The last step of its block."""

    reason: str


Step = Union[StageStep, ReadStep, AliasStep, BranchStep, CompareStep, IterateStep, RefuseStep]


def step_text(step: Step) -> str:
    """Return a step as text for errors: its kind, and the value that it defines or reads first."""
    data = _to_json(step)
    if isinstance(step, StageStep):
        return f"stage of '{step.outputs[0].name if step.outputs else step.key}'"
    name = next(data[field] for field in ("iteration", "value", "condition", "test", "reason") if field in data)
    return f"{data['kind']} of '{name}'"


@record(slots=False)
class ProgramRecord:
    """A program for inputs of these ``shapes``: numbers, or names of dynamic dimensions; its ``key`` is unique.

    ``ranges`` are those of the symbols that its steps read.
    """

    key: str
    shapes: Mapping[str, tuple[int | str, ...]]
    ranges: Mapping[str, SizeRange]
    steps: tuple[Step, ...]

    @classmethod
    def of(
        cls, shapes: Mapping[str, tuple[int | str, ...]], ranges: Mapping[str, SizeRange], steps: tuple[Step, ...]
    ) -> ProgramRecord:
        """Return a program whose key is the digest of what it consists of."""
        content = cls("", shapes, ranges, steps).to_json()
        return cls(hashlib.sha256(canonical_json(content)).hexdigest(), shapes, ranges, steps)

    @property
    def stages(self) -> Iterator[StageStep]:
        """All stages, those of both sides of a branch too."""
        return _stages(self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "shapes": {name: list(dims) for name, dims in self.shapes.items()},
            "ranges": {name: sizes._asdict() for name, sizes in self.ranges.items()},
            "steps": [_to_json(step) for step in self.steps],
        }

    @classmethod
    def from_json(cls, data: Any) -> ProgramRecord:
        """Decode a JSON value that was checked (:mod:`.structure`, :mod:`.relations`)."""
        return cls(
            data["key"],
            {name: tuple(dims) for name, dims in data["shapes"].items()},
            {name: SizeRange(item["low"], item["high"], item["step"]) for name, item in data["ranges"].items()},
            _steps(data["steps"]),
        )


def _stages(steps: Sequence[Step]) -> Iterator[StageStep]:
    for step in steps:
        if isinstance(step, StageStep):
            yield step
        elif isinstance(step, (BranchStep, CompareStep)):
            yield from _stages(step.then)
            yield from _stages(step.otherwise)
        elif isinstance(step, IterateStep):
            yield from _stages(step.steps)


def _to_json(step: Step) -> dict[str, Any]:
    if isinstance(step, StageStep):
        software = {} if step.software is None else {"software": step.software}
        outputs = [{"name": port.name, "dtype": port.dtype, "shape": list(port.shape)} for port in step.outputs]
        ports = {"inputs": list(step.inputs), "sizes": dict(step.sizes), "outputs": outputs}
        return {"kind": "stage", "plan": step.key, **software, **ports}
    if isinstance(step, ReadStep):
        return {"kind": "read", "value": step.value, "symbols": list(step.symbols)}
    if isinstance(step, AliasStep):
        return {"kind": "alias", "value": step.value, "source": step.source}
    if isinstance(step, RefuseStep):
        return {"kind": "refuse", "reason": step.reason}
    if isinstance(step, IterateStep):
        return {
            "kind": "loop",
            **{name: getattr(step, name) for name in ("count", "symbol", "condition", "going", "iteration")},
            "carried": [
                {
                    "name": each.name,
                    "initial": each.initial,
                    "next": each.following,
                    "result": each.result,
                    **({"symbols": list(each.symbols)} if each.symbols else {}),
                }
                for each in step.carried
            ],
            "stacked": [
                {"row": each.row, "result": each.result, "dtype": each.dtype, "shape": list(each.shape)}
                for each in step.stacked
            ],
            "steps": [_to_json(each) for each in step.steps],
        }
    sides = {"true": [_to_json(each) for each in step.then], "false": [_to_json(each) for each in step.otherwise]}
    if isinstance(step, CompareStep):
        return {"kind": "compare", "test": step.test, "left": step.left, "right": step.right, **sides}
    return {"kind": "branch", "condition": step.condition, **sides}


def _steps(items: Any) -> tuple[Step, ...]:
    return tuple(_READERS[item["kind"]](item) for item in items)


def _stage(item: Any) -> StageStep:
    outputs = tuple(Port(port["name"], port["dtype"], tuple(port["shape"])) for port in item["outputs"])
    return StageStep(item["plan"], item.get("software"), tuple(item["inputs"]), item["sizes"], outputs)


def _loop(item: Any) -> IterateStep:
    carried = (
        CarriedValue(each["name"], each["initial"], each["next"], each["result"], tuple(each.get("symbols", ())))
        for each in item["carried"]
    )
    stacked = (
        StackedValue(each["row"], each["result"], each["dtype"], tuple(each["shape"])) for each in item["stacked"]
    )
    count, symbol, condition, going = (item[name] for name in ("count", "symbol", "condition", "going"))
    body = item["iteration"], tuple(carried), tuple(stacked), _steps(item["steps"])
    return IterateStep(count, symbol, condition, going, *body)


_READERS: Mapping[str, Any] = {
    "stage": _stage,
    "read": lambda item: ReadStep(item["value"], tuple(item["symbols"])),
    "alias": lambda item: AliasStep(item["value"], item["source"]),
    "loop": _loop,
    "refuse": lambda item: RefuseStep(item["reason"]),
    "branch": lambda item: BranchStep(item["condition"], _steps(item["true"]), _steps(item["false"])),
    "compare": lambda item: CompareStep(
        item["test"], item["left"], item["right"], _steps(item["true"]), _steps(item["false"])
    ),
}
