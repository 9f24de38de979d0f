"""Content of the report as JSON values: kernels, calls with their neighbours, tensors, memory, and the laid-out graph.

Sizes of declared dynamic dimensions are their upper bounds.  Equal plans give equal values, profiles apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...plans.call_graph import CallGraph, readers_of
from ...plans.describe import describe_decisions, describe_full_precision, describe_plan
from ...plans.profiling import PlanProfile
from ...runtime.execution.roofline import Roofline
from ...runtime.plan.device_profile import WEB
from ...runtime.plan.dimension import dim_text, evaluate, shape_text
from ...runtime.plan.facts import TensorFacts, TensorKind
from ...runtime.plan.notes import CallNotes
from ...runtime.plan.plan import Kernel, KernelCall, Plan
from ..inspected_plan import InspectedPlan
from .annotate import comments, parts_of

#: Lines of ONNX nodes in a box of the graph; more are counted
BOX_LINES = 5
_BOX_WIDTH, _LINE_HEIGHT, _BOX_HEAD = 230.0, 14.0, 24.0
_PORT_SIZE = (170.0, 26.0)


def report_data(
    inspected: InspectedPlan, profile: PlanProfile | None = None, roofline: Roofline | None = None
) -> dict[str, Any]:
    """Return all data of the page except the shaders' texts, which :func:`report_texts` returns."""
    return _Collector(inspected, profile, roofline).collect()


def report_texts(plan: Plan) -> dict[str, Any]:
    """Return the shaders' texts by kernel, and the comments of each call."""
    order = _kernel_order(plan)
    return {
        "wgsl": [kernel.wgsl for kernel in order],
        "comments": [[list(note) for note in comments(plan, number)] for number in range(len(plan.calls))],
    }


def _kernel_order(plan: Plan) -> list[Kernel]:
    """Return the kernels of the run in order of first use."""
    kernels = {kernel.key: kernel for kernel in plan.kernels}
    return [kernels[key] for key in dict.fromkeys(call.kernel for call in plan.calls)]


class _Collector:
    def __init__(self, inspected: InspectedPlan, profile: PlanProfile | None, roofline: Roofline | None) -> None:
        self.inspected = inspected
        self.plan = plan = inspected.plan
        self.profile, self.roofline = profile, roofline
        measured = () if profile is None else profile.calls
        self.times = {call.position: (call.nanoseconds, call.roofline) for call in measured}
        self.high = {symbol.name: symbol.high for symbol in plan.symbols}
        self.calls = plan.calls
        self.facts, self.notes = plan.facts, plan.notes
        self.tensors = plan.facts.tensors
        self.description = describe_plan(plan)
        self.full_precision = describe_full_precision(self.description)
        float32_rows = [row for _, rows in self.full_precision for row in rows]
        self.reasons_for_float32 = {row["tensor"]: row["why"] for row in float32_rows if row["tensor"]}
        self.decisions = describe_decisions(plan)
        self.kernels = _kernel_order(plan)
        self.numbers = {kernel.key: number for number, kernel in enumerate(self.kernels)}
        self.writers = plan.facts.writers()
        self.readers = readers_of(plan)

    def collect(self) -> dict[str, Any]:
        calls = [self._call(number) for number in range(len(self.calls))]
        return {
            "subject": self.inspected.facts,
            "dynamic": {symbol.name: symbol.range.to_json() for symbol in self.plan.symbols},
            "summary": self._summary(calls),
            "profile": self._profile(),
            "kernels": [self._kernel(kernel) for kernel in self.kernels],
            "tensors": [self._tensor(row, number) for number, row in enumerate(self.tensors)],
            "calls": calls,
            "graph": self._graph(),
            "memory": self._memory(),
            "full_precision": self.full_precision,
        }

    # -- the whole --------------------------------------------------------------------------------------------------

    def _summary(self, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        description = self.description
        return {
            "nodes": description.get("nodes"),
            "calls": len(calls),
            "kernels": len(self.kernels),
            "weight_transforms": sum(bool(weight.calls) for weight in self.plan.weights),
            "flops": sum(call["flops"] for call in calls),
            "bytes": sum(call["bytes"] for call in calls),
            "planned_bytes": description.get("planned_bytes"),
            "naive_bytes": description.get("naive_bytes"),
            "lower_bound_bytes": description.get("lower_bound_bytes"),
            "weight_bytes": description.get("weight_bytes"),
            "in_place": description.get("in_place"),
            "placement": description.get("placement"),
        }

    def _profile(self) -> dict[str, Any] | None:
        if self.profile is None:
            return None
        facts: dict[str, Any] = {
            "method": self.profile.method,
            "runs": self.profile.runs,
            "ns": self.profile.nanoseconds,
        }
        if self.roofline is not None:
            facts["bytes_per_second"] = self.roofline.bytes_per_second
            facts["flops_per_second"] = self.roofline.flops_per_second
        return facts

    # -- parts ------------------------------------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> dict[str, Any]:
        return {
            "id": kernel.id,
            "template": kernel.template,
            "workgroup": list(kernel.workgroup),
            "workgroup_bytes": kernel.workgroup_bytes,
            "bindings": [[binding.name, binding.access, binding.element] for binding in kernel.bindings],
            "config": dict(kernel.config),
            "lines": kernel.wgsl.count("\n"),
            "needs": portability(kernel),
        }

    def _tensor(self, tensor: TensorFacts, number: int) -> dict[str, Any]:
        return {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": shape_text(tensor.shape),
            "layout": tensor.layout.text,
            "kind": tensor.kind.value,
            "from": self.writers.get(number),
            "to": self.readers.get(number, []),
            **({"float32": self.reasons_for_float32[tensor.name]} if tensor.name in self.reasons_for_float32 else {}),
        }

    def _call(self, number: int) -> dict[str, Any]:
        call, facts, notes = self.calls[number], self.facts.calls[number], self.notes.calls[number]
        flops, moved = evaluate(call.flops, self.high), evaluate(call.bytes, self.high)
        grid = [evaluate(size, self.high) for size in call.grid]
        row: dict[str, Any] = {
            "kernel": self.numbers[call.kernel],
            "label": call.label,
            "family": notes.family,
            "grid": [dim_text(size) for size in call.grid],
            "origins": list(call.origins),
            **dict(zip(("prologue", "anchor", "epilogue"), parts_of(notes))),
            "operands": list(facts.operands),
            "in_place": facts.in_place,
            "flops": flops,
            "bytes": moved,
            "alternatives": self._alternatives(notes),
            "decision": self.decisions.get(notes.decision or ""),
            "limits": self._limits(call, grid),
        }
        measured = self.times.get(number)
        if measured is not None:
            row["ns"], row["roofline"] = measured
        return row

    def _alternatives(self, notes: CallNotes) -> list[dict[str, Any]]:
        """Return the candidate configurations of the call's kernel."""
        return [
            {"config": item.config, "cost": item.cost} | ({"chosen": True} if item.chosen else {})
            for item in self.notes.alternatives.get(notes.decision or "", ())
        ]

    def _limits(self, call: KernelCall, grid: Sequence[int]) -> list[str]:
        """List what WebGPU's default limits would refuse of this call."""
        largest = max((evaluate(item.size, self.high) for item in call.ranges), default=0)
        exceeded = []
        if max(grid) > WEB.limit("max-compute-workgroups-per-dimension"):
            exceeded.append(f"{max(grid):,} workgroups in a dimension")
        if largest > WEB.limit("max-storage-buffer-binding-size"):
            exceeded.append(f"a binding of {largest:,} bytes")
        return exceeded

    # -- the graph --------------------------------------------------------------------------------------------------

    def _graph(self) -> dict[str, Any]:
        """Return boxes (calls, then inputs, then outputs) with their coordinates, and edges with reasons against
        fusion.
        """
        graph = CallGraph.of(self.plan)
        count, ports = len(self.calls), len(graph.inputs) + len(graph.outputs)
        sizes = [self._box_size(call) for call in self.calls] + [_PORT_SIZE] * ports
        places = graph.place(sizes)
        reasons = self._reasons()
        return {
            "boxes": [[*places[box], *sizes[box]] for box in range(len(sizes))],
            "ports": [["input", tensor] for tensor in graph.inputs] + [["output", tensor] for tensor in graph.outputs],
            "edges": [
                [source, target, tensor, reasons(source, target) if max(source, target) < count else []]
                for source, target, tensor in graph.edges
            ],
        }

    @staticmethod
    def _box_size(call: KernelCall) -> tuple[float, float]:
        lines = min(len(call.origins), BOX_LINES) + (len(call.origins) > BOX_LINES)
        return _BOX_WIDTH, _BOX_HEAD + _LINE_HEIGHT * lines + 6

    def _reasons(self) -> Any:
        """Return a function that maps two calls to the reasons why the second was not fused with the first."""
        groups_of: dict[str, list[int]] = defaultdict(list)
        for number, call in enumerate(self.calls):
            for origin in call.origins:
                groups_of[origin].append(number)
        reasons: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
        for refusal in self.notes.not_fused:
            for source in groups_of.get(refusal.producer, ()):
                for target in groups_of.get(refusal.consumer, ()):
                    if source != target:
                        reasons[source, target][f"{refusal.producer} and {refusal.consumer}: {refusal.why}"] = None
        return lambda source, target: list(reasons.get((source, target), ()))

    # -- memory -----------------------------------------------------------------------------------------------------

    def _memory(self) -> dict[str, Any]:
        """Return the blocks of activation memory: tensor, buffer, offset, bytes, first and last call."""
        blocks: list[list[Any]] = []
        for tensor, writer in sorted(self.writers.items(), key=lambda item: item[1]):
            written = self.calls[writer].ranges[self.facts.calls[writer].operands.index(tensor)]
            last = max(self.readers.get(tensor, [writer]), default=writer)
            if self.tensors[tensor].kind is TensorKind.OUTPUT:
                last = len(self.calls) - 1
            offset, size = evaluate(written.offset, self.high), evaluate(written.size, self.high)
            blocks.append([tensor, written.buffer, offset, size, writer, max(last, writer)])
        sizes = {f"arena:{number}": evaluate(size, self.high) for number, size in enumerate(self.plan.arenas)}
        for _, buffer, offset, size, *_ in blocks:
            if buffer not in sizes:
                sizes[buffer] = offset + size
        return {"blocks": blocks, "buffers": [[name, size] for name, size in sizes.items()]}


def portability(kernel: Kernel) -> list[str]:
    """List what a kernel needs beyond WebGPU's default limits and features; [] if every WebGPU browser can run it."""
    return list(_needs(kernel))


def _needs(kernel: Kernel) -> Iterator[str]:
    storage = sum(not binding.is_uniform for binding in kernel.bindings)
    x, y, z = kernel.workgroup
    amounts = (
        (storage, "max-storage-buffers-per-shader-stage", "storage buffers"),
        (x * y * z, "max-compute-invocations-per-workgroup", "threads in a workgroup"),
        (kernel.workgroup_bytes, "max-compute-workgroup-storage-size", "bytes of workgroup memory"),
        (x, "max-compute-workgroup-size-x", "threads along x"),
        (y, "max-compute-workgroup-size-y", "threads along y"),
        (z, "max-compute-workgroup-size-z", "threads along z"),
    )
    for amount, limit, what in amounts:
        if amount > WEB.limit(limit):
            yield f"{amount:,} {what}"
    yield from kernel.features
    if "enable f16;" in kernel.wgsl and "shader-f16" not in kernel.features:
        yield "shader-f16"
