"""A Scan of a program as a loop: nodes that take its elements from sequences, and those that turn what it stacks."""

from __future__ import annotations

import numpy as np

from ..compiler.ir.constants import InlineSource
from ..compiler.staging.program_graph import PendingNode, ProgramScope, make_node
from ..runtime.plan.errors import ModelError, UnsupportedError

#: Where a slice ends that runs back to the first element
_BEFORE_THE_FIRST = np.iinfo(np.int64).min


class ScanForm:
    """One Scan, whose body has these qualified ``inputs`` and ``outputs``.

    ``states`` is the number of values that it carries, ``sequences`` has the axis of each sequence, ``forwards`` is the
    number of the iteration, and ``reading`` are the nodes ahead of the body.  Raises :class:`UnsupportedError` for the
    Scan of opset 8, which has a batch.
    """

    def __init__(self, item: PendingNode, scope: ProgramScope, inputs: list[str], outputs: list[str]) -> None:
        attributes = item.node.attributes
        count = int(attributes.get("num_scan_inputs", 0))
        self._item, self._scope = item, scope
        self.states = len(item.inputs) - count
        self._stacked = len(outputs) - self.states
        if "directions" in attributes or len(inputs) == len(item.inputs) - 1:
            raise UnsupportedError("a bundle has no Scan of a batch whose length runs decide", origin=item.origin)
        if count < 1 or self.states < 0 or self._stacked < 0 or len(inputs) != len(item.inputs):
            raise ModelError("the body of Scan does not fit its operands", origin=item.origin)
        axes = tuple(attributes.get("scan_input_axes") or (0,) * count)
        directions = tuple(attributes.get("scan_input_directions") or (0,) * count)
        self.sequences = dict(zip(item.inputs[self.states :], axes))
        self.forwards, backwards = f"{scope.prefix}iteration", f"{scope.prefix}iteration from the end"
        self.reading = [
            make_node(
                "Gather", scope, [sequence, backwards if back else self.forwards], [element], item.origin, axis=axis
            )
            for sequence, element, axis, back in zip(
                item.inputs[self.states :], inputs[self.states :], axes, directions
            )
        ]
        if any(directions):
            last = self._constant("last", np.array(-1))
            self.reading.insert(0, make_node("Sub", scope, [last, self.forwards], [backwards], item.origin))

    def _constant(self, name: str, array: np.ndarray) -> str:
        name = f"{self._scope.prefix}{name}"
        self._item.scope.constants[name] = InlineSource(array)
        return name

    def stacked(self) -> tuple[list[str], list[PendingNode]]:
        """Return the loop's results by position, "" for those that nothing reads, and the nodes that turn some of them:
        rows along another axis than the first, or from the last to the first.
        """
        attributes, item = self._item.node.attributes, self._item
        results = [*item.outputs, *[""] * (self.states + self._stacked - len(item.outputs))]
        axes = attributes.get("scan_output_axes") or (0,) * self._stacked
        directions = attributes.get("scan_output_directions") or (0,) * self._stacked
        nodes = []
        for position, (axis, back) in enumerate(zip(axes, directions), self.states):
            target = results[position]
            if not target or not (axis or back):
                continue
            name = results[position] = f"{self._scope.prefix}rows of {target}"
            if back:
                bounds = [
                    self._constant(text, np.array([number]))
                    for text, number in (("-1", -1), ("end", _BEFORE_THE_FIRST), ("0", 0))
                ]
                turned = f"{name} from the last" if axis else target
                operands = [name, *bounds, bounds[0]]
                nodes.append(make_node("Slice", self._scope, operands, [turned], item.origin))
                name = turned
            if axis:
                rank = len(item.node.blocks["body"].graph.outputs[position].dims or ()) + 1
                order = list(range(1, rank))
                order.insert(axis % rank, 0)
                nodes.append(make_node("Transpose", self._scope, [name], [target], item.origin, perm=tuple(order)))
        return results, nodes
