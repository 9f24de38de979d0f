"""Storing the results of a kernel: the anchor's elements pushed through the epilogue, to the memory of the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...runtime.plan.errors import DeviceLimitError
from ...runtime.plan.record import record
from ..codegen.spec import Store
from ..ir.graph import Node, Shape, Value
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic import substitution
from ..symbolic.expr import Expr
from ..symbolic.lanes import is_aligned
from ..symbolic.polynomial import Dim
from .groups import Group, Region
from .operands import OperandReader


@record
class Phase:
    """One reduction of a row program: combine ``value`` over the reduced axes into register ``name``."""

    kind: str  #: sum, prod, max or min
    name: str
    value: Expr


class ResultWriter:
    """Makes the stores of a group."""

    def __init__(self, group: Group, operands: OperandReader) -> None:
        self._group = group
        self._operands = operands

    @property
    def _region(self) -> Region:
        assert self._group.region is not None
        return self._group.region

    def stores(
        self, coordinates: Sequence[Dim], value: Expr, condition: Expr | None = None, beside: Sequence[Expr] = ()
    ) -> tuple[Store, ...]:
        """Push the anchor's element at ``coordinates`` through the epilogue, to the group's output.

        ``value`` is usually a register (the accumulator), and ``beside`` are the elements of the anchor's partners.
        ``condition`` guards the store (tails of tiles).
        """
        region = self._region
        mapping = _domain_mapping(coordinates)
        scope = self._operands.scope()
        root = region.anchor.outputs[0]
        self._bind(scope, root, mapping, value)
        for node, element in zip(region.partners, beside, strict=True):
            self._bind(scope, node.output, mapping, element)
        for node in region.nodes[1 + len(region.partners) :]:
            self._bind(scope, node.outputs[0], mapping, self._member(scope, node, mapping))
        coordinates, result = scope.bound(region.exit)
        return (self._store(region.exit, coordinates, substitution.registers_first(result), condition),)

    def _bind(self, scope: OperandReader, value: Value, mapping: Mapping[str, Dim], result: Expr) -> None:
        scope.bind(value, self._at(value, mapping), result)

    def _at(self, value: Value, mapping: Mapping[str, Dim]) -> Shape:
        """Return the coordinates of a value of the region, for coordinates of its domain."""
        return tuple(ix.substitute(coordinate, mapping) for coordinate in self._region.coordinates[value])

    def _member(self, scope: OperandReader, node: Node, mapping: Mapping[str, Dim]) -> Expr:
        """Return the value of a region's node: an elementwise expression, or a view that only changes coordinates."""
        definition = self._operands.operators.of(node)
        if definition.store_map is not None and definition.element is None:
            return scope.bound(node.operand(0))[1]
        return scope.evaluate(node, self._at(node.outputs[0], mapping))

    def is_run(self, coordinates: Sequence[Dim]) -> bool:
        """Return whether the results for the anchor's elements at ``coordinates``, which differ by lane, are four
        aligned neighbours in memory: words that one thread owns."""
        region = self._region
        mapping = _domain_mapping(coordinates)
        at = self._at(region.exit, mapping)
        return is_aligned(region.exit.layout.position(region.exit.shape, at))

    def store(self, coordinates: Sequence[Dim], value: Expr, condition: Expr | None = None) -> Store:
        """Write the group's output directly, at logical coordinates (map kernels)."""
        return self._store(self._group.output, tuple(coordinates), value, condition)

    def store_part(self, coordinates: Sequence[Dim], value: Expr, output: Value, condition: Expr) -> Store:
        """Write one of the group's outputs directly, at logical coordinates, where ``condition`` holds."""
        return self._store_at(output, output.layout.position(output.shape, tuple(coordinates)), value, condition)

    def store_at(self, position: Dim, value: Expr, output: Value) -> Store:
        """Write one of the group's outputs directly, at a position in memory (map kernels)."""
        return self._store_at(output, position, value, None)

    def _store(self, output: Value, coordinates: tuple[Dim, ...], value: Expr, condition: Expr | None) -> Store:
        position = output.layout.position(output.shape, coordinates)
        self._operands.accesses.stored(position, output, coordinates)
        return self._store_at(output, position, value, condition)

    def _store_at(self, output: Value, position: Dim, value: Expr, condition: Expr | None) -> Store:
        if not output.dtype.on_device:
            raise DeviceLimitError(f"{output.dtype} tensors have no storage on the device", tensor=output.name)
        if value.op == f"round_{output.dtype.name}":  # the store does it
            value = value.args[0]
        return Store(self._operands.name(output), output.dtype.name, position, value, condition)

    @property
    def exit_is_row(self) -> bool:
        """Whether a row program stores one element a row (a reduction) or one an element (a normalisation)."""
        region = self._region
        reduced = {f"a{axis}" for axis in region.anchor.attributes.axes}
        return not any(reduced & ix.variables(coordinate) for coordinate in region.coordinates[region.exit])

    def row_program(self, coordinates: Sequence[Dim], condition: Expr | None = None) -> tuple[list[Phase], Store]:
        """Return the reductions, in order, and the final store, at ``coordinates`` of the reduced tensor.

        The value of each phase is the contribution of one element; it may use the registers of earlier phases.
        """
        region = self._region
        mapping = _domain_mapping(coordinates)
        scope = self._operands.scope()
        phases: list[Phase] = []
        for node in region.nodes:
            output = node.outputs[0]
            if node in region.reductions:
                name = f"r{len(phases)}"
                phases.append(Phase(node.attributes.kind, name, scope.read(node.operand(0), tuple(coordinates))))
                self._bind(scope, output, mapping, ex.register(name, output.dtype.compute))
            else:
                self._bind(scope, output, mapping, self._member(scope, node, mapping))
        coordinates, result = scope.bound(region.exit)
        return phases, self._store(region.exit, coordinates, substitution.registers_first(result), condition)


def _domain_mapping(coordinates: Sequence[Dim]) -> dict[str, Dim]:
    return {f"a{axis}": coordinate for axis, coordinate in enumerate(coordinates)}
