"""Nodes into which an exporter has written that there is one row, and those that take any number of rows instead.

* A Reshape to a constant shape: its axis of size 1, or the one that holds the elements of a row, becomes the number of
  rows.  Which axis that is follows from the shapes: rows keep their distance in row-major order.
* A Concat of rows along another axis with a tensor that all rows share, as the class token of a vision transformer is,
  and a recurrent layer whose initial states are such: the tensor is repeated for each row.
* A Gather along the axis into which rows were flattened, by constant indices of one row: it reads the same places of
  each row.
* A ScatterND to constant places of the only row: with the rows behind the axes that are addressed, it writes to the
  same places of each row.

With one row all of them compute what the node of the file does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from ...runtime.plan.errors import ShapeError, UnsupportedError
from ...runtime.plan.record import record
from ..binding.shape_binding import Scope, Specialiser
from ..frontend.model import ImportedGraph, ImportedNode
from ..ir.graph import Value
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from .batch_axis import axis_of_rows

#: Recurrent layers, whose input is [steps, rows, ...], and their initial states: [directions, rows, ...]
_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}


@record
class Replacement:
    """Nodes in place of one, the last with its results, and the constants that they read."""

    nodes: tuple[ImportedNode, ...]
    constants: Mapping[str, np.ndarray]


def names_of(graph: ImportedGraph) -> set[str]:
    """Return all names of values of a graph."""
    names = {port.name for port in (*graph.inputs, *graph.outputs)} | set(graph.constants)
    return names.union(*(set(node.inputs) | set(node.outputs) for node in graph.nodes))


class OpeningSpecialiser(Specialiser):
    """Infers shapes with a number of rows, and replaces nodes on the way: ``replacements``, by their first result.

    ``names`` are those that no new value may have.
    """

    def __init__(self, builder: GraphBuilder, rows: Dim, names: set[str]) -> None:
        super().__init__(builder)
        self._rows, self._names = rows, names
        self.replacements: dict[str, Replacement] = {}

    def apply(self, node: ImportedNode, inputs: Sequence[Value | None], scope: Scope) -> Sequence[Value]:
        """Return the results of a node; what does not fit several rows is unsupported, and others are looked at."""
        replacement = self._replacement(node, inputs) if scope.outer is None else None
        if replacement is None:
            return self._results_of(node, inputs, scope)
        self.replacements[node.outputs[0]] = replacement
        values: dict[str, Value | None] = {"": None, **dict(zip(node.inputs, inputs))}
        values.update((name, self.builder.constant(array)) for name, array in replacement.constants.items())
        results: Sequence[Value] = ()
        for each in replacement.nodes:
            results = self._results_of(each, [values[name] for name in each.inputs], scope)
            values.update(zip(each.outputs, results))
        return results

    def _results_of(self, node: ImportedNode, inputs: Sequence[Value | None], scope: Scope) -> Sequence[Value]:
        try:
            return super().apply(node, inputs, scope)
        except (ShapeError, ix.Undecidable) as error:
            reason = error.reason if isinstance(error, ShapeError) else f"it depends on whether {error}"
            raise UnsupportedError(f"{node.op} does not take several rows: {reason}", origin=node.origin) from None

    def _replacement(self, node: ImportedNode, inputs: Sequence[Value | None]) -> Replacement | None:
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op == "Reshape":
            return self._reshaped(node, inputs)
        if node.op == "Gather":
            return self._gathered(node, inputs)
        if node.op == "ScatterND":
            return self._scattered(node, inputs)
        if node.op == "Concat":
            return self._expanded(node, inputs, range(len(inputs)), node.attributes.axis)
        if node.op in _STATES and not getattr(node.attributes, "layout", 0):
            return self._expanded(node, inputs, _STATES[node.op], None)
        return None

    # Operands that all rows share

    def _expanded(
        self, node: ImportedNode, inputs: Sequence[Value | None], positions: Sequence[int], joined: int | None
    ) -> Replacement | None:
        """Return the node with a row for each in operands that have one for all; ``joined``: the axis of a Concat."""
        located = [None if value is None else axis_of_rows(value.shape, self._rows) for value in inputs]
        with_rows = (
            (at, *each, value.rank)
            for at, (value, each) in enumerate(zip(inputs, located))
            if value is not None and each is not None and isinstance(each[1], int)
        )
        source, axis, of_row, rank = next(with_rows, (-1, 0, 0, 0))
        if source < 0:
            return None
        if joined is not None and axis == joined % rank:
            return None
        nodes: list[ImportedNode] = []
        constants: dict[str, np.ndarray] = {}
        names = list(node.inputs)
        for position in positions:
            value = inputs[position] if position < len(inputs) else None
            if value is None or value.rank != rank or located[position] is not None or value.shape[axis] != of_row:
                continue
            if not nodes:
                size, rows = self._name(f"{names[source]}.size"), self._name(f"{names[source]}.rows")
                repeats = self._name(f"{names[source]}.repeats")
                before, after, each = (self._name(f"{repeats}.{part}") for part in ("before", "after", "of_row"))
                constants = {before: np.ones(axis, np.int64), after: np.ones(rank - axis - 1, np.int64)}
                constants[each] = np.array([of_row], np.int64)
                nodes.append(_node("Shape", (names[source],), size, node, start=axis, end=axis + 1))
                nodes.append(_node("Div", (size, each), rows, node))
                nodes.append(_node("Concat", (before, rows, after), repeats, node, axis=0))
            repeated = self._name(f"{names[position]}.rows")
            nodes.append(_node("Tile", (names[position], repeats), repeated, node))
            names[position] = repeated
        return Replacement((*nodes, _with_inputs(node, names)), constants) if nodes else None

    # Places of one row

    def _gathered(self, node: ImportedNode, inputs: Sequence[Value | None]) -> Replacement | None:
        """Return a Gather from each row in place of one from the elements of all."""
        data, indices = inputs[:2]
        if data is None or indices is None or indices.static_value is None or node.attributes.axis % data.rank != 0:
            return None
        located, places = axis_of_rows(data.shape, self._rows), indices.static_value
        if located is None or located[0] != 0 or places.ndim < 1 or places.shape[0] != 1:
            return None
        factor, behind = located[1], data.shape[1:]
        if not isinstance(factor, int) or not all(isinstance(size, int) for size in behind):
            return None
        if not ((places >= -factor) & (places < factor)).all():
            return None
        shape, rows = self._name(f"{node.inputs[0]}.row_shape"), self._name(f"{node.inputs[0]}.rows")
        of_row = self._name(f"{node.inputs[1]}.of_row")
        constants = {shape: np.array([-1, factor, *behind], np.int64), of_row: places[0]}
        reshaped = _node("Reshape", (node.inputs[0], shape), rows, node)
        return Replacement((reshaped, _node("Gather", (rows, of_row), node.outputs[0], node, axis=1)), constants)

    def _scattered(self, node: ImportedNode, inputs: Sequence[Value | None]) -> Replacement | None:
        """Return a ScatterND to the same places of each row in place of one to the only row."""
        data, indices, updates = inputs
        if data is None or updates is None or indices is None or indices.static_value is None:
            return None
        places, located = indices.static_value, axis_of_rows(data.shape, self._rows)
        addressed = places.shape[-1] - 1
        if located != (0, 1) or addressed < 1 or not np.isin(places[..., 0], (0, -1)).all():
            return None
        of_updates, at = axis_of_rows(updates.shape, self._rows), places.ndim - 1
        if of_updates is not None:
            if of_updates != (0, 1) or places.ndim < 2 or places.shape[0] != 1:
                return None
            places, at = places[0], at - 1
        name = node.inputs[0]
        moved, of_row, scattered = (self._name(f"{name}.{part}") for part in ("moved", "places", "scattered"))
        changes = self._name(f"{node.inputs[2]}.of_rows")
        constants, behind = {of_row: np.ascontiguousarray(places[..., 1:])}, range(addressed + 1, data.rank)
        nodes = [_node("Transpose", (name,), moved, node, perm=[*range(1, addressed + 1), 0, *behind])]
        if of_updates is not None:
            perm = [*range(1, at + 1), 0, *range(at + 1, updates.rank)]
            nodes.append(_node("Transpose", (node.inputs[2],), changes, node, perm=perm))
        else:
            single, axes, rows = (self._name(f"{changes}.{part}") for part in ("single", "axes", "count"))
            before, after, repeats = (self._name(f"{changes}.{part}") for part in ("before", "after", "repeats"))
            constants |= {axes: np.array([at], np.int64), before: np.ones(at, np.int64)}
            constants[after] = np.ones(updates.rank - at, np.int64)
            nodes.append(_node("Unsqueeze", (node.inputs[2], axes), single, node))
            nodes.append(_node("Shape", (name,), rows, node, start=0, end=1))
            nodes.append(_node("Concat", (before, rows, after), repeats, node, axis=0))
            nodes.append(_node("Tile", (single, repeats), changes, node))
        reduction = getattr(node.attributes, "reduction", "none")
        how = {} if reduction == "none" else {"reduction": reduction}
        nodes.append(_node("ScatterND", (moved, of_row, changes), scattered, node, **how))
        back = [addressed, *range(addressed), *behind]
        return Replacement((*nodes, _node("Transpose", (scattered,), node.outputs[0], node, perm=back)), constants)

    # Shapes of one row

    def _reshaped(self, node: ImportedNode, inputs: Sequence[Value | None]) -> Replacement | None:
        target = self._target(node, inputs)
        if target is None:
            return None
        name = self._name(f"{node.outputs[0]}.row_shape")
        return Replacement((_with_inputs(node, (node.inputs[0], name)),), {name: np.array(target, np.int64)})

    def _target(self, node: ImportedNode, inputs: Sequence[Value | None]) -> tuple[int, ...] | None:
        """Return the shape for any number of rows, with -1 for it; None where the file's shape is right as it is."""
        value, shape = inputs[:2]
        if value is None or shape is None or shape.static_value is None:
            return None
        stated = shape.static_value.reshape(-1).tolist()
        located = axis_of_rows(value.shape, self._rows)
        row = ix.divide(value.elements, self._rows)
        if located is None or not isinstance(row, int) or not all(isinstance(size, int) for size in stated):
            return None
        axis, factor = located
        single = [size if at != axis else factor for at, size in enumerate(value.shape)]
        sizes = _single_sizes(stated, single, row, copies=not node.attributes.allowzero)
        if sizes is None:
            return None
        distance = ix.number(factor) * ix.number(ix.product(value.shape[axis + 1 :]))
        at = _axis_of(sizes, distance, axis)
        return None if at is None else (*sizes[:at], -1, *sizes[at + 1 :])

    def _name(self, wanted: str) -> str:
        while wanted in self._names:
            wanted += "_"
        self._names.add(wanted)
        return wanted


def _node(op: str, inputs: Sequence[str], output: str, near: ImportedNode, **attributes: Any) -> ImportedNode:
    """Return a node that the file does not have."""
    definition = registry.get(op)
    proto = helper.make_node(op, inputs, [output], **attributes)
    typed = definition.attributes(**attributes)
    return ImportedNode(
        op, near.domain, definition, tuple(inputs), (output,), typed, near.origin, proto=proto, added=True
    )


def _with_inputs(node: ImportedNode, inputs: Sequence[str]) -> ImportedNode:
    """Return the node with other inputs, on the cpu, too."""
    proto = None if node.proto is None else type(node.proto)()
    if proto is not None:
        proto.CopyFrom(node.proto)
        proto.input[:] = inputs
    return replace(node, inputs=tuple(inputs), proto=proto)


def _single_sizes(stated: Sequence[int], single: Sequence[Dim], row: int, *, copies: bool) -> list[int] | None:
    """Return the sizes that a Reshape gives one row of ``row`` elements; None if it fails."""
    sizes = []
    for at, size in enumerate(stated):
        copied = single[at] if size == 0 and copies and at < len(single) else size
        if not isinstance(copied, int):
            return None
        sizes.append(copied)
    others = int(np.prod([size for size in sizes if size != -1]))
    if -1 in sizes:
        if others <= 0 or row % others:
            return None
        sizes[sizes.index(-1)] = row // others
    return sizes if min(sizes, default=1) > 0 and int(np.prod(sizes)) == row else None


def _axis_of(sizes: Sequence[int], distance: int, preferred: int) -> int | None:
    """Return the axis whose elements are rows that are ``distance`` elements apart: that of the operand, or the
    first.
    """
    fitting = [axis for axis, size in enumerate(sizes) if int(np.prod(sizes[axis + 1 :])) * size == distance]
    return preferred if preferred in fitting else next(iter(fitting), None)
