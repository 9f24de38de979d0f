"""Unroll Scan and Loop whose trip count is known at compile time: the graph contains the body once for each iteration.

An iteration is a copy of the body, so fusion and folding see through it; what depends on its number alone folds away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.plan.errors import LimitError, ModelError, NotKnownError, Origin, ShapeError
from ..frontend.model import ImportedGraph, ImportedNode
from ..ir.graph import Value
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix

#: Runs a body with the values of its inputs in an iteration, None where that alone does not tell; gives its outputs
RunBody = Callable[[ImportedGraph, Sequence[Value], int | None], list[Value]]


def body_of(node: ImportedNode) -> ImportedGraph:
    block = node.blocks.get("body")
    if block is None:
        raise ModelError(f"{node.op} needs the attribute 'body'", origin=node.origin)
    return block.graph


def _check_iterations(node: ImportedNode, iterations: int, runs: int, limit: int) -> int:
    """Return ``iterations``; raise :class:`LimitError` if they are too many, times the ``runs`` of the node itself."""
    if iterations * runs > limit:
        within = f" in loops of {runs:,}" if runs > 1 else ""
        raise LimitError(
            f"{node.op} has {iterations:,} iterations or more{within}; at most {limit:,} are written out",
            origin=node.origin,
            hint="raise caps.loop_iterations",
        )
    return iterations


# -- Scan -------------------------------------------------------------------------------------------------------------


def _per_input(attributes: Mapping[str, Any], name: str, count: int, node: ImportedNode) -> tuple[int, ...]:
    values = tuple(attributes.get(name) or (0,) * count)
    if len(values) != count:
        raise ModelError(f"{name} of Scan has {len(values)} numbers, not {count}", origin=node.origin)
    return values


def unroll_scan(
    builder: GraphBuilder, node: ImportedNode, inputs: Sequence[Value | None], runs: int, run: RunBody
) -> list[Value]:
    """Unroll a Scan and return its outputs: final states, then stacked outputs of the iterations.

    ``runs`` counts how often the enclosing loops have run it so far.
    """
    attributes, body = node.attributes, body_of(node)
    scanned = attributes.get("num_scan_inputs")
    if scanned is None:
        raise ModelError("Scan needs the attribute 'num_scan_inputs'", origin=node.origin)
    if "directions" in attributes or len(body.inputs) == len(inputs) - 1:
        return _batched_scan(builder, node, inputs, runs, run)
    if len(body.inputs) != len(inputs):
        raise ModelError(f"the body of Scan has {len(body.inputs)} inputs, not {len(inputs)}", origin=node.origin)
    return _scan(builder, node, inputs, runs, run, None)


def _scan(
    builder: GraphBuilder,
    node: ImportedNode,
    inputs: Sequence[Value | None],
    runs: int,
    run: RunBody,
    length: Value | None,
    *,
    batched: bool = False,
) -> list[Value]:
    """Unroll a Scan over all iterations.

    With ``length`` (a scalar) only so many iterations count: afterwards states stay unchanged and output rows are zero.
    """
    attributes, body = node.attributes, body_of(node)
    scanned = attributes["num_scan_inputs"]
    present = [value for value in inputs if value is not None]
    states, sequences = present[: len(present) - scanned], present[len(present) - scanned :]
    stacked = len(body.outputs) - len(states)
    directions = _per_input(attributes, "scan_input_directions", scanned, node)
    axes = [
        _axis(axis, value.rank, node.origin)
        for axis, value in zip(_per_input(attributes, "scan_input_axes", scanned, node), sequences)
    ]
    sizes = {value.shape[axis] for axis, value in zip(axes, sequences)}
    if len(sizes) != 1 or any(isinstance(size, ix.Index) for size in sizes):
        listed = ", ".join(sorted(ix.text(size) for size in sizes))
        error = ShapeError if len(sizes) > 1 else NotKnownError
        raise error(f"the trip count of Scan must be known and one, but is {listed}", origin=node.origin)
    iterations = _check_iterations(node, ix.number(sizes.pop()), runs, builder.limits.loop_iterations)
    rows: list[list[Value]] = [[] for _ in range(stacked)]
    for iteration in range(iterations):
        elements = [
            _element(builder, value, axis, _last(builder, length, iterations, iteration) if backwards else iteration)
            for value, axis, backwards in zip(sequences, axes, directions)
        ]
        results = run(body, [*states, *elements], None if batched else iteration)
        if length is not None:
            goes_on = builder.op("Less", builder.scalar(iteration, length), length)
            others = [*states, *(builder.scalar(0, row) for row in results[len(states) :])]
            results = [builder.op("Where", goes_on, new, old) for new, old in zip(results, others)]
        states = results[: len(states)]
        for row, result in zip(rows, results[len(states) :]):
            row.append(result)
    out_directions = _per_input(attributes, "scan_output_directions", stacked, node)
    out_axes = _per_input(attributes, "scan_output_axes", stacked, node)
    return [
        *states,
        *(
            _stack(builder, row[::-1] if backwards else row, axis, node)
            for row, axis, backwards in zip(rows, out_axes, out_directions)
        ),
    ]


def _batched_scan(
    builder: GraphBuilder, node: ImportedNode, inputs: Sequence[Value | None], runs: int, run: RunBody
) -> list[Value]:
    """Scan as opset 8 had it: an optional input of lengths, then operands with a batch axis before the sequence's.

    Each entry of the batch is scanned on its own; results are stacked along the batch axis.
    """
    lengths = inputs[0] if inputs else None
    attributes = dict(node.attributes)
    attributes["scan_input_directions"] = attributes.pop("directions", None)
    newer = dataclasses.replace(node, attributes=attributes)
    operands = [value for value in inputs[1:] if value is not None]
    sizes = {value.shape[0] for value in operands if value.rank}
    if len(sizes) != 1 or isinstance(next(iter(sizes)), ix.Index):
        raise ShapeError("the size of the batch of Scan must be known and one", origin=node.origin)
    count = ix.number(sizes.pop())
    if lengths is not None and lengths.shape != (count,):
        raise ShapeError(f"sequence_lens has not one number for each of {count} entries", origin=node.origin)
    entries = [
        _scan(
            builder,
            newer,
            [_element(builder, value, 0, entry) for value in operands],
            runs * count,
            run,
            None if lengths is None else _element(builder, lengths, 0, entry),
            batched=True,
        )
        for entry in range(count)
    ]
    return [_stack(builder, list(rows), 0, node) for rows in zip(*entries)]


def _axis(axis: int, rank: int, origin: Origin) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for rank {rank}", origin=origin)
    return axis % rank


def _last(builder: GraphBuilder, length: Value | None, iterations: int, iteration: int) -> int | Value:
    """Return the position that a backward scan reads at ``iteration``."""
    if length is None:
        return iterations - 1 - iteration
    return builder.op(
        "Max", builder.op("Sub", length, builder.scalar(iteration + 1, length)), builder.scalar(0, length)
    )


def _element(builder: GraphBuilder, value: Value, axis: int, position: int | Value) -> Value:
    """Return one element of a sequence along ``axis``, with that axis removed."""
    index = position if isinstance(position, Value) else builder.constant(np.array(position, np.int64))
    return builder.op("Gather", value, index, axis=axis)


def _stack(builder: GraphBuilder, rows: Sequence[Value], axis: int, node: ImportedNode) -> Value:
    """Stack the results of the iterations along a new axis."""
    if not rows:
        raise NotKnownError(f"{node.op} without any iteration has outputs of unknown shape", origin=node.origin)
    at = builder.constant(np.array([_axis(axis, rows[0].rank + 1, node.origin)], np.int64))
    return builder.op("Concat", *(builder.op("Unsqueeze", row, at) for row in rows), axis=axis)


# -- Loop -------------------------------------------------------------------------------------------------------------


def unroll_loop(
    builder: GraphBuilder, node: ImportedNode, inputs: Sequence[Value | None], runs: int, run: RunBody
) -> list[Value]:
    """Unroll a Loop and return its outputs: final values, then stacked outputs of the iterations.

    ``runs`` counts how often the enclosing loops have run it so far.
    """
    body = body_of(node)
    operands: list[Value | None] = [*inputs, *[None] * (2 - len(inputs))]
    limit, condition, *carried = operands
    most = None if limit is None else _static_number(node, limit, "the trip count")
    values = [value for value in carried if value is not None]
    stacked = len(body.outputs) - 1 - len(values)
    if stacked < 0:
        raise ModelError(f"the body of Loop has {len(body.outputs)} outputs for {len(values)} carried values")
    rows: list[list[Value]] = [[] for _ in range(stacked)]
    running = condition is None or bool(_static_number(node, condition, "the condition"))
    iteration = 0
    while running and (most is None or iteration < most):
        _check_iterations(node, iteration + 1, runs, builder.limits.loop_iterations)
        number = builder.constant(np.array(iteration, np.int64))
        going = builder.constant(np.array(True))
        going, *results = run(body, [number, going, *values], iteration)
        values = results[: len(values)]
        for row, result in zip(rows, results[len(values) :]):
            row.append(result)
        iteration += 1
        if most is None or iteration < most:
            running = bool(_static_number(node, going, "the condition"))
    return [*values, *(_stack(builder, row, 0, node) for row in rows)]


def _static_number(node: ImportedNode, value: Value, what: str) -> int:
    if (
        value.static_value is None
        or value.static_value.size != 1
        or isinstance(value.static_value.reshape(-1)[0], ix.Index)
    ):
        raise NotKnownError(
            f"{what} of {node.op} is computed from elements of the model's inputs; it must be known at compile time",
            origin=node.origin,
        )
    return int(value.static_value.reshape(-1)[0])
