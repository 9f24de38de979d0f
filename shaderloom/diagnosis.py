"""From the first tensor that differs to its cause.

Float16 numbers that left their range explain themselves.  Otherwise three questions, in order:

1. *Does a kernel compute something else than its own nodes?*  Each kernel between the last right tensors and the wrong
   one is computed again with numpy from the operands that it really had.  If one differs by more than rounding can
   explain, its code is at fault; with fusion off it is seen whether a node's kernel alone is wrong too.
2. *Does a pass change the meaning of the graph?*  If all kernels do what their nodes say, the passes are turned off one
   by one.
3. *Is an operator lowered wrongly?*  With all passes and fusion off, the first ONNX tensor that differs names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .comparison import Difference, compare, not_finite
from .observation import Observation, observe, operands_of, writers_of
from .runtime.dtypes import FLOAT16_LARGEST

if TYPE_CHECKING:
    from .check import Checker, Compilation, Row
    from .compiler.fusion import Group
    from .compiler.ir import Value

#: Last bits by which sums of a few hundred terms differ when they are added in another order
NOISE_FACTOR = 128.0


@dataclass
class Diagnosis:
    """``kind``: ``kernel``, ``pass``, ``operator``, ``overflow``, ``rounding``, or ``unknown``.

    ``node`` is the ONNX node to look at first.
    """

    kind: str
    tensor: str
    call: int | None
    kernel: str
    node: str
    origins: tuple[str, ...] = ()  #: all ONNX nodes of the kernel
    pass_name: str = ""
    findings: list[str] = field(default_factory=list)  #: what was found out, step by step
    worst: Difference | None = None


class Diagnostician:
    """Looks for the cause of one difference; ``rows`` and ``observed`` are those of the plan that was checked."""

    def __init__(
        self,
        checker: Checker,
        compiled: Compilation,
        rows: Sequence[Row],
        observed: Mapping[int, Observation],
    ) -> None:
        self.checker = checker
        self.compiled = compiled
        self.observed = observed
        self.good = {row.tensor for row in rows if row.difference.is_close}

    def run(self, first: Row) -> Diagnosis:
        if first.call is None:
            text = "no kernel of the run computes this output: it is a constant, a weight, or a copy"
            return Diagnosis("unknown", first.tensor, None, "", first.node, findings=[text], worst=first.difference)
        suspects = self._suspects(first.call)
        overflow = self._overflow(first)
        if overflow is not None:
            return overflow
        local = LocalCheck(self.compiled, self.checker.feeds, self.observed)
        for number in suspects:
            difference = local.compare(number)
            if difference is None or difference.is_close:
                continue
            noise = local.noise(number)
            if difference.error <= NOISE_FACTOR * noise:
                return self._rounding(number, first, difference, noise)
            return self._kernel_fault(number, first, difference)
        noise = local.noise(first.call) if first.call in self.observed else 0.0
        if first.difference.error <= NOISE_FACTOR * noise:
            return self._rounding(first.call, first, first.difference, noise)
        return self._graph_fault(first, len(suspects))

    def _suspects(self, call: int) -> list[int]:
        """Calls from the last right tensors to a wrong one, in order."""
        plan = self.compiled.plan
        records, tensors = plan.report["call_records"], plan.report["tensors"]
        writers = writers_of(records)
        found: set[int] = set()
        pending = [call]
        while pending:
            number = pending.pop()
            if number in found:
                continue
            found.add(number)
            for operand in operands_of(records[number]):
                row = tensors[operand]
                if operand in writers and not (row["graph"] == "main" and row["name"] in self.good):
                    pending.append(writers[operand])
        return sorted(found)

    # -- the range of float16 ---------------------------------------------------------------------------------------

    def _overflow(self, first: Row) -> Diagnosis | None:
        """Infinite float16 numbers where the reference has finite ones beyond their range."""
        assert first.call is not None
        found = self.observed.get(first.call)
        if found is None or found.tensor["dtype"] != "float16" or not_finite(found.array) is None:
            return None
        source = self.checker.source
        tensors = [name for index in self._between(first.tensor) for name in source.proto.graph.node[index].output]
        self.checker.expect(name for name in tensors if name)
        for name in tensors:
            largest = self.checker.largest(name)
            if largest is None or largest <= FLOAT16_LARGEST:
                continue
            call = self.compiled.plan.calls[first.call]
            result = Diagnosis(
                "overflow",
                first.tensor,
                first.call,
                first.kernel,
                self.checker.node_of(name),
                call.origins,
                worst=first.difference,
            )
            result.findings.append(
                f"tensor '{name}' reaches {largest:.3g}, float16 ends at {FLOAT16_LARGEST:.0f}: "
                "scale it, or keep it in float32"
            )
            return result
        return None

    def _rounding(self, number: int, first: Row, difference: Difference, noise: float) -> Diagnosis:
        """The kernel magnifies rounding: what any other order of its additions would do, too."""
        from .check import kernel_text

        plan = self.compiled.plan
        result = Diagnosis(
            "rounding",
            first.tensor,
            number,
            kernel_text(plan, number),
            first.node,
            plan.calls[number].origins,
            worst=first.difference,
        )
        result.findings.append(
            f"the kernel's result moves by {noise:.2g} when its operands move by their last bit, and differs by "
            f"{difference.error:.2g}: on these inputs the model magnifies rounding; check it on realistic ones"
        )
        return result

    # -- a kernel ---------------------------------------------------------------------------------------------------

    def _kernel_fault(self, number: int, first: Row, difference: Difference) -> Diagnosis:
        from .check import kernel_text

        plan = self.compiled.plan
        record = plan.report["call_records"][number]
        result = Diagnosis(
            "kernel",
            first.tensor,
            number,
            kernel_text(plan, number),
            (record["anchor"] or list(plan.calls[number].origins) or [first.node])[0],
            plan.calls[number].origins,
            worst=first.difference if number == first.call else difference,
        )
        result.findings.append(
            f"from the operands that it had, the kernel's nodes give something else (error {difference.error:.2g})"
        )
        wrong = self._first_wrong(self._tensors_of(plan.calls[number].origins), fusion=False)
        if wrong is None:
            result.findings.append("with fusion off every ONNX tensor of the group is right: look at the fused kernel")
        else:
            tensor, kernel = wrong
            result.node = self.checker.node_of(tensor)
            result.findings.append(f"with fusion off it is tensor '{tensor}' that differs first, in kernel {kernel}")
        return result

    def _tensors_of(self, origins: Sequence[str]) -> list[str]:
        """The ONNX tensors that these nodes of the main graph make, in graph order."""
        source = self.checker.source
        wanted = set(origins)
        return [name for name, index in source.producers.items() if source.node_text(index) in wanted]

    def _first_wrong(self, tensors: Sequence[str], **options: Any) -> tuple[str, str] | None:
        """The first of ``tensors``, in the order of the run, that differs under other options, and its kernel."""
        from .check import kernel_text

        compiled = self.checker.compile(**options)
        names = self.checker.comparable(compiled.plan)
        wanted = {number: name for number, name in names.items() if name in set(tensors)}
        self.checker.expect(wanted.values())
        for found in observe(self.checker.device, compiled.plan, self.checker.pool, self.checker.feeds, list(wanted)):
            name = wanted[found.call]
            if self.checker.knows(name) and not self.checker.compare(name, found.array).is_close:
                return name, kernel_text(compiled.plan, found.call)
        return None

    # -- a pass, or an operator ---------------------------------------------------------------------------------------

    def _graph_fault(self, first: Row, checked: int) -> Diagnosis:
        from .compiler.passes.pipeline import PASS_NAMES

        assert first.call is not None
        call = self.compiled.plan.calls[first.call]
        result = Diagnosis(
            "unknown", first.tensor, first.call, first.kernel, first.node, call.origins, worst=first.difference
        )
        plural = "kernels compute" if checked > 1 else "kernel computes"
        result.findings.append(f"{checked} {plural} what the nodes say: the graph is at fault, or the numbers drift")
        between = self._between(first.tensor)
        lost = [index for index in between if self.checker.source.node_text(index) not in self._origins()]
        for name in PASS_NAMES:
            if self._first_wrong([first.tensor], fusion=False, disabled_passes=[name]) is None:
                result.kind, result.pass_name = "pass", name
                result.findings.append(f"with the pass '{name}' off the tensor is right")
                break
        else:
            self._blame_operator(result, between)
        if result.kind == "pass" and lost:
            result.node = self.checker.source.node_text(lost[0])
            result.findings.append(f"no kernel computes {', '.join(map(self.checker.source.node_text, lost))}")
        return result

    def _blame_operator(self, result: Diagnosis, between: Sequence[int]) -> None:
        from .compiler.passes.pipeline import PASS_NAMES

        nodes = self.checker.source.proto.graph.node
        tensors = [name for index in between for name in nodes[index].output if name]
        wrong = self._first_wrong(tensors, fusion=False, disabled_passes=list(PASS_NAMES))
        if wrong is None:
            result.findings.append("with all passes and fusion off the tensor is right: several passes together")
            return
        result.kind = "operator"
        result.node = self.checker.node_of(wrong[0])
        result.findings.append(
            f"with all passes and fusion off tensor '{wrong[0]}' differs first: look at the operator's definition"
        )

    def _between(self, tensor: str) -> list[int]:
        """Nodes of the ONNX graph from the last right tensors to ``tensor``, in graph order."""
        source = self.checker.source
        found: set[int] = set()
        pending = [tensor]
        while pending:
            name = pending.pop()
            index = source.producers.get(name)
            if index is None or index in found or (name in self.good and name != tensor):
                continue
            found.add(index)
            pending.extend(source.proto.graph.node[index].input)
        return sorted(found)

    def _origins(self) -> set[str]:
        groups = self.compiled.lowered.fusion.groups
        return {str(origin) for group in groups for node in group.nodes for origin in node.origins}


class LocalCheck:
    """Computes kernels again with numpy, from the operands that they had on the device."""

    def __init__(
        self, compiled: Compilation, feeds: Mapping[str, np.ndarray], observed: Mapping[int, Observation]
    ) -> None:
        from .profiling import symbol_values

        self._fusion = compiled.lowered.fusion
        self._running = [group for group in self._fusion.groups if not group.constant]
        self._numbers = {group.output: number for number, group in enumerate(self._running)}
        self._feeds = feeds
        self._observed = observed
        self._sizes = symbol_values(compiled.plan, feeds)
        self._weights: dict[Value, np.ndarray] = {}
        self._generator: np.random.Generator | None = None

    def compare(self, call: int) -> Difference | None:
        """How far the call's result is from that of its nodes; None if it did not run."""
        if call not in self._observed:
            return None
        expected = self._compute(self._running[call])
        return compare(self._observed[call].array, expected)

    def noise(self, call: int) -> float:
        """How far the call's result moves when each tensor that it reads is scaled by 1 plus or minus its last bit.

        All elements together: errors of sums of similar numbers have one sign, and do not cancel.
        """
        expected = self._compute(self._running[call])
        self._generator = np.random.default_rng(0)
        try:
            moved = self._compute(self._running[call])
        finally:
            self._generator = None
        error = compare(moved, expected).error
        return error if np.isfinite(error) else 0.0

    def _compute(self, group: Group, result: Value | None = None) -> np.ndarray:
        """The group's output, or another of its results."""
        from .compiler.interpret import run_node

        arrays: dict[Value, np.ndarray] = {}
        ordered = sorted(dict.fromkeys(group.nodes), key=_depths(group.nodes).__getitem__)
        for node in ordered:
            operands = [
                None if value is None else arrays[value] if value in arrays else self._moved(self._operand(value))
                for value in node.inputs
            ]
            arrays.update(zip(node.outputs, run_node(node, operands, self._sizes)))
        return arrays[group.output if result is None else result]

    def _moved(self, array: np.ndarray) -> np.ndarray:
        """The operand, scaled a little while :meth:`noise` computes."""
        if self._generator is None or array.dtype != np.float32:
            return array
        sign = self._generator.choice((-1.0, 1.0))
        return (array.astype(np.float64) * (1 + sign * np.finfo(np.float32).eps)).astype(np.float32)

    def _operand(self, value: Value) -> np.ndarray:
        """An operand of a group: a constant, a weight, an input, or what another call wrote."""
        if value.constant is not None:
            return value.constant.read()
        if value.producer is None:
            return self._feeds[value.name]
        if value in self._numbers:
            return self._observed[self._numbers[value]].array
        if value not in self._weights:
            self._weights[value] = self._compute(self._fusion.materialised[value], value)
        return self._weights[value]


def _depths(nodes: Sequence[Any]) -> dict[Any, int]:
    """For each node the longest chain of the others that it depends on."""
    depths: dict[Any, int] = {}
    inside = set(nodes)
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            needed = [
                value.producer
                for value in node.inputs
                if value is not None and value.producer in inside and value.producer not in depths
            ]
            if needed:
                stack.extend(needed)
                continue
            stack.pop()
            producers = [value.producer for value in node.inputs if value is not None and value.producer in inside]
            depths[node] = 1 + max((depths[producer] for producer in producers), default=0)
    return depths
