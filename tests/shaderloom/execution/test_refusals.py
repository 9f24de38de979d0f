"""What a refusal says, whatever is asked of any operator.

Each operator's first case is changed in one place: an attribute of its schema gets an invalid value, or an
operand another element type.  The model is then compiled, or refused with an error that names the node, its domain and
opset, and what is at fault; nothing else may happen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ops.registry import OpDef
from shaderloom.compiler.passes.expand import expand
from shaderloom.runtime.plan.errors import ShaderloomError, UnsupportedError

from ...fuzz.drawing.forms import drawn_definitions, newest_form
from ...op_cases import cases_of
from ...op_cases.case import Case, Tensor
from ...support.cases import OperatorCase

VALUES: dict[str, tuple[Any, ...]] = {
    "INT": (-1, 0, 99),
    "FLOAT": (float("nan"), -1e30),
    "STRING": ("nonsense",),
    "INTS": ([-3], [1, 2, 3, 4, 5, 6, 7]),
}
TYPES = ("float64", "bool", "uint16", "int4", "float8e5m2", "int64")


@dataclass(frozen=True)
class Change:
    definition: OpDef
    case: Case
    what: str  #: the attribute or operand that was changed
    is_attribute: bool

    def __str__(self) -> str:
        return f"{self.definition.domain}.{self.definition.name}: {self.what}"


def changes() -> Iterator[Change]:
    for definition in drawn_definitions():
        found = newest_form(definition.name, definition.domain)
        cases = cases_of(definition)
        if found is None or not cases:
            continue
        case = cases[0]
        for name, item in found[0].attributes.items():
            for value in VALUES.get(item.kind, ()):
                changed = replace(case, attributes={**case.attributes, name: value})
                yield Change(definition, changed, f"{name} = {value}", True)
        for position, tensor in enumerate(case.inputs):
            for dtype in TYPES if tensor is not None else ():
                assert tensor is not None
                inputs = list(case.inputs)
                inputs[position] = Tensor(tensor.shape or np.shape(tensor.data), dtype, 0, 1, constant=tensor.constant)
                yield Change(definition, replace(case, inputs=tuple(inputs)), f"input {position} of {dtype}", False)


def attempt(change: Change) -> ShaderloomError | None:
    """The refusal; None if the model was compiled."""
    operator = OperatorCase(change.definition, change.case, 0)
    model = operator.model()
    model.graph.node[0].name = "at"
    try:
        imported = load_model(model)
        shapes = {name: array.shape for name, array in operator.feeds.items()}
        expand(specialise(imported, bind_shapes(imported, shapes).shapes))
    except ShaderloomError as error:
        return error
    return None


def fault_of(change: Change) -> str | None:
    """What is wrong with the outcome; None if nothing is."""
    try:
        error = attempt(change)
    except Exception as error:  # that is the fault that is looked for
        return f"{type(error).__name__}: {error}"
    if error is None:
        return None
    text, op = str(error), change.definition.name
    if error.kind == "internal":
        return text
    named = f"at {op} 'at' (main node 0; {change.definition.domain or 'ai.onnx'} opset " in text
    if not named and not (
        error.origin is None and error.tensor and f"tensor '{error.tensor}': it has elements" in text
    ):
        return f"the node is not named: {text}"
    if error.hint is None and not error.remedy:
        return f"nothing says what to do: {text}"
    if isinstance(error, UnsupportedError) and (error.fault is None or error.fault not in text):
        return f"nothing is at fault: {text}"
    return None


@pytest.mark.slow
def test_a_refusal_is_complete_whatever_is_asked() -> None:
    faults = [f"{change}: {fault}" for change in changes() if (fault := fault_of(change)) is not None]
    assert not faults, "\n".join(faults)


def test_most_changes_are_refused() -> None:
    """The test above looks at refusals, not at models that are compiled whatever they ask."""
    sample = random.Random(7).sample(list(changes()), 300)
    assert sum(attempt(change) is not None for change in sample) > 150
