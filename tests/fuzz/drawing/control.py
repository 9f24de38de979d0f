"""Nodes of control flow: If, Loop and Scan, with bodies that are drawn from the same vocabulary.

A body reads values of the graphs around it.  A branch that is not taken may be one that no compiler could take.  What
such a node computes is the definition in the standard, over the nodes of the bodies (:class:`Body`), so that all that
is known about a value (:class:`~.oracle.Known`) is known here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .computed import decided
from .growth import Growth, Step
from .oracle import TOLERANCE, Known, exactly, onnx_type
from .source import Unsuitable, choose, rarely

Values = Mapping[str, Known]
#: iterations after which a loop is taken for one that does not end
MOST_ITERATIONS = 8
#: operands of loops are small, as every iteration computes
SMALL = 512


def draw_control(growth: Growth) -> None:
    """Add a node of control flow; raises :class:`Unsuitable`."""
    choose(growth.source, [draw_if, draw_loop, *([draw_scan] if growth.opset >= 9 else [])])(growth)


# -- bodies ----------------------------------------------------------------------------------------------------------


@dataclass
class Body:
    """A graph inside another one, whose names for inputs and outputs these are."""

    growth: Growth
    inputs: list[str]
    outputs: list[str]

    def run(self, known: Values, arguments: Sequence[Known]) -> list[Known]:
        """The outputs for values of the inputs; ``known`` are the values around."""
        inner = dict(known)
        inner.update((name, exactly(name, array)) for name, array in self.growth.initializers.items())
        inner.update((name, replace(value, name=name)) for name, value in zip(self.inputs, arguments, strict=True))
        for step in self.growth.steps:
            inner.update((value.name, value) for value in step.compute(inner))
        return [inner[name] for name in self.outputs]

    def proto(self, name: str, shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.GraphProto:
        """Types of the inputs and outputs, and the shapes of some."""

        def port(each: str) -> onnx.ValueInfoProto:
            shape = [] if each[0] in "ic" else (shapes or {}).get(each)  # the number and the condition of an iteration
            return helper.make_tensor_value_info(each, onnx_type(self.growth.known[each].dtype), shape)

        return helper.make_graph(
            self.growth.nodes,
            name,
            [port(each) for each in self.inputs],
            [port(each) for each in self.outputs],
            [numpy_helper.from_array(array, each) for each, array in self.growth.initializers.items()],
        )


def grow_body(growth: Growth, inputs: Sequence[Known]) -> Body:
    """A body of one to three nodes, without outputs so far."""
    inner = growth.inner(inputs)
    for _ in range(growth.source.integer(1, 3)):
        inner.grow()
    return Body(inner, [value.name for value in inputs], [])


def add_output(
    body: Body, suits: Callable[[Known], bool], prefer: Callable[[Known], bool] = lambda value: True
) -> Known:
    """One more output: what a node of the body computes, else a copy of any value that it sees."""
    inner = body.growth
    own = {name for step in inner.steps for name in step.proto.output}
    fitting = [value for value in inner.values if suits(value) and value.name not in body.outputs]
    made = [value for value in fitting if value.name in own]
    for found in ([value for value in made if prefer(value)], made):
        if found:
            value = choose(inner.source, found)
            break
    else:
        value = inner.apply("Identity", choose(inner.source, fitting))
    body.outputs.append(value.name)
    return value


def operand(growth: Growth, suits: Callable[[Known], bool]) -> Known:
    """An earlier small value, or a new leaf."""
    found = [value for value in growth.values if value.array.size <= SMALL and suits(value)]
    if found and growth.source.integer(0, 3):
        return choose(growth.source, found[-4:])
    value = growth.leaf("float32", tuple(growth.source.integer(1, 4) for _ in range(growth.source.integer(1, 3))))
    if not suits(value):
        raise Unsuitable
    return value


def finish(
    growth: Growth,
    op: str,
    operands: Sequence[str],
    outputs: int,
    results: Callable[[Values], list[Known]],
    bodies: Mapping[str, onnx.GraphProto],
    **attributes: object,
) -> None:
    """Add the node; empty lists of numbers are left out."""
    names = growth.names(outputs)
    attributes = {name: value for name, value in attributes.items() if value != []}
    proto = helper.make_node(op, operands, names, f"node{growth.prefix}{len(growth.steps)}", **bodies, **attributes)

    def named(known: Values) -> list[Known]:
        return [replace(value, name=name) for name, value in zip(names, results(known), strict=True)]

    growth.add_step(Step(proto, named))


# -- values cut and put together -------------------------------------------------------------------------------------


def element(value: Known, axis: int, position: int) -> Known:
    """A part of a value along an axis."""

    def part(array: np.ndarray) -> np.ndarray:
        return np.asarray(array.take(position, axis))

    array = part(value.array)
    return replace(value, array=array, moved=(array, array) if value.exact else tuple(map(part, value.moved)))


def stacked(rows: Sequence[Known], axis: int) -> Known:
    """Values of one shape along a new axis."""
    if len({(value.shape, value.dtype) for value in rows}) != 1:
        raise Unsuitable
    if axis > rows[0].rank:
        raise Unsuitable
    array = np.stack([value.array for value in rows], axis)
    exact = all(value.exact for value in rows)
    moved = (array, array) if exact else tuple(np.stack([row.moved[way] for row in rows], axis) for way in range(2))
    return Known("", array, moved, max((row.coarsest for row in rows), key=list(TOLERANCE).index))


def _truth(value: Known) -> bool:
    if value.array.size != 1:
        raise Unsuitable
    return bool(value.array.reshape(-1)[0])


# -- If --------------------------------------------------------------------------------------------------------------


def draw_if(growth: Growth) -> None:
    holds = bool(growth.source.integer(0, 1))
    taken = grow_body(growth, [])
    results = [add_output(taken, lambda value: True) for _ in range(growth.source.integer(1, 2))]
    other = impossible(growth, results) if rarely(growth.source, 3) else alternative(growth, results)
    condition = decided(growth, np.array(holds), np.array(not holds))
    branches = (taken, other) if holds else (other, taken)

    def compute(known: Values) -> list[Known]:
        return branches[0 if _truth(known[condition.name]) else 1].run(known, [])

    protos = {name: body.proto(name) for name, body in zip(("then_branch", "else_branch"), branches)}
    finish(growth, "If", [condition.name], len(results), compute, protos)


def alternative(growth: Growth, results: Sequence[Known]) -> Body:
    """Another branch with results of the same types."""
    body = grow_body(growth, [])
    for result in results:
        if not any(value.dtype == result.dtype and value.name not in body.outputs for value in body.growth.values):
            body.growth.leaf(result.dtype, result.shape)
        add_output(body, lambda value, dtype=result.dtype: value.dtype == dtype)
    return body


def impossible(growth: Growth, results: Sequence[Known]) -> Body:
    """A branch that is a mistake when it is taken: shapes that do not fit, places out of range, unknown operators."""
    inner = growth.inner([])
    left, right = (inner.add(np.ones(shape, np.float32), True) for shape in ((2, 3), (4, 5)))
    far = inner.add(np.array([9]), True)
    wrong = {
        "MatMul": [left.name, right.name],
        "Add": [left.name, right.name],
        "Reshape": [left.name, far.name],
        "Gather": [left.name, far.name],
        "NoSuchOperator": [left.name],
        "Sqrt": [far.name],
    }
    body = Body(inner, [], [])
    for result in results:
        op = choose(inner.source, list(wrong))
        name = inner.names(1)[0]

        def fail(known: Values) -> list[Known]:
            raise Unsuitable

        inner.steps.append(Step(helper.make_node(op, wrong[op], [name]), fail))
        inner.known[name] = replace(result, name=name)  # its type is what the branch declares
        body.outputs.append(name)
    return body


# -- Loop ------------------------------------------------------------------------------------------------------------


def draw_loop(growth: Growth) -> None:
    """Ends by a count, by a condition of the body, or by whichever comes first."""
    source = growth.source
    iterations, limited = source.integer(0, 4), bool(source.integer(0, 1))
    conditional = growth.opset >= 9 and bool(source.integer(0, 2) == 0)
    initial = [operand(growth, lambda value: True) for _ in range(source.integer(1, 3))]
    number = next(growth.shared.bodies)
    inputs = [
        exactly(f"i{number}", np.array(0)),
        exactly(f"c{number}", np.array(True)),
        *(replace(value, name=f"s{number}_{at}") for at, value in enumerate(initial)),
    ]
    if conditional:  # the iteration at which the body ends it
        last = decided(growth, np.array(max(iterations, 1) - 1), np.array(source.integer(0, 3)))
    body = grow_body(growth, inputs)
    inner = body.growth
    if conditional:
        body.outputs.append(inner.apply("Less", inputs[0], last).name)
    else:
        body.outputs.append(inputs[1].name if source.integer(0, 1) else inner.apply("Identity", inputs[1]).name)
    for value in inputs[2:]:
        add_output(
            body,
            lambda found, dtype=value.dtype: found.dtype == dtype,
            lambda found, shape=value.shape: found.shape == shape,
        )
    rows = [add_output(body, lambda found: found.array.size <= SMALL) for _ in range(source.integer(0, 2))]
    counts = not conditional or limited
    most = decided(growth, np.array(iterations + 2 * conditional), np.array(source.integer(0, 3))) if counts else None
    starts = np.array(iterations > 0 or counts)
    going = decided(growth, starts, ~starts) if not counts or rarely(source, 3) else None
    declared = {} if rows and iterations and rarely(source, 2) else {row.name: row.shape for row in rows}

    def compute(known: Values) -> list[Known]:
        limit = None if most is None else int(known[most.name].array)
        runs = going is None or _truth(known[going.name])
        values, found = [known[value.name] for value in initial], [[] for _ in rows]
        iteration = 0
        while runs and (limit is None or iteration < limit):
            if iteration == MOST_ITERATIONS:
                raise Unsuitable
            condition, *results = body.run(
                known, [exactly("", np.array(iteration)), exactly("", np.array(True)), *values]
            )
            values = results[: len(values)]
            for row, result in zip(found, results[len(values) :]):
                row.append(result)
            iteration, runs = iteration + 1, _truth(condition)
        return [*values, *(_rows(row, each, declared) for row, each in zip(found, rows))]

    names = ["" if value is None else value.name for value in (most, going)]
    operands = [*names, *(value.name for value in initial)]
    finish(growth, "Loop", operands, len(initial) + len(rows), compute, {"body": body.proto("body", declared)})


def _rows(values: Sequence[Known], row: Known, declared: Mapping[str, Sequence[int]]) -> Known:
    """Results of the iterations; of no iterations there is as much as the body declares."""
    if values:
        result = stacked(values, 0)
        if row.name in declared and result.shape[1:] != tuple(declared[row.name]):
            raise Unsuitable
        return result
    if row.name not in declared:
        raise Unsuitable
    return replace(exactly("", np.zeros((0, *declared[row.name]), row.array.dtype)), coarsest=row.coarsest)


# -- Scan ------------------------------------------------------------------------------------------------------------


def draw_scan(growth: Growth) -> None:
    """States of one shape, one or two sequences along any axis in both directions, results along any axis."""
    source = growth.source
    first = operand(growth, lambda value: value.rank > 0 and 0 < max(value.shape) <= MOST_ITERATIONS)
    axes = [choose(source, [axis for axis, size in enumerate(first.shape) if 0 < size <= MOST_ITERATIONS])]
    iterations = first.shape[axes[0]]
    sequences = [first]
    if source.integer(0, 1):
        shape = [source.integer(1, 3) for _ in range(source.integer(1, 3))]
        axes.append(source.integer(0, len(shape) - 1))
        shape[axes[1]] = iterations
        sequences.append(growth.leaf("float32", tuple(shape)))
    initial = [operand(growth, lambda value: True) for _ in range(source.integer(0, 2))]
    ranks = [value.rank for value in sequences]
    backwards = [source.integer(0, 1) for _ in sequences]
    number = next(growth.shared.bodies)
    inputs = [
        *(replace(value, name=f"s{number}_{at}") for at, value in enumerate(initial)),
        *(
            replace(element(value, axis, iterations - 1 if back else 0), name=f"e{number}_{at}")
            for at, (value, axis, back) in enumerate(zip(sequences, axes, backwards))
        ),
    ]
    body = grow_body(growth, inputs)
    for value in inputs[: len(initial)]:
        add_output(body, lambda found, kind=(value.dtype, value.shape): (found.dtype, found.shape) == kind)
    least = 0 if initial else 1
    rows = [add_output(body, lambda found: found.array.size <= SMALL) for _ in range(source.integer(least, 2))]
    out_axes = [source.integer(0, row.rank) for row in rows]
    out_backwards = [source.integer(0, 1) for _ in rows]

    def compute(known: Values) -> list[Known]:
        values, found = [known[value.name] for value in initial], [[] for _ in rows]
        elements = [known[value.name] for value in sequences]
        if [value.rank for value in elements] != ranks or {
            value.shape[axis] for value, axis in zip(elements, axes)
        } != {iterations}:
            raise Unsuitable
        for iteration in range(iterations):
            now = [
                element(value, axis, iterations - 1 - iteration if back else iteration)
                for value, axis, back in zip(elements, axes, backwards)
            ]
            results = body.run(known, [*values, *now])
            values = results[: len(values)]
            for row, result in zip(found, results[len(values) :]):
                row.append(result)
        turned = [row[::-1] if back else row for row, back in zip(found, out_backwards)]
        return [*values, *(stacked(row, axis) for row, axis in zip(turned, out_axes))]

    finish(
        growth,
        "Scan",
        [value.name for value in (*initial, *sequences)],
        len(initial) + len(rows),
        compute,
        {"body": body.proto("body")},
        num_scan_inputs=len(sequences),
        scan_input_axes=axes,
        scan_input_directions=backwards,
        scan_output_axes=out_axes,
        scan_output_directions=out_backwards,
    )
