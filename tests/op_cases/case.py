"""Examples of operators: operands, attributes, and how exact the result is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """An operand of a case: random elements of this type and shape in [low, high], or exactly ``data``."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    low: float = -2.0
    high: float = 2.0
    data: Any = None
    constant: bool = False  #: an initializer of the test model instead of an input


@dataclass(frozen=True)
class Case:
    """One example of an operator: a model of one node, which the interpreter and every device run."""

    inputs: tuple[Tensor | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int | None = None  #: None: the newest that onnx ships
    version: int = 1  #: of the operator's own domain, where that is not ONNX's
    tolerance: float = 1e-5  #: largest error over the largest output


#: Cases by the name of their operator
Cases = Mapping[str, Sequence[Case]]
