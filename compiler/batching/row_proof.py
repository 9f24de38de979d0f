"""The proof that a model computes every row of a batch on its own.

The model is specialised with the number of rows as a dimension, so that one graph stands for all batches, and
expanded.  A forward dataflow analysis then gives each value its batch axis: inputs have theirs by declaration, results
by the rule of their operator.  The rule of an operator is in :mod:`.kernel_rows` if it is a kernel, else in
:mod:`.element_reads`.  The proof holds if every output has a batch axis, with one element of it a row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...runtime.plan.batch_ports import BatchPorts
from ...runtime.plan.errors import ShaderloomError, ShapeError, UnsupportedError
from ..binding.shape_binding import specialise
from ..frontend.model import ImportedModel
from ..gc_pause import paused_collection
from ..ir.graph import Graph, Node, Value
from ..ops.registry import registry
from ..options import DEFAULT_LIMITS, Limits
from ..passes.expand import expand
from ..precision.declared_halves import widen_halves
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from .batch_axis import BatchAxis, axis_of_rows, batch_dimension, candidates, depends_on_rows
from .element_reads import BatchAxes, reads_own_row
from .kernel_rows import kernel_rows

_HINT = "run such a model one by one, or export it so that no node combines rows"


def prove_rows(
    model: ImportedModel,
    shapes: Mapping[str, Sequence[int]],
    inputs: Mapping[str, int],
    most: int,
    limits: Limits = DEFAULT_LIMITS,
    *,
    outputs: Collection[str] | None = None,
) -> BatchPorts:
    """Prove that each row of a batch of up to ``most`` rows gives the rows of outputs that it gives alone.

    ``shapes`` are those of the inputs, ``inputs`` the axis of rows of each input that has rows; the others are shared
    by all rows.  ``outputs`` are those that are asked for, None: all.

    Raises :class:`UnsupportedError` with every node that mixes rows, as far as other such nodes do not hide it, and for
    a model that is not one graph for all numbers of rows.
    """
    rows = batch_dimension(most)
    with paused_collection():
        graph = _graph(model, shapes, inputs, rows, limits, outputs)
        return _Proof(graph, rows).run(inputs)


def _graph(
    model: ImportedModel,
    shapes: Mapping[str, Sequence[int]],
    inputs: Mapping[str, int],
    rows: Dim,
    limits: Limits,
    outputs: Collection[str] | None,
) -> Graph:
    """Return the expanded graph for any number of rows, without what only other outputs need."""
    dims = {
        name: tuple(rows if axis == inputs.get(name) else int(size) for axis, size in enumerate(shape))
        for name, shape in shapes.items()
    }
    try:
        graph = specialise(model, dims, limits)
        asked = [pair for pair in zip(graph.output_names, graph.outputs) if outputs is None or pair[0] in outputs]
        graph.output_names, graph.outputs = [name for name, _ in asked], [value for _, value in asked]
        graph.remove_dead()
        widen_halves(graph, limits)
        expand(graph, limits)
    except (ShapeError, ix.Undecidable) as error:
        reason, origin = (error.reason, error.origin) if isinstance(error, ShapeError) else (str(error), None)
        fault = f"what is computed depends on the number of rows: {reason}"
        raise UnsupportedError(fault, origin=origin, hint=_HINT) from None
    graph.remove_dead()
    graph.sort()
    return graph


class _Proof:
    """One walk over a graph.  ``axes`` has the values that carry the batch, ``refused`` those that cannot be told."""

    def __init__(self, graph: Graph, rows: Dim) -> None:
        self._graph, self._rows = graph, rows
        self._axes: dict[Value, BatchAxis] = {}
        self._refused: set[Value] = set()
        self._errors: list[UnsupportedError] = []

    def run(self, inputs: Mapping[str, int]) -> BatchPorts:
        for value in self._graph.inputs:
            if value.name in inputs:
                self._axes[value] = BatchAxis(inputs[value.name])
        for node in self._graph.nodes:
            if any(value in self._refused for value in node.inputs):
                self._refused.update(node.outputs)
                continue
            reason = self._refusal(node)
            if reason is not None:
                self._refused.update(node.outputs)
                self._errors.append(UnsupportedError(f"{_name(node)} {reason}", origin=node.origin, hint=_HINT))
        outputs = {
            name: self._of_output(name, value) for name, value in zip(self._graph.output_names, self._graph.outputs)
        }
        if self._errors:
            raise merge_row_errors(self._errors)
        return BatchPorts(dict(inputs), {name: axis for name, axis in outputs.items() if axis is not None})

    def _refusal(self, node: Node) -> str | None:
        """Give the results of ``node`` their batch axes; return why that is not possible."""
        operands = registry.of(node).data_inputs(node)
        batched = [(value, self._axes[value]) for value in operands if value in self._axes]
        if any(
            value.static_value is not None and depends_on_rows(tuple(value.static_value.flat)) for value in operands
        ):
            return "computes with the number of rows"
        has_rows = any(depends_on_rows(size) for value in node.outputs for size in value.shape)
        if not batched and not has_rows:
            return None
        if node.blocks or len(node.outputs) != 1:
            return "has several results, and no rule says which rows they are of"
        if node.output.static_value is not None:  # whoever computes with its elements is asked for them
            return None
        for axis in candidates(node.output, self._rows, batched):
            if self._is_of_rows(node, axis):
                self._axes[node.output] = axis
                return None
        return "mixes the rows of the batch" if batched else "gives other elements for each row of the batch"

    def _is_of_rows(self, node: Node, axis: BatchAxis) -> bool:
        definition = registry.of(node)
        if definition.is_map:
            return reads_own_row(node, definition, axis, self._axes, self._rows)
        return not depends_on_rows(node.attributes) and _kernel_reads_own_row(node, axis, self._axes)

    def _of_output(self, name: str, value: Value) -> int | None:
        """Return the axis of an output; note the error for one that is not a row for each row of the batch."""
        if value in self._refused:
            return None
        batch, located = self._axes.get(value), axis_of_rows(value.shape, self._rows)
        if batch is None or located is None:
            reason = "the output has no rows of the batch: it is the same for all"
        elif located[1] != 1:
            reason = f"the output has {ix.text(located[1])} elements along axis {batch.axis} for each row of the batch"
        else:
            return batch.axis
        self._errors.append(UnsupportedError(reason, tensor=name, hint=_HINT))
        return None


def _name(node: Node) -> str:
    """Return the operator of the file that a node comes from."""
    return node.op if node.origin is None else node.origin.op


def _kernel_reads_own_row(node: Node, result: BatchAxis, axes: BatchAxes) -> bool:
    """Return whether rows of a kernel's result are of the same rows of all operands that have rows."""
    read = kernel_rows(node, result.axis)
    if read is None:
        return False
    expected = {value: BatchAxis(axis, result.inner) for value, axis in read.items()}
    batched = {value: axes[value] for value in node.inputs if value is not None and value in axes}
    return expected == batched


def merge_row_errors(errors: Sequence[ShaderloomError]) -> ShaderloomError:
    """Return the only error about rows, or one that lists all."""
    if len(errors) == 1:
        return errors[0]
    listed = "; ".join(f"{error.origin or error.tensor}: {error.reason}" for error in errors)
    merged = UnsupportedError(
        f"the rows of a batch are not independent at {len(errors)} places: {listed}",
        origin=errors[0].origin,
        hint=_HINT,
    )
    merged.parts = tuple(errors)
    return merged
