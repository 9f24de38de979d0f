"""The operator registry: one :class:`OpDef` is the complete definition of an operator.

An operator is *lowered* in exactly one of four ways:

``expand``   a decomposition into other operators, run by the ``expand`` pass once shapes are known;
``element``  a scalar expression of its (broadcast) operands: elementwise operators;
``gather``   a scalar expression that reads its operands at computed coordinates: views, indexing, resizing.  With
             ``store_map`` it is also invertible and can be absorbed by its producer;
``family``   a kernel family (``compiler/kernels``): matrix product, convolution, pooling, reduction, ...

Besides, ``fold`` evaluates it on the host for shape arithmetic and small constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import UnsupportedError, close_to, nearest_first
from ...runtime.plan.record import record
from ..definitions import Definitions
from ..ir.graph import Node, Shape, Value
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim


@record
class NoAttributes:
    """For operators without attributes."""


class Read(Protocol):
    """Return the element of input ``position`` at logical ``coordinates`` (one per axis of that input)."""

    def __call__(self, position: int, coordinates: Sequence[Dim]) -> Expr: ...


class Builder(Protocol):
    """The interface by which a decomposition builds nodes; all of them get the origins of the expanded node."""

    def op(self, name: str, *inputs: Value | None, domain: str = "", **attributes: Any) -> Value:
        """Append a node with one output, inferring its type and shape."""
        ...

    def ops(self, name: str, *inputs: Value | None, domain: str = "", **attributes: Any) -> list[Value]:
        """Append a node with several outputs."""
        ...

    def constant(self, array: np.ndarray, name: str = "") -> Value:
        """Add a small inline constant."""
        ...

    def scalar(self, value: float | int | bool, like: Value) -> Value:
        """Add a rank-0 constant of the element type of ``like``."""
        ...


class SplitBuilder(Protocol):
    """The interface by which a split appends nodes to a program; values are referenced by name."""

    def apply(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Append a node with one output, and return the output's name."""
        ...

    def apply_to(self, outputs: Sequence[str], op: str, *inputs: str, domain: str = "", **attributes: Any) -> None:
        """Append a node that computes outputs of the operator that is split; the name "" omits an unused one."""
        ...

    def constant(self, array: np.ndarray) -> str:
        """Append a small constant, and return its name."""
        ...

    def joined(self, value: str) -> list[tuple[str, np.ndarray | None]]:
        """Return the operands that a Concat makes ``value`` of, or ``value`` alone, with the elements of constants."""
        ...

    def name(self, value: str, output: str) -> None:
        """Bind ``output``, an output of the operator that is split, to ``value``."""
        ...


Inferred = Sequence[tuple[DType, Shape]]
Infer = Callable[[Node], Inferred]
Expand = Callable[[Builder, Node], Sequence[Value]]
Element = Callable[[Node, Sequence[Expr]], Expr]
Gather = Callable[[Node, Sequence[Dim], Read], Expr]
Update = Callable[[Node, Sequence[Dim], Read], "tuple[Sequence[Dim], Expr]"]
StoreMap = Callable[[Node, Sequence[Dim]], Sequence[Dim]]
Fold = Callable[..., Any]
#: ``split(builder, inputs, outputs, attributes)`` writes the operator as nodes of a program
Split = Callable[[SplitBuilder, Sequence[str], Sequence[str], Any], None]


@dataclass(slots=True)
class RawNode:
    """A node as the file has it, while an adapter rewrites it to the newest form of its operator."""

    op: str
    domain: str
    version: int  #: the since_version of the schema that the model's opset selects
    inputs: list[str]  #: value names, "" for an omitted optional input
    outputs: list[str]
    attributes: dict[str, Any]
    add_constant: Callable[[np.ndarray], str]  #: makes an inline constant and gives its value name


Adapter = Callable[[RawNode], None]


@record(slots=False)
class Indices:
    """The declaration that an operand holds indices; :mod:`.index_rule` has the rule."""

    position: int  #: of the operand
    #: ``sizes(node)`` are those of the axes that the components of an index tuple, along the last axis of the operand,
    #: address; one size: every element is an index
    sizes: Callable[[Node], Sequence[Dim]]
    wraps: bool = True  #: negative ones count from the end
    is_error: bool = True  #: one out of range is an error of the model
    outside: str = "it is clamped"  #: what becomes of one that is out of range at run time


@record
class Axes:
    """The declaration that an operand holds axes of operand 0, negative ones counted from the end."""

    position: int  #: of the operand
    added: bool = False  #: whether they are axes of the result, which has as many more

    def rank(self, operands: Sequence[Value | None]) -> int:
        """Return the number of axes from which they choose."""
        value, axes = operands[0], operands[self.position]
        assert value is not None and axes is not None, "both are there"
        return value.rank + (ix.number(axes.elements) if self.added else 0)


@record(slots=False)
class OpDef:
    """The definition of one operator.  ``name`` and ``domain`` as in ONNX; internal ones use "loom"."""

    name: str
    infer: Infer
    domain: str = ""
    attributes: type = NoAttributes
    #: (version, adapter): applied to nodes whose schema version is at most ``version``, oldest first
    adapters: tuple[tuple[int, Adapter], ...] = ()
    expand: Expand | None = None
    element: Element | None = None
    gather: Gather | None = None
    store_map: StoreMap | None = None
    #: of a ``gather`` that may give operand 0 but for the elements of operand 1: where these go
    update: Update | None = None
    #: of an ``update`` [batch, heads, rows, size] that goes to neighbouring rows: the operand with the number of rows
    #: before them, for each element of the batch
    rows_before: int | None = None
    family: str | None = None
    fold: Fold | None = None
    #: ``fold_shapes(node)`` evaluates an operator whose result depends on the *shapes* of its operands alone (Shape,
    #: Size); it gives an integer array, of dtype object where dimensions are symbolic
    fold_shapes: Callable[[Node], Any] | None = None
    #: input element types that the lowering supports by input position (the last entry serves all further inputs);
    #: empty: every type that the device holds
    types: tuple[frozenset[str], ...] = ()
    #: how many operand elements one output element reads in a ``gather`` (1 for plain views)
    reads: int = 1
    #: whether what a ``gather`` reads for an element is a word of memory, loaded at once
    reads_word: Callable[[Node], bool] = lambda node: False
    #: position of inputs whose *values* must be known at compile time (shapes, axes, pads ...)
    static_inputs: tuple[int, ...] = ()
    #: those among them whose integers may be negative, but for axes
    negative_inputs: tuple[int, ...] = ()
    #: those among them whose integers mean the same beyond the sizes of operand 0 on either side of 0
    bounded_inputs: tuple[int, ...] = ()
    #: the one among them that holds axes
    axes: Axes | None = None
    #: whether the result depends on the element type of an operand, and not on its numbers alone
    by_type: bool = False
    #: operands that hold indices of elements of others
    indices: tuple[Indices, ...] = ()
    #: for operators whose result's shape depends on elements: how to split it (:mod:`.partial_compile`),
    #: used where :class:`NotKnownError` is raised
    split: Split | None = None
    #: how to split one ahead of time whose result's shape depends on floats, so that integers alone need to be known,
    #: or with operands and attributes for which ``is_split_ahead``, so that the integers are sizes
    split_ahead: Split | None = None
    is_split_ahead: Callable[[Sequence[Value | None], Any], bool] = lambda operands, attributes: False
    #: of a part of a split operator: whether its integer counts elements of operand 0
    counts_elements: bool = False
    #: of a part of a split operator: the operand whose integers its own are, but for those that stand for others
    names_sizes: int | None = None

    def __post_init__(self) -> None:
        lowerings = [self.expand, self.element, self.gather, self.family]
        if sum(lowering is not None for lowering in lowerings) != 1:
            raise ValueError(f"{self.name} needs exactly one lowering")

    def data_inputs(self, node: Node) -> list[Value]:
        """Return the operands that a kernel for ``node`` may load: present, and not only known at compile time."""
        if not self.static_inputs:
            return [value for value in node.inputs if value is not None]
        return [
            value
            for position, value in enumerate(node.inputs)
            if value is not None and position not in self.static_inputs
        ]

    @property
    def is_elementwise(self) -> bool:
        return self.element is not None

    @property
    def is_view(self) -> bool:
        """One read and no arithmetic per element."""
        return self.gather is not None and self.reads == 1

    @property
    def is_map(self) -> bool:
        """Computes each output element on its own, from coordinates: can live inside another kernel."""
        return self.element is not None or self.gather is not None


class Registry:
    """Operators by (domain, name): those of ``package``, and those that programs register."""

    def __init__(self, package: str) -> None:
        self._definitions: Definitions[tuple[str, str], OpDef] = Definitions(package)

    def register(self, definition: OpDef) -> OpDef:
        if not self._definitions.add((_domain(definition.domain), definition.name), definition):
            raise ValueError(f"operator {definition.name} is registered already")
        return definition

    def find(self, name: str, domain: str = "") -> OpDef | None:
        return self._definitions.find((_domain(domain), name))

    def get(self, name: str, domain: str = "") -> OpDef:
        definition = self.find(name, domain)
        if definition is None:
            full = f"{domain}.{name}" if domain else name
            error = UnsupportedError(f"operator '{full}' is not supported", hint=self.nearest(name, domain))
            error.fault = f"operator '{full}'"
            raise error
        return definition

    def of(self, node: Node) -> OpDef:
        return self._definitions.find((node.domain, node.op)) or self.get(node.op, node.domain)

    def all(self) -> Iterable[OpDef]:
        """Return all operators; imports the modules of all."""
        return self._definitions.all()

    def present(self) -> Iterable[OpDef]:
        """Return the operators that were looked up so far, those of their modules, and those that programs register."""
        return self._definitions.present()

    def nearest(self, name: str, domain: str) -> str:
        """Suggest what an unknown operator may mean: its name in another domain, or a similar spelling."""
        public = [(_domain(each.domain), each.name) for each in self.all() if each.domain != "loom"]
        same = [key for key in public if key[1] == name and key[0] != _domain(domain)]
        # of names that are equally near, the one of the same domain, then of the standard
        order = sorted(public, key=lambda key: (key[0] != _domain(domain), key[0] != ""))
        likely = nearest_first(name, dict.fromkeys(candidate for _, candidate in order))[:1]
        if same:
            text = (
                f"the nearest supported operator is {name} of {' and of '.join(sorted(_label(key[0]) for key in same))}"
            )
        elif likely and close_to(name, likely[0]):
            owner = next(key[0] for key in order if key[1] == likely[0])
            text = f"the nearest supported operator is {likely[0]} of {_label(owner)}"
        elif any(key[0] == _domain(domain) for key in public):
            text = f"no supported operator of {_label(_domain(domain))} is spelt alike"
        else:
            domains = sorted({_label(key[0]) for key in public})
            text = f"supported domains are {', '.join(domains)}"
        return f"{text}; shaderloom.register_operator adds one"


def _label(domain: str) -> str:
    return domain or "ai.onnx"


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


assert __package__ is not None
registry = Registry(__package__)


def register(**fields: Any) -> OpDef:
    """Define an operator and return its definition.

    ``name``, ``domain``
        as in ONNX.
    ``infer``
        a function of the node that returns element type and shape of each output.
    ``attributes``
        a frozen dataclass with ONNX's names and defaults.
    ``expand``, ``element``, ``gather`` or ``family``
        exactly one of them, the lowering: a decomposition into other operators, a scalar expression of the operands'
        elements, one that reads operands at computed coordinates, or the name of a kernel family.
    ``types``
        names of the element types that the lowering supports, a set for each input; the last serves all further inputs.
    ``static_inputs``
        positions of the inputs whose values must be known when compiling.
    ``fold``
        a function that evaluates the operator with numpy, for shape arithmetic.

    The other fields are in ``docs/development/adding-an-operator.md``.  Raises ValueError for an operator that is
    registered already, and for one without exactly one lowering.
    """
    return registry.register(OpDef(**fields))
