"""Weight transforms on the host: plans whose weights are final, for bundles.

A session makes its weights on the device.  A bundle must not depend on a driver, so its weights are computed here with
numpy: maps through the expressions that their kernels would be made of, in the same compute types
(:mod:`.evaluate`), anchors through :mod:`.interpreter`, and floats of anchors in double precision, rounded once.  The
result is stored in the layout that the kernels of the run expect, padding and all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...runtime.plan.dtypes import compute_dtype
from ...runtime.plan.errors import InternalError
from ...runtime.plan.plan import Plan, Symbol, Weight
from ..compilation import Compilation
from ..fusion import Fusion
from ..ir.coordinates import shape_of
from ..ir.dataflow import operands, post_order
from ..ir.graph import Graph, Node, Value
from ..ir.layout import Layout
from ..kernels.groups import Group
from ..ops.registry import registry
from ..reference.interpreter import run_node
from ..symbolic import expr as ex
from ..symbolic.evaluate import evaluate_expr
from ..symbolic.polynomial import Dim
from .plan_builder import Planner, stored_bytes


class HostPlanner(Planner):
    """Plans without weight transforms: ``Compilation.keep_weight`` gets the bytes of each weight that a call reads,
    once a plan.
    """

    def __init__(self, graph: Graph, fusion: Fusion, symbols: Sequence[Symbol], compilation: Compilation) -> None:
        """Take what :class:`Planner` takes; progress is reported in bytes of weights."""
        super().__init__(graph, fusion, symbols, compilation)
        assert compilation.keep_weight is not None, "weights evaluated on the host are stored somewhere"
        self._keep = compilation.keep_weight
        self._done = 0
        read = {value for group in self.running for value in group.reads}
        self._total = sum(static(stored_bytes(value)) for value in read if self._is_weight(value))

    def assemble(self) -> Plan:
        """Put the plan together.  Raises :class:`InternalError` if a weight is left to a transform."""
        plan = super().assemble()
        if plan.sources or any(weight.calls for weight in plan.weights):
            raise InternalError("a weight was left to be made at run time")
        return plan

    def _is_weight(self, value: Value) -> bool:
        group = self.fusion.materialised.get(value)
        return value.is_constant or (group is not None and group.constant)

    def _make(self, group: Group) -> None:
        if not group.constant:  # those that run once need no kernel, whatever limits it would break
            super()._make(group)

    def _weight(self, value: Value) -> str:
        if value not in self._weight_keys:
            size = static(stored_bytes(value))
            data = stored(evaluate_constant(value), value.layout)
            if len(data) > size:
                raise InternalError(f"weight {value!r} takes {len(data)} bytes instead of {size}")
            if len(data) < size:
                data = memoryview(bytes(data).ljust(size, b"\0"))
            key = self._keep(data)
            self._weight_keys[value] = key
            self.weights.setdefault(key, Weight(key, size, (), (), value.name))
            self._done += size
            self.compilation.progress("evaluating weights", self._done, max(self._done, self._total))
        return self._weight_keys[value]


def static(size: Dim) -> int:
    """A size that no dynamic dimension can have a part in."""
    if isinstance(size, int):
        return size
    raise InternalError(f"a weight has the size {size}")


def evaluate_constant(value: Value) -> np.ndarray:
    """The elements of a value that depends on constants alone, in ONNX order."""
    arrays: dict[Value, np.ndarray] = {}
    waiting: dict[Value, int] = {}  #: how many nodes still read a value: large arrays go as early as they can
    order = post_order([value], _sources_of)
    for current in order:
        for operand in _sources_of(current):
            waiting[operand] = waiting.get(operand, 0) + 1
    for current in order:
        if current.constant is not None:
            arrays[current] = current.constant.read()
            continue
        node = current.producer
        assert node is not None
        result = _run(node, [None if operand is None else arrays[operand] for operand in node.inputs])
        with np.errstate(over="ignore"):
            # a weight may be stored in another type than the node computes
            arrays[current] = result.astype(compute_dtype(current.dtype), copy=False)
        for operand in {operand for operand in node.inputs if operand is not None}:
            waiting[operand] -= 1
            if not waiting[operand]:
                del arrays[operand]
    return arrays[value]


def _sources_of(value: Value) -> list[Value]:
    """Return what a value is computed from; none for a constant.  Raises :class:`InternalError` if it is neither."""
    if value.constant is not None:
        return []
    node = value.producer
    if node is None or len(node.outputs) != 1 or node.blocks:
        raise InternalError(f"{value!r} is no constant")
    return operands(value)


def _run(node: Node, operands: list[np.ndarray | None]) -> np.ndarray:
    definition = registry.of(node)
    output = node.outputs[0]
    if node.op == "Relayout":  # logical elements stay where they are
        assert operands[0] is not None
        return operands[0]
    if definition.element is not None:
        return _run_elementwise(node, operands)
    if definition.family is not None:
        double = [
            operand.astype(np.float64) if _is_float(value) else operand  # type: ignore[union-attr]
            for operand, value in zip(operands, node.inputs)
        ]
        with np.errstate(all="ignore"):
            return run_node(node, double, {})[0].astype(compute_dtype(output.dtype))
    return run_node(node, operands, {})[0]


def _is_float(value: Value | None) -> bool:
    return value is not None and value.dtype.is_float


def _run_elementwise(node: Node, operands: list[np.ndarray | None]) -> np.ndarray:
    """An elementwise operator by its expression, with numpy's broadcasting in place of index arithmetic."""
    output = node.outputs[0]
    arguments: list[ex.Expr] = []
    registers: Mapping[str, np.ndarray] = {
        f"x{position}": operand for position, operand in enumerate(operands) if operand is not None
    }
    for position, value in enumerate(node.inputs):
        if value is not None:
            arguments.append(ex.register(f"x{position}", value.dtype.compute))
    definition = registry.of(node)
    assert definition.element is not None
    result = evaluate_expr(definition.element(node, arguments), registers=registers)
    with np.errstate(all="ignore"):
        # one- and two-byte integers keep their low bits, as stores do
        return np.broadcast_to(np.asarray(result), shape_of(output, {})).astype(compute_dtype(output.dtype))


def stored(array: np.ndarray, layout: Layout) -> memoryview:
    """A tensor as it lies in memory: axes in the layout's order, padded with zeros, blocks innermost; little-endian."""
    shape = array.shape
    padded = [static(layout.stored_size(shape, axis)) for axis in range(array.ndim)]
    if tuple(padded) != shape:
        array = np.pad(array, [(0, stored_size - size) for stored_size, size in zip(padded, shape)])
    if layout.blocks:
        array = _split(array, layout)
    else:
        array = array.transpose(layout.order)
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data.toreadonly()


def _split(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Axes with blocks as two: the number of the block at the axis's place, the rest innermost."""
    blocks = dict(layout.blocks)
    sides: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for axis, size in enumerate(array.shape):
        outer[axis] = len(sides)
        sides.append(size // blocks.get(axis, 1))
        if axis in blocks:
            inner[axis] = len(sides)
            sides.append(blocks[axis])
    return array.reshape(sides).transpose(
        [*(outer[axis] for axis in layout.order), *(inner[axis] for axis, _ in layout.blocks)]
    )
