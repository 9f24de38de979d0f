"""Drawing one node: types from the schema, operands and attributes from the operator's rule or, without one, generic.

Without a rule the first operand is any value of an allowed type, further ones broadcast against it, and attributes
take their defaults or other ordinary values.  That is right for elementwise operators and for most with one operand.
A *rule* is a function that gets a :class:`NodeDraw` and returns operands and attributes by their names in the schema,
as far as it cares: values, arrays (which become constants, now and then inputs), numbers.  A name that the version at
hand has as an attribute becomes one, whichever form the newest version has; ``None`` omits.  Names that the version
lacks must be asked for with ``has``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from .forms import NARROW, Attribute, Form, Formal
from .oracle import Known, dtype_of, onnx_type
from .source import Source, Unsuitable, choose, rarely

if TYPE_CHECKING:
    from .growth import Growth

Rule = Callable[["NodeDraw"], dict[str, Any]]

#: (domain, operator) -> rule
RULES: dict[tuple[str, str], Rule] = {}

MOST_ELEMENTS = 4096
SIZES = (1, 2, 3, 4, 5, 8, 1, 2, 3, 4, 7, 12, 0, 33)

#: attributes with another default than the one drawn would ask for something else than numbers, or for nothing at all
NEVER_DRAWN = frozenset(
    {"stash_type", "training_mode", "precision", "output_dtype", "softmax_precision", "seed", "to", "dtype", "p"}
    | {"round_mode", "saturate", "momentum", "consumed_inputs", "broadcast", "is_test", "sample_size"}
)
#: what strings may be
CHOICES: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "direction": ("LEFT", "RIGHT"),
    "mode": ("constant", "reflect", "edge", "wrap"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
}
#: elements of fresh leaves, where not every number is in the domain of the function
RANGES: dict[str, tuple[float, float]] = {
    "Log": (0.25, 4),
    "Sqrt": (0, 4),
    "Acosh": (1.25, 4),
    "Asin": (-1, 1),
    "Acos": (-1, 1),
    "Atanh": (-0.75, 0.75),
    "Tan": (-1, 1),
    "Reciprocal": (0.5, 4),
    "ReduceLogSum": (0.25, 4),
    "LpNormalization": (0.5, 2),
}


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a rule for operators."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[domain, name] = function
        return function

    return add


class NodeDraw:
    """A node that is being drawn, of an operator at an opset."""

    def __init__(self, growth: Growth, form: Form) -> None:
        self.growth = growth
        self.form = form
        self.source: Source = growth.source
        self.bound: dict[str, str] = {}  #: type parameter -> element type

    # -- decisions -------------------------------------------------------------------------------------------------

    def integer(self, low: int, high: int) -> int:
        if low > high:
            raise Unsuitable
        return self.source.integer(low, high)

    def choose(self, *options: Any) -> Any:
        return choose(self.source, options)

    def flip(self) -> bool:
        return bool(self.source.integer(0, 1))

    def rarely(self, of: int = 4) -> bool:
        return rarely(self.source, of)

    def size(self) -> int:
        return choose(self.source, SIZES)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        """Small sizes, now and then one of nothing or a larger one; seldom of rank 5 or 6."""
        if high == 4 and self.rarely(12):
            high, low = 6, 5
        sizes = tuple(self.size() for _ in range(self.integer(low, high)))
        return sizes if math.prod(sizes) <= MOST_ELEMENTS else tuple(min(size, 3) for size in sizes)

    def axis(self, rank: int, *, negative: bool = True) -> int:
        """An axis, counted from the end now and then where the version allows it."""
        axis = self.integer(0, rank - 1)
        return axis - rank if negative and self.growth.opset >= 13 and self.flip() else axis

    # -- what the version has --------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.form.version

    def has(self, name: str) -> bool:
        return name in self.form.attributes or self.form.input(name) is not None

    def types(self, name: str) -> tuple[str, ...]:
        """Element types that the operand may have now."""
        formal = self.form.input(name)
        if formal is None:
            raise Unsuitable
        return (self.bound[formal.variable],) if formal.variable in self.bound else formal.types

    def bind(self, name: str, dtype: str) -> str:
        formal = self.form.input(name)
        if formal is None or dtype not in self.types(name):
            raise Unsuitable
        if not formal.variable.startswith("tensor("):
            self.bound[formal.variable] = dtype
        return dtype

    def type(self, name: str) -> str:
        """The operand's type, which is drawn now if nothing decided it: float32 mostly, where it may be."""
        types = self.types(name)
        wide = tuple(dtype for dtype in types if dtype not in NARROW)
        narrow = types[len(wide) :]
        if wide and narrow:
            types = narrow if self.growth.narrow and self.integer(0, 3) else wide
        if "float32" in types and self.flip():
            types = ("float32",)
        return self.bind(name, choose(self.source, types))

    # -- operands --------------------------------------------------------------------------------------------------

    def leaf(self, name: str, shape: Sequence[int], low: float | None = None, high: float | None = None) -> Known:
        """A new input or initializer for the operand ``name``, with elements in a range."""
        return self.growth.leaf(self.type(name), tuple(shape), low, high)

    def uneven(self, name: str, shape: Sequence[int]) -> Known:
        """A new input whose elements meet no tie of a rounding inside the operator; no other node reads it."""
        array = self.growth.generator.uniform(-1.7, 2.1, tuple(shape))
        return self.growth.add(array.astype(helper.tensor_dtype_to_np_dtype(onnx_type(self.type(name)))), False)

    def given(self, name: str, array: Any, *, constant: bool = False) -> Known:
        """An operand of exactly these elements: a constant mostly; no other node reads it."""
        array = np.asarray(array)
        own = dtype_of(array)
        dtype = self.bind(name, own) if own in self.types(name) else self.type(name)
        return self.growth.given(array.astype(helper.tensor_dtype_to_np_dtype(onnx_type(dtype))), constant=constant)

    def pick(
        self,
        name: str,
        suits: Callable[[Known], bool] = lambda value: True,
        shape: Callable[[], Sequence[int]] | None = None,
    ) -> Known:
        """An earlier value, preferably a recent one, or a new leaf (of the shape that ``shape`` draws)."""
        types = self.types(name)
        found = [value for value in self.growth.values if value.dtype in types and suits(value)]
        if found and self.integer(0, 7):
            value = found[max(len(found) - 1 - self.integer(0, 3), 0)]
            self.bind(name, value.dtype)
            return value
        for _ in range(4):
            sizes = tuple(shape() if shape is not None else self.shape())
            value = self.leaf(name, sizes, *RANGES.get(self.form.name, (None, None)))
            if suits(value):
                return value
        raise Unsuitable

    def ranked(self, name: str, low: int, high: int = 6, *, empty: bool = True) -> Known:
        """A value of a rank in a range; without ``empty`` of no size 0."""

        def shape() -> tuple[int, ...]:
            sizes = self.shape(low, max(low, min(high, 4)))
            return sizes if empty else tuple(max(size, 1) for size in sizes)

        return self.pick(name, lambda value: low <= value.rank <= high and (empty or 0 not in value.shape), shape)

    def partner(self, name: str, value: Known) -> Known:
        """A value that broadcasts against ``value``."""
        types = self.types(name)
        found = [
            other
            for other in self.growth.values
            if other.dtype in types and broadcast(other.shape, value.shape) is not None
        ]
        if found and self.flip():
            other = choose(self.source, found)
            self.bind(name, other.dtype)
            return other
        keep = self.integer(0, value.rank)
        shape = [1 if self.integer(0, 2) == 0 else size for size in value.shape[value.rank - keep :]]
        if keep == value.rank < 6 and self.rarely(5):
            shape = [self.integer(1, 3), *shape]
        if math.prod(shape) > MOST_ELEMENTS:
            raise Unsuitable
        return self.leaf(name, shape)

    # -- the node --------------------------------------------------------------------------------------------------

    def draw(self) -> tuple[list[Known | None], dict[str, Any], int]:
        """Operands in order, attributes, and how many outputs; raises :class:`Unsuitable`."""
        function = RULES.get((self.form.domain, self.form.name))
        found = dict(function(self)) if function is not None else {}
        outputs = found.pop("_outputs", None)
        operands: list[Known | None] = []
        for position, formal in enumerate(self.form.inputs):
            if formal.name in found:
                value = found.pop(formal.name)
                for each in value if isinstance(value, list) and formal.option == "Variadic" else [value]:
                    operands.append(self._operand(formal.name, each))
            elif function is None or formal.option == "Single":
                operands += self._generic(formal, operands, position)
            else:
                operands.append(None)
        while operands and operands[-1] is None:
            operands.pop()
        first = next((operand for operand in operands if operand is not None), None)
        attributes = {}
        for name, item in self.form.attributes.items():
            value = found.pop(name) if name in found else self._attribute(item, first, function is not None)
            if value is not None:
                attributes[name] = value
        if any(value is not None for value in found.values()):
            raise Unsuitable  # a name that this version lacks
        return operands, attributes, self._outputs() if outputs is None else outputs

    def _operand(self, name: str, value: Any) -> Known | None:
        return value if value is None or isinstance(value, Known) else self.given(name, value)

    def _generic(self, formal: Formal, before: list[Known | None], position: int) -> list[Known | None]:
        first = next((operand for operand in before if operand is not None), None)
        if formal.option == "Optional" and self.flip():
            return [None]
        if first is None:
            value = self.pick(formal.name)
            if formal.option != "Variadic":
                return [value]
            count = self.integer(1, 4) if not self.rarely(6) else self.integer(8, 13)
            return [value, *(self.partner(formal.name, value) for _ in range(count - 1))]
        return [self.partner(formal.name, first)]

    def _attribute(self, item: Attribute, first: Known | None, ruled: bool) -> Any:
        """A value for an attribute that the rule says nothing about; None for the default."""
        if item.required:
            value = self._value(item, first)
            if value is None:
                raise Unsuitable
            return value
        return self._value(item, first) if item.name not in NEVER_DRAWN and self.flip() else None

    def _value(self, item: Attribute, first: Known | None) -> Any:
        if item.name == "axis":
            if first is None or not first.rank:
                raise Unsuitable
            return self.axis(first.rank)
        if item.kind == "INT" and item.default in (0, 1):
            return self.integer(0, 1)
        if item.kind == "FLOAT" and item.name == "epsilon":
            return self.choose(1e-5, 1e-3, 0.1)
        if item.kind == "FLOAT":
            return self.choose(0.5, 0.25, 1.0, 1.5)
        if item.kind == "STRING" and item.name in CHOICES:
            return self.choose(*CHOICES[item.name])
        return None

    def _outputs(self) -> int:
        needed = sum(formal.option != "Optional" for formal in self.form.outputs)
        optional = len(self.form.outputs) - needed
        return needed + (self.integer(0, optional) if optional and self.rarely(3) else 0)


def broadcast(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(tuple(left), tuple(right))
    except ValueError:
        return None
