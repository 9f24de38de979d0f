"""Descriptions of plans as JSON values: for ``inspect``, for ``session.report`` and for tests.

Whatever follows from the plan is derived here; facts of the compiler (nodes, placement, unplanned memory, remarks) come
from the plan's facts and notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.plan.codec import encode
from ..runtime.plan.dimension import DimExpr
from ..runtime.plan.facts import DecisionFacts, EvaluationTime
from ..runtime.plan.plan import Kernel, KernelCall, Plan

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering


def describe_plan(plan: Plan, *, text: bool = False) -> dict[str, Any]:
    """Return kernels, calls, weight transforms and memory of a plan; equal plans give equal descriptions.

    With ``text`` every kernel of the run has its WGSL, so that the description alone can be compared with another one.
    """
    calls = plan.calls
    used = {call.kernel: call for call in reversed(calls)}  # kernel key -> its first call
    kernels = {kernel.key: kernel for kernel in plan.kernels}
    decisions = describe_decisions(plan)
    chosen = [decisions.get(notes.decision or "") for notes in plan.notes.calls] or [None] * len(calls)
    first = {call.kernel: decision for call, decision in reversed(list(zip(calls, chosen)))}
    derived: dict[str, Any] = {
        "kernels": [
            {**_describe_kernel(kernels[key], calls), "decision": first[key]}
            for key in dict.fromkeys(call.kernel for call in calls)
        ],
        "weight_kernels": [_brief(kernel) for kernel in plan.kernels if kernel.key not in used],
        "calls": len(calls),
        "call_list": [
            {**_describe_call(call, repeated), "decision": decision}
            for call, repeated, decision in zip(calls, plan.iterations, chosen)
        ],
        "weight_transforms": sum(bool(weight.calls) for weight in plan.weights),
        "weights": len(plan.weights),
        "arenas": list(plan.arenas),
        "problems": [list(problem) for problem in plan.problems],
        "symbols": {symbol.name: symbol.range.to_json() for symbol in plan.symbols},
        "inputs": [{"name": port.name, "dtype": port.dtype, "shape": list(port.shape)} for port in plan.inputs],
        "outputs": [{"name": port.name, "dtype": port.dtype, "shape": list(port.shape)} for port in plan.outputs],
        "constant_outputs": [constant.output for constant in plan.constants],
        "aliased_outputs": {alias.output: alias.source for alias in plan.aliases},
    }
    if text:
        for row in derived["kernels"]:
            row["wgsl"] = kernels[row["key"]].wgsl
    return {**_describe_compilation(plan), **derived}


def _describe_compilation(plan: Plan) -> dict[str, Any]:
    """Return facts and notes of a plan."""
    facts, notes = plan.facts, plan.notes
    result: dict[str, Any] = {
        "nodes": len(facts.nodes),
        "placement": _describe_placement(facts.nodes),
        **({} if notes.memory is None else encode(notes.memory)),
        "tensors": encode(facts.tensors),
        "call_records": [{**encode(call), **encode(note)} for call, note in zip(facts.calls, notes.calls, strict=True)],
        "decisions": list(describe_decisions(plan).values()),
        "not_fused": encode(notes.not_fused),
    }
    if notes.precision is not None:
        result["precision"] = encode(notes.precision)
    if notes.widened:
        result["widened"] = encode(notes.widened)
    return result


def describe_full_precision(description: Mapping[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return what is float32 where float16 was asked for: a heading for each cause, and the values with their reasons.

    ``description`` is a plan's of :func:`describe_plan`.
    """
    result = []
    precision, widened = description.get("precision"), description.get("widened")
    if precision:
        stored = f"{precision['activations']} activations and {precision['weights']} weights are stored so"
        rows = precision["full_precision"]
        result.append((f"{precision['stored']}: {stored}, {len(rows)} stay float32", rows))
    if widened:
        result.append((f"{len(widened)} tensors that the model declares float16 are float32", widened))
    return result


def _describe_placement(nodes: Sequence[EvaluationTime]) -> dict[str, Any]:
    counts = Counter(nodes)
    weights, folded = counts[EvaluationTime.WEIGHTS], counts[EvaluationTime.FOLDED]
    return {
        "wgpu": counts[EvaluationTime.RUN],
        "cpu": 0,
        "folded": weights + folded,
        "reasons": {
            "weights": f"{weights} nodes depend on constants alone and run once, when weights are made",
            "folded": f"{folded} nodes were computed while compiling, or became parts of others",
        },
    }


def describe_decisions(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return how the configuration for each problem was chosen, by problem."""
    return {decision.problem: _describe_decision(decision) for decision in plan.facts.decisions}


def _describe_decision(decision: DecisionFacts) -> dict[str, Any]:
    row: dict[str, Any] = {
        "problem": decision.problem,
        "source": decision.source,
        "candidates": decision.candidates,
    }
    if decision.nanoseconds is not None:
        row.update(ns=decision.nanoseconds, analytic_ns=decision.analytic_nanoseconds)
    return row


def _brief(kernel: Kernel) -> dict[str, Any]:
    return {"id": kernel.id, "key": kernel.key, "template": kernel.template}


def _problem_of(call: KernelCall) -> str | None:
    """Return the name of the numbers that a call gives to a shared kernel."""
    return next((item.buffer for item in call.ranges if item.buffer.startswith("problem:")), None)


def _describe_kernel(kernel: Kernel, calls: list[KernelCall]) -> dict[str, Any]:
    mine = [call for call in calls if call.kernel == kernel.key]
    return {
        **_brief(kernel),
        "origins": list(dict.fromkeys(origin for call in mine for origin in call.origins)),
        "calls": len(mine),
        "problems": len({_problem_of(call) for call in mine}),
        "grid": list(mine[0].grid),
        "workgroup": list(kernel.workgroup),
        "workgroup_bytes": kernel.workgroup_bytes,
        "bindings": [
            {"name": binding.name, "access": binding.access, "element": binding.element} for binding in kernel.bindings
        ],
        "features": list(kernel.features),
        "config": dict(kernel.config),
        "lines": kernel.wgsl.count("\n") + 1,
    }


def _describe_call(call: KernelCall, iterations: DimExpr) -> dict[str, Any]:
    return {
        "kernel": call.kernel[:12],
        "label": call.label,
        "grid": list(call.grid),
        "iterations": iterations,
        "origins": list(call.origins),
        "flops": call.flops,
        "bytes": call.bytes,
        "ranges": [{"buffer": item.buffer, "offset": item.offset, "size": item.size} for item in call.ranges],
    }


def describe_groups(lowering: Lowering) -> dict[str, Any]:
    """Return the fused groups in execution order, and why neighbours do not share a kernel."""
    groups = [
        {
            "index": index,
            "family": group.family,
            "operators": [node.op for node in group.nodes],
            "origins": list(dict.fromkeys(str(origin) for node in group.nodes for origin in node.origins)),
            "output": repr(group.output),
            "layout": str(group.output.layout),
            "when": "weights" if group.constant else "run",
        }
        for index, group in enumerate(lowering.fusion.groups)
    ]
    refusals = [
        {"producer": str(producer.origin or producer.op), "consumer": str(consumer.origin or consumer.op), "why": why}
        for producer, consumer, why in lowering.fusion.reasons
    ]
    return {"groups": groups, "not_fused": refusals}


def find_kernels(plan: Plan, choice: str | None) -> list[Kernel]:
    """Return the kernels that ``choice`` selects: a position in the list of :func:`describe_plan`, or a prefix of a
    key.

    None selects all kernels of the run, in order of first use.  Returns an empty list if nothing matches.
    """
    kernels: Mapping[str, Kernel] = {kernel.key: kernel for kernel in plan.kernels}
    order = dict.fromkeys(call.kernel for call in plan.calls)
    running = [kernels[key] for key in order]
    if choice is None:
        return running
    if choice.isdecimal() and int(choice) < len(running):
        return [running[int(choice)]]
    return [kernel for kernel in plan.kernels if choice and kernel.key.startswith(choice)]
