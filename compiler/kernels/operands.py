"""Reading the operands of a kernel: inlined producers composed in, values in memory loaded from their position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

from ...runtime.plan.errors import DeviceLimitError, InternalError
from ..ir.coordinates import broadcast_coordinates
from ..ir.graph import Node, Shape, Value
from ..ops.registry import Registry, registry
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import depends_on_lane, is_aligned
from ..symbolic.polynomial import Dim
from .accesses import Accesses
from .groups import Group
from .memory_words import with_words


class OperandReader:
    """Gives elements of operands as expressions, and names what is loaded."""

    def __init__(self, group: Group, materialised: Mapping[Value, Group], operators: Registry = registry) -> None:
        self.group = group
        self.materialised = materialised
        self.operators = operators
        self.accesses = Accesses()
        self.names: dict[Value, str] = {}  #: of what is loaded, in the order of the first loads
        self._memo: dict[tuple[Value, tuple[Dim, ...]], Expr] = {}
        self._bound: dict[Value, tuple[Shape, Expr]] = {}
        self._computed: dict[Value, Callable[[Shape], Expr]] = {}

    def read(self, value: Value, coordinates: Sequence[Dim]) -> Expr:
        """Return the element of ``value`` at logical ``coordinates``, in the value's compute type."""
        at = tuple(coordinates)
        stop = self._bound.get(value)
        if stop is not None:
            if stop[0] != at:
                raise InternalError(f"{value!r} is read at other coordinates than it is computed at")
            return stop[1]
        if value in self._computed:
            return self._computed[value](at)
        key = (value, at)
        expression = self._memo.get(key)
        if expression is None:
            expression = self._memo[key] = self._compute(value, at)
        return expression

    def _compute(self, value: Value, coordinates: tuple[Dim, ...]) -> Expr:
        literal = self._literal(value, coordinates)
        if literal is not None:
            return literal
        producer = value.producer
        if producer is None or (value in self.materialised and value is not self.group.output):
            return self.load(value, coordinates)
        if value is self.group.output and self.group.region is not None and producer in self.group.region.nodes:
            raise InternalError(f"{value!r} is read by the kernel that computes it")
        return self.evaluate(producer, coordinates)

    def evaluate(self, node: Node, coordinates: tuple[Dim, ...]) -> Expr:
        """Return the expression of a map node's result at ``coordinates``."""
        definition = self.operators.of(node)
        output = node.outputs[0]
        if definition.element is not None:
            arguments = [
                self.read(operand, broadcast_coordinates(coordinates, output.shape, operand.shape))
                for operand in node.inputs
                if operand is not None
            ]
            result = definition.element(node, arguments)
        elif definition.gather is not None:
            result = definition.gather(
                node, coordinates, lambda position, at: self.read(node.operand(position), tuple(at))
            )
        else:
            raise InternalError(f"{node.op} cannot be computed element by element", origin=node.origin)
        if result.dtype != output.dtype.compute:
            raise InternalError(f"{node.op} gives {result.dtype} for {output.dtype}", origin=node.origin)
        return result

    def scope(self) -> OperandReader:
        """Return a reader of the same operands that takes values of a region as :meth:`bind` says."""
        inner = copy(self)
        inner._memo, inner._bound, inner._computed = {}, {}, {}
        return inner

    def bind(self, value: Value, coordinates: Shape, element: Expr) -> None:
        """Substitute ``element`` for ``value``, which may be read at these ``coordinates`` only."""
        self._bound[value] = (coordinates, element)

    def compute(self, value: Value, element: Callable[[Shape], Expr]) -> None:
        """Take the elements of ``value`` from a function of their coordinates."""
        self._computed[value] = element

    def bound(self, value: Value) -> tuple[Shape, Expr]:
        """Return the coordinates of a value of this scope, and its element there."""
        return self._bound[value]

    @staticmethod
    def _literal(value: Value, coordinates: tuple[Dim, ...]) -> Expr | None:
        """Return the element as a literal or a symbol if it is known at compile time, else None."""
        if value.elements == 0:  # never read: a guard excludes it (an empty part of a Concat)
            return ex.const(0, value.dtype.compute)
        if value.static_value is None or value.static_value.size > 1:
            return None
        element = value.static_value.reshape(-1)[0]
        dtype = value.dtype.compute
        if isinstance(element, ix.Index):
            return ex.of_dim(element, dtype)
        return ex.const(element.item() if hasattr(element, "item") else element, dtype)

    def load(self, value: Value, coordinates: tuple[Dim, ...]) -> Expr:
        """Return a load from memory at the position that the value's layout assigns to ``coordinates``."""
        if not value.dtype.on_device:
            raise DeviceLimitError(f"{value.dtype} tensors have no storage on the device", tensor=value.name)
        position = value.layout.position(value.shape, coordinates)
        load = ex.load(self.name(value), value.dtype.name, position, value.dtype.compute)
        self.accesses.loaded(load, value, coordinates)
        return load

    def name(self, value: Value) -> str:
        """Return the name of the operand of ``value``: ``y``, ``y1`` ... for outputs, ``x0``, ``x1`` ... for inputs."""
        if value is self.group.output:
            return "y"
        if value in self.group.also:
            return f"y{1 + self.group.also.index(value)}"
        if value not in self.names:
            self.names[value] = f"x{len(self.names)}"
        return self.names[value]

    @staticmethod
    def vectorizes(value: Expr) -> bool:
        """Return whether every load that differs by lane is an aligned load of four neighbours."""
        return all(
            is_aligned(node.payload.position)
            for node in ex.loads(with_words(value))
            if depends_on_lane(node.payload.position)
        )
