"""Loop and Scan, an iteration at a time: the body is a block of the program, compiled once for its values' shapes.

Carried tensors stay on the device.  The condition is read back after each iteration, unless the body passes its own
condition input through; the number of the iteration is an input of the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...compiler.binding.loop_unrolling import body_of
from ...compiler.staging.control_dependence import deciding_results
from ...compiler.staging.program_graph import PendingNode, ProgramScope, make_node
from ...runtime.execution.attachment import Target
from ...runtime.memory.stack import can_stack, stack
from ...runtime.plan.dtypes import interface_dtype
from ...runtime.plan.errors import LimitError, ModelError, ShapeError, UnsupportedError
from ...runtime.plan.facts import ValueFacts
from ..steps import Env, RunRecord, read
from ..values import Crossing, RuntimeValue
from .context import ProgramContext
from .state import Block

#: Trip counts for which a loop caches the plan that stacks outputs
STACKINGS = 32


class LoopStep:
    """The step that runs one Loop or Scan."""

    def __init__(self, item: PendingNode, context: ProgramContext, control: frozenset[str] = frozenset()) -> None:
        """Prepare the body's block; ``control`` are the node outputs on which later control decisions depend."""
        self.item = item
        self._context = context
        self.graph = body_of(item.node)
        prefix = f"{item.scope.prefix}{item.node.op}_{item.origin.index}.body/"
        self.scope = ProgramScope(self.graph, item.scope, prefix)
        self.inputs = [self.scope.qualify(port.name) for port in self.graph.inputs]
        self.outputs = [self.scope.qualify(port.name) for port in self.graph.outputs]
        self.stack_block: dict[tuple[int, int], Block] = {}
        self.scan = _ScanForm(self) if item.node.op == "Scan" else None
        before = self.scan.reading if self.scan is not None else []
        nodes = (*before, *self.scope.nodes())
        self.block = Block(
            f"{item.origin}",
            nodes,
            tuple(dict.fromkeys(self.outputs)),
            self._control(nodes, control) if context.half else frozenset(),
        )

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        results = self._scan(self.scan, env, record) if self.scan is not None else self._loop(env, record)
        if len(results) < len(self.item.outputs):
            raise ModelError(
                f"{self.item.node.op} has {len(results)} outputs, not {len(self.item.outputs)}", origin=self.item.origin
            )
        for name, value in zip(self.item.outputs, results):
            if name:
                env[name] = value

    def close(self) -> None:
        pass

    def _control(self, nodes: Sequence[PendingNode], outside: frozenset[str]) -> frozenset[str]:
        """Return the control outputs of the body: its condition, those that ``outside`` names, and those that flow into
        them in a later iteration.
        """
        is_loop = self.scan is None
        results = self.outputs[1:] if is_loop else self.outputs
        first = 2 if is_loop else 0
        control = {result for result, name in zip(results, self.item.outputs) if name in outside}
        if is_loop:
            control.add(self.outputs[0])
        return deciding_results(nodes, self.inputs[first:], results, control)

    def _value(self, name: str, env: Env) -> RuntimeValue:
        if name not in env:
            env[name] = self._context.constant(name)
        return env[name]

    def _body(
        self, iteration: int, inner: Env, carried: Sequence[RuntimeValue], first: int, record: RunRecord
    ) -> list[RuntimeValue]:
        """Run the body in an iteration; values of its inputs from the position ``first`` on are ``carried``."""
        inner.update(zip(self.inputs[first:], carried))
        targets: dict[str, Target] = {} if self.scan is not None else {self.outputs[0]: "cpu"}
        record.around = (*record.around, iteration)
        if record.observer is not None:
            inputs = {name: inner[name] for name in self.inputs if name in inner}
            record.observer.before_iteration(inputs, record.around)
        results = self._context.run_block(self.block, inner, targets, record)
        record.around = record.around[:-1]
        return [results[name] for name in self.outputs]

    def _check(self, iterations: int) -> None:
        cap = self._context.source.caps.loop_iterations
        if iterations > cap:
            raise LimitError(
                f"{self.item.node.op} has {iterations:,} iterations or more; at most {cap:,} are allowed",
                origin=self.item.origin,
                hint="raise caps.loop_iterations",
            )

    # -- Loop --------------------------------------------------------------------------------------------------------

    def _loop(self, env: Env, record: RunRecord) -> list[RuntimeValue]:
        names = [*self.item.inputs, *[""] * (2 - len(self.item.inputs))]
        most = self._number(names[0], env, record)
        going = names[1] == "" or bool(self._number(names[1], env, record))
        carried = [self._value(name, env) for name in names[2:] if name]
        if len(self.inputs) != 2 + len(carried):
            raise ModelError(f"the body has {len(self.inputs)} inputs, not {2 + len(carried)}", origin=self.item.origin)
        count = len(self.outputs) - 1 - len(carried)
        if count < 0:
            raise ModelError(
                f"the body has {len(self.outputs)} outputs for {len(carried)} carried values", origin=self.item.origin
            )
        rows: list[list[RuntimeValue]] = [[] for _ in range(count)]
        iteration = 0
        if most is not None and going:
            self._check(most if names[1] == "" else 0)
        while going and (most is None or iteration < most):
            self._check(iteration + 1)
            inner = dict(env)
            inner[self.inputs[0]] = RuntimeValue(np.array(iteration, np.int64), "caller")
            inner[self.inputs[1]] = RuntimeValue(np.array(True), "caller")
            condition, *results = self._body(iteration, inner, carried, 2, record)
            carried = results[: len(carried)]
            for row, result in zip(rows, results[len(carried) :]):
                row.append(result)
            iteration += 1
            if condition.maker == "wgpu":
                record.crossings.append(Crossing(self.outputs[0], "cpu", 1))
            if most is None or iteration < most:
                going = bool(np.asarray(condition.read()).reshape(-1)[0])
        ports = self.graph.outputs[1 + len(carried) :]
        stacked = [self._stack(row, 0, record) if row else self._empty(port, 0) for row, port in zip(rows, ports)]
        return [*carried, *stacked]

    def _number(self, name: str, env: Env, record: RunRecord) -> int | None:
        if not name:
            return None
        self._value(name, env)
        array = np.asarray(read(env, name, record))
        if array.size != 1:
            raise ShapeError(f"'{name}' is not one element", origin=self.item.origin)
        return int(array.reshape(-1)[0])

    # -- Scan --------------------------------------------------------------------------------------------------------

    def _scan(self, form: _ScanForm, env: Env, record: RunRecord) -> list[RuntimeValue]:
        values = [self._value(name, env) for name in self.item.inputs]
        carried = values[: form.states]
        sizes = {value.shape[axis] for value, axis in zip(values[form.states :], form.axes)}
        if len(sizes) != 1:
            raise ShapeError(f"the sequences of Scan have {sorted(sizes)} elements", origin=self.item.origin)
        iterations = sizes.pop()
        self._check(iterations)
        rows: list[list[RuntimeValue]] = [[] for _ in self.outputs[form.states :]]
        for iteration in range(iterations):
            inner = dict(env)
            inner[form.forwards] = RuntimeValue(np.array(iteration, np.int64), "caller")
            inner[form.backwards] = RuntimeValue(np.array(iterations - 1 - iteration, np.int64), "caller")
            results = self._body(iteration, inner, carried, 0, record)
            carried = results[: form.states]
            for row, result in zip(rows, results[form.states :]):
                row.append(result)
        ports = self.graph.outputs[form.states :]
        return [
            *carried,
            *(
                self._stack(row[::-1] if backwards else row, axis, record) if row else self._empty(port, axis)
                for row, port, axis, backwards in zip(rows, ports, form.out_axes, form.out_directions)
            ),
        ]

    # -- stacked outputs ---------------------------------------------------------------------------------------------

    def _stack(self, row: Sequence[RuntimeValue], axis: int, record: RunRecord) -> RuntimeValue:
        """Stack results of the iterations along a new axis: by copies on the device, or by a small plan."""
        tensors = [held.tensor for held in row]
        axis = axis % (len(row[0].shape) + 1)
        resources = self._context.resources
        present = [tensor for tensor in tensors if tensor is not None]
        facts = _facts_of_rows(row)
        alike = len(present) == len(row) and all(held.is_wide == facts.is_wide for held in row)
        if axis == 0 and alike and can_stack(present):
            return RuntimeValue(stack(present, resources.device, resources.account), "wgpu", facts)
        if any(held.dtype is None for held in row) or (not facts.is_wide and all(held.on_host for held in row)):
            return RuntimeValue(np.stack([held.read() for held in row], axis), row[0].maker, facts)
        names = [f"{self.scope.prefix}row{number}" for number in range(len(row))]
        block = self.stack_block.get((len(row), axis))
        if block is None:
            if len(self.stack_block) >= STACKINGS:
                self.stack_block.clear()
            block = self.stack_block[len(row), axis] = self._stacking(names, axis)
        result = self._context.run_block(block, dict(zip(names, row)), {}, record)
        return result[block.outputs[0]]

    def _stacking(self, names: Sequence[str], axis: int) -> Block:
        scope, origin = self.scope, self.item.origin
        axes = f"{self.scope.prefix}axes{axis}"
        self._context.add_constant(axes, np.array([axis], np.int64))
        wide = [f"{name}.wide" for name in names]
        output = f"{self.scope.prefix}stacked"
        nodes = [make_node("Unsqueeze", scope, [name, axes], [new], origin) for name, new in zip(names, wide)]
        nodes.append(make_node("Concat", scope, wide, [output], origin, axis=axis))
        return Block(f"{origin} stacking", tuple(nodes), (output,))

    def _empty(self, port: Any, axis: int) -> RuntimeValue:
        """Return a stacked output of no iterations; sizes that the body does not declare are 0."""
        dims = [dim if isinstance(dim, int) else 0 for dim in port.dims or ()]
        dims.insert(axis % (len(dims) + 1), 0)
        if port.dtype is None:
            raise UnsupportedError(
                f"the type of '{port.name}' is unknown when no iteration runs", origin=self.item.origin
            )
        return RuntimeValue(np.zeros(dims, interface_dtype(port.dtype)), "compiler")


def _facts_of_rows(row: Sequence[RuntimeValue]) -> ValueFacts:
    """Return what holds of a tensor of these rows."""
    facts = [held.facts for held in row]
    return ValueFacts(
        any(each.is_wide for each in facts),
        all(each.is_integral for each in facts),
        (any(each.overflow[0] for each in facts), any(each.overflow[1] for each in facts)),
    )


class _ScanForm:
    """Slicing of the sequences of a Scan: one Gather each ahead of the body."""

    def __init__(self, step: LoopStep) -> None:
        item, attributes = step.item, step.item.node.attributes
        count = int(attributes.get("num_scan_inputs", 0))
        self.states = len(item.inputs) - count
        stacked = len(step.outputs) - self.states
        if count < 1 or self.states < 0 or stacked < 0 or len(step.inputs) != len(item.inputs):
            raise ModelError("the body of Scan does not fit its operands", origin=item.origin)
        self.axes = tuple(attributes.get("scan_input_axes") or (0,) * count)
        directions = tuple(attributes.get("scan_input_directions") or (0,) * count)
        self.out_axes = tuple(attributes.get("scan_output_axes") or (0,) * stacked)
        self.out_directions = tuple(attributes.get("scan_output_directions") or (0,) * stacked)
        self.forwards = f"{step.scope.prefix}iteration"
        self.backwards = f"{step.scope.prefix}iteration from the end"
        self.reading = [
            make_node(
                "Gather",
                step.scope,
                [sequence, self.backwards if direction else self.forwards],
                [element],
                item.origin,
                axis=axis,
            )
            for sequence, element, axis, direction in zip(
                item.inputs[self.states :], step.inputs[self.states :], self.axes, directions
            )
        ]
