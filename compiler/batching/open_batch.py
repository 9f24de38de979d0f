"""The option ``batch="open"``: a model that was exported for one row takes any number of rows.

Inputs whose leading size is 1 get an open one.  Most operators do not care; where exporters have written the 1 into
constants, :mod:`.opened_nodes` has nodes that take any number of rows.  With one row they compute what the file says;
:func:`~.row_proof.prove_rows` proves that more rows do not change a row, so that no guess can be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...runtime.plan.batch_ports import BatchPorts
from ...runtime.plan.errors import UnsupportedError
from ..binding.shape_binding import Specialiser, specialise
from ..frontend.model import ImportedGraph, ImportedModel, ImportedNode, ImportedPort
from ..ir.constants import InlineSource
from ..ir.graph import Shape
from ..options import DEFAULT_LIMITS, Limits
from ..rewriting.builder import GraphBuilder
from .batch_axis import batch_dimension
from .opened_nodes import OpeningSpecialiser, Replacement, names_of
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
    opened = _with_replacements(model, _replacements(model, shapes, inputs, limits))
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


def _replacements(
    model: ImportedModel, shapes: Mapping[str, Shape], inputs: Mapping[str, int], limits: Limits
) -> dict[str, Replacement]:
    """Return what takes the place of nodes, by the name of their first result; raise the errors of those that fit
    nothing.
    """
    rows = batch_dimension(_MOST)
    dims = {
        name: tuple(rows if axis == inputs.get(name) else n for axis, n in enumerate(shapes[name])) for name in shapes
    }
    opening: list[OpeningSpecialiser] = []

    def start(builder: GraphBuilder) -> Specialiser:
        opening.append(OpeningSpecialiser(builder, rows, names_of(model.graph)))
        return opening[0]

    try:
        specialise(model, dims, limits, start=start)
    except UnsupportedError as error:
        raise merge_row_errors(error.parts or (error,)) from None
    return opening[0].replacements


def _with_replacements(model: ImportedModel, replacements: Mapping[str, Replacement]) -> ImportedModel:
    """Return the model with other nodes in place of some."""
    constants, nodes = dict(model.graph.constants), list[ImportedNode]()
    for node in model.graph.nodes:
        replacement = replacements.get(node.outputs[0])
        if replacement is not None:
            constants.update((name, InlineSource(array)) for name, array in replacement.constants.items())
        nodes += [node] if replacement is None else replacement.nodes
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
