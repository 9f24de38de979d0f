"""The option ``batch="open"``: a model that was exported for one row takes any number of rows.

Inputs whose leading size is 1 get an open one.  Most operators do not care; a Reshape to a constant shape does, as
exporters write the 1 into it.  Its axis of size 1, or the one that holds the elements of a row, becomes the number of
rows.  Which axis that is follows from the shapes: rows keep their distance in row-major order.  Then
:func:`~.row_proof.prove_rows` proves the result, so that no guess can be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...runtime.plan.batch_ports import BatchPorts
from ...runtime.plan.errors import ShapeError, UnsupportedError
from ..binding.shape_binding import Scope, Specialiser, specialise
from ..frontend.model import ImportedGraph, ImportedModel, ImportedNode, ImportedPort
from ..ir.constants import InlineSource
from ..ir.graph import Shape, Value
from ..options import DEFAULT_LIMITS, Limits
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from .batch_axis import axis_of_rows, batch_dimension
from .row_proof import merge_row_errors, prove_rows

#: The largest number of rows of the proof, which holds for others: it is about one row beside others
_MOST = 64
#: What the open dimension is called, unless the model has a dimension of this name
_NAME = "batch"


def open_batch(model: ImportedModel, limits: Limits = DEFAULT_LIMITS) -> ImportedModel:
    """Return ``model`` with an open dimension in place of the leading 1 of its inputs and outputs.

    Raises :class:`UnsupportedError` for a model without such inputs, or with other open sizes, and with every node that
    does not take several rows.
    """
    inputs = {port.name: 0 for port in model.inputs if port.dims and port.dims[0] == 1}
    if not inputs:
        raise UnsupportedError("no input has a leading size of 1 that could be opened", hint="leave batch='open' out")
    shapes = {port.name: _sizes(port) for port in model.inputs}
    targets = _targets(model, shapes, inputs, limits)
    opened = _with_targets(model, targets)
    ports = prove_rows(opened, shapes, inputs, _MOST, limits)
    return _with_ports(opened, ports)


def _sizes(port: ImportedPort) -> tuple[int, ...]:
    sizes = tuple(dim for dim in port.dims or (None,) if isinstance(dim, int))
    if port.dims is None or len(sizes) < len(port.dims):
        raise UnsupportedError(
            "a batch of 1 is opened where the model declares all other sizes",
            tensor=port.name,
            hint="fix them: SessionOptions.add_free_dimension_override_by_name, or export the model again",
        )
    return sizes


def _targets(
    model: ImportedModel, shapes: Mapping[str, Shape], inputs: Mapping[str, int], limits: Limits
) -> dict[str, tuple[int, ...]]:
    """Return new shapes of what nodes reshape to constant ones, by name; raise the errors of nodes that do not fit."""
    rows = batch_dimension(_MOST)
    dims = {
        name: tuple(rows if axis == inputs.get(name) else n for axis, n in enumerate(shapes[name])) for name in shapes
    }
    opening: list[_OpeningSpecialiser] = []

    def start(builder: GraphBuilder) -> Specialiser:
        opening.append(_OpeningSpecialiser(builder, rows))
        return opening[0]

    try:
        specialise(model, dims, limits, start=start)
    except UnsupportedError as error:
        raise merge_row_errors(error.parts or (error,)) from None
    return opening[0].targets


class _OpeningSpecialiser(Specialiser):
    """Infers shapes with a number of rows, and gives nodes new target shapes on the way."""

    def __init__(self, builder: GraphBuilder, rows: Dim) -> None:
        super().__init__(builder)
        self._rows = rows
        self.targets: dict[str, tuple[int, ...]] = {}

    def apply(self, node: ImportedNode, inputs: Sequence[Value | None], scope: Scope) -> Sequence[Value]:
        """Return the results of a node; what does not fit several rows is unsupported, and others are looked at."""
        target = self._target(node, inputs) if node.op == "Reshape" and scope.outer is None else None
        if target is not None:
            self.targets[node.outputs[0]] = target
            inputs = [inputs[0], self.builder.constant(np.array(target, np.int64))]
        try:
            return super().apply(node, inputs, scope)
        except (ShapeError, ix.Undecidable) as error:
            reason = error.reason if isinstance(error, ShapeError) else f"it depends on whether {error}"
            raise UnsupportedError(f"{node.op} does not take several rows: {reason}", origin=node.origin) from None

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


def _with_targets(model: ImportedModel, targets: Mapping[str, tuple[int, ...]]) -> ImportedModel:
    """Return the model in which nodes reshape to other constants."""
    constants = dict(model.graph.constants)
    nodes = []
    for node in model.graph.nodes:
        target = targets.get(node.outputs[0])
        if target is not None:
            name = f"{node.outputs[0]}.rows"
            while name in constants:
                name += "_"
            constants[name] = InlineSource(np.array(target, np.int64))
            node = replace(node, inputs=(node.inputs[0], name))
        nodes.append(node)
    return replace(model, graph=replace(model.graph, nodes=tuple(nodes), constants=constants))


def _with_ports(model: ImportedModel, ports: BatchPorts) -> ImportedModel:
    """Return the model with an open dimension where its inputs and outputs have rows."""
    present = {dim for port in (*model.graph.inputs, *model.graph.outputs) for dim in port.dims or ()}
    name = _NAME
    while name in present:
        name += "_"

    def opened(port: ImportedPort, axis: int | None) -> ImportedPort:
        if axis is None or port.dims is None:
            return port
        return replace(port, dims=(*port.dims[:axis], name, *port.dims[axis + 1 :]))

    graph: ImportedGraph = replace(
        model.graph,
        inputs=tuple(opened(port, ports.inputs.get(port.name)) for port in model.graph.inputs),
        outputs=tuple(opened(port, ports.outputs.get(port.name)) for port in model.graph.outputs),
    )
    return replace(
        model,
        graph=graph,
        inputs=tuple(opened(port, ports.inputs.get(port.name)) for port in model.inputs),
        outputs=graph.outputs,
    )
