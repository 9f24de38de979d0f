"""Output of ``shaderloom inspect``: text for people, or deterministic JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..inspect.inspected_plan import size_rows
from ..plans.describe import describe_full_precision
from ..plans.placement import count_placements
from ..runtime.plan.codec import encode
from ..runtime.plan.dimension import dim_text
from ..runtime.plan.errors import InputError
from .common import count_text, format_bytes, print_json
from .terminal import echo

if TYPE_CHECKING:
    from ..compiler.compilation import PassReport
    from ..inspect.inspected_plan import InspectedPlan
    from ..inspect.pass_trace import GraphText
    from ..inspect.program_view import ProgramView
    from ..plans.diff import PlanDifference
    from ..runtime.plan.plan import Plan

#: Tensors listed for one reason
_SHOWN = 8


def print_graph(graph: GraphText, rewrites: list[dict[str, Any]], as_json: bool) -> None:
    """Print a graph; as JSON also the rewrites that were tried."""
    if as_json:
        print_json({"after": graph.after, "text": graph.text.splitlines(), "rewrites": rewrites})
    else:
        echo(graph.text)


def print_passes(reports: Sequence[PassReport], required: Collection[str], as_json: bool) -> None:
    """Print what each pass that ran did, in order; those that ``disabled_passes`` may name are marked."""
    if as_json:
        print_json([{**asdict(report), "optional": report.name not in required} for report in reports])
        return
    echo(f"{'':30}{'changes':>8} {'nodes':>8} {'ms':>9}")
    for report in reports:
        mark = "" if report.name in required else "  may be disabled"
        echo(f"{report.name:30}{report.changes:8} {report.nodes:8} {report.milliseconds:9.2f}{mark}")


def print_groups(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    for group in facts["groups"]:
        once = ", once, for weights" if group["when"] == "weights" else ""
        echo(f"{group['index']:4}  {group['family']}{once}: {' '.join(group['operators'])} -> {group['output']}")
        for origin in group["origins"]:
            echo(f"        {origin}")
    if facts["not_fused"]:
        echo("\nnot fused:")
    for row in facts["not_fused"]:
        echo(f"  {row['producer']} with {row['consumer']}: {row['why']}")


def print_wgsl(plan: Plan, choice: str | None, as_json: bool) -> None:
    """Print shaders; as text with comments that name the ONNX nodes and tensors of a kernel's first call."""
    from ..inspect.report.annotate import annotated, comments
    from ..plans.describe import find_kernels

    kernels = find_kernels(plan, choice)
    if choice is not None and not kernels:
        raise InputError(f"the plan has no kernel '{choice}'", hint="--show plan lists them")
    if as_json:
        print_json([{"id": kernel.id, "template": kernel.template, "wgsl": kernel.wgsl} for kernel in kernels])
        return
    first = {call.kernel: number for number, (call, _) in reversed(list(enumerate(zip(plan.calls, plan.facts.calls))))}
    for kernel in kernels:
        count = len({item.buffer for call in plan.calls if call.kernel == kernel.key for item in call.ranges[-1:]})
        is_shared = bool(kernel.bindings) and kernel.bindings[-1].name == "problem"
        shared = f", shared by {count} problems, with the numbers of the first" if is_shared else ""
        echo(f"// kernel {kernel.id}, template {kernel.template}, workgroup {kernel.workgroup}{shared}")
        number = first.get(kernel.key)
        echo(kernel.wgsl if number is None else annotated(kernel.wgsl, comments(plan, number)))


def print_plan(inspected: InspectedPlan, choice: str | None, as_json: bool) -> None:
    from ..plans.describe import find_kernels

    facts = inspected.describe()
    if choice is not None:
        chosen = {kernel.id for kernel in find_kernels(inspected.plan, choice)}
        if not chosen:
            raise InputError(f"the plan has no kernel '{choice}'", hint="--show plan lists them")
        facts["kernels"] = [row for row in facts["kernels"] if row["id"] in chosen]
        facts["call_list"] = [row for row in facts["call_list"] if row["kernel"] in chosen]
    if as_json:
        print_json(facts)
        return
    numbers = {row["id"]: index for index, row in enumerate(facts["kernels"])}
    templates = {row["id"]: row["template"] for row in facts["kernels"]}
    problems = {row["id"]: row["problems"] for row in facts["kernels"]}
    echo(f"{'call':>5} {'kernel':>6}  {'id':12}  {'template':17}  grid")
    for index, row in enumerate(facts["call_list"]):
        identity = row["kernel"]
        grid = " ".join(dim_text(size) for size in row["grid"])
        if row["iterations"] != 1:
            grid += f", {dim_text(row['iterations'])} times"
        echo(f"{index:5} {numbers[identity]:6}  {identity:12}  {templates[identity]:17}  {grid}")
        echo(f"      {', '.join(row['origins'])}")
        if row["decision"] is not None:
            echo(f"      {decision_text(row['decision'])}")
        if problems[identity] > 1:
            echo(f"      shared by {problems[identity]} problems")
    echo()
    for line in summary(facts):
        echo(line)


def print_placement(view: ProgramView, as_json: bool) -> None:
    """Print the provider of each node, the steps of a run, and the values that cross between providers."""
    if as_json:
        print_json(view.to_json())
        return
    width = max([len(row.node) for row in view.placements], default=4)
    for row in view.placements:
        operator = f"{row.domain}.{row.op_type}" if row.domain else row.op_type
        echo(f"{row.provider:6}  {row.node:{min(width, 48)}}  {operator:20}  {row.reason}".rstrip())
    echo(f"\n{count_placements(view.placements)}")
    if view.steps:
        echo(f"a run takes {count_text(len(view.steps), 'step')}: {', '.join(view.steps)}")
    for crossing in view.crossings:
        echo(f"  '{crossing.tensor}' goes to {crossing.to}: {format_bytes(crossing.bytes)}")
    for number, facts in enumerate(view.precision, 1):
        lines = [f"float32 as a whole: {facts['why']}"] if "why" in facts else _full_precision({"precision": facts})
        _print_of_stage(view, number, lines)
    for number, plan in enumerate(view.plans, 1):
        if plan.notes.widened:
            _print_of_stage(view, number, _full_precision({"widened": encode(plan.notes.widened)}))


def _print_of_stage(view: ProgramView, number: int, lines: Sequence[str]) -> None:
    echo(f"stage {number}: " if len(view.plans) > 1 else "", newline=False)
    echo("\n".join(lines))


def print_difference(difference: PlanDifference) -> None:
    """Print calls removed, added and changed, and the shader lines that differ; nothing if the plans are equal."""
    for sign, rows in (("-", difference.removed), ("+", difference.added)):
        for position, call in rows:
            echo(f"{sign} call {position}, kernel {call['kernel']}: {', '.join(call['origins'])}")
    shown: set[tuple[str, str]] = set()
    for changed in difference.changed:
        kernels = changed.kernel_before
        if changed.is_kernel_changed:
            kernels = f"{changed.kernel_before} -> {changed.kernel_after}"
        echo(f"~ call {changed.after}, kernel {kernels}: {', '.join(changed.origins)}")
        for name, (before, after) in changed.fields.items():
            if name not in ("ranges", "bindings"):
                echo(f"    {name}: {before} -> {after}")
        pair = (changed.kernel_before, changed.kernel_after)
        if changed.text and pair not in shown:
            echo("\n".join(f"    {line}" for line in changed.text))
        shown.add(pair)
    for name, (before, after) in difference.facts.items():
        echo(f"~ {name}: {before} -> {after}")


def summary(facts: dict[str, Any]) -> list[str]:
    """Summarise a plan in a few lines: counts, memory, placement, precision."""
    lines = [
        f"{count_text(facts['nodes'], 'ONNX node') if 'nodes' in facts else '? ONNX nodes'}, "
        f"{count_text(len(facts['kernels']), 'kernel')}, {count_text(facts['calls'], 'call')} a run, "
        f"{count_text(facts['weight_transforms'], 'weight transform')}"
    ]
    if isinstance(facts.get("planned_bytes"), int):
        lines.append(
            f"activations: {format_bytes(facts['planned_bytes'])} planned, "
            f"{format_bytes(facts['naive_bytes'])} with a buffer for every tensor, "
            f"{format_bytes(facts['lower_bound_bytes'])} at least"
        )
    sources = Counter(row["source"] for row in facts.get("decisions", ()))
    if sources:
        lines.append("configurations: " + ", ".join(f"{count} {source}" for source, count in sorted(sources.items())))
    placement = facts.get("placement")
    if isinstance(placement, dict):
        lines.append(
            "placement: " + ", ".join(f"{name} {count}" for name, count in placement.items() if name != "reasons")
        )
    return [*lines, *map(": ".join, size_rows(facts["subject"].get("dynamic", {}))), *_full_precision(facts)]


def _full_precision(facts: dict[str, Any]) -> list[str]:
    """List what is float32 in place of float16, by cause and reason."""
    return [line for heading, rows in describe_full_precision(facts) for line in (heading, *_by_reason(rows))]


def _by_reason(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the values that stay float32, a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row["why"], []).append(row["tensor"] or row["node"] or "a weight")
    lines = []
    for why, names in by_reason.items():
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        lines.append(f"  {why}: {shown}")
    return lines


def decision_text(decision: Mapping[str, Any]) -> str:
    """Return the source of a kernel's configuration and its measurements as text."""
    if "ns" not in decision:
        return "configuration: analytic, not measured" if decision["candidates"] > 1 else "configuration: the only one"
    times = f"{decision['ns'] / 1e6:.3f} ms" if decision["ns"] else "no time could be measured"
    if decision["ns"] and decision["analytic_ns"] != decision["ns"]:
        times += f", {decision['analytic_ns'] / 1e6:.3f} ms with the cost model's"
    return f"configuration: {decision['source']}, {times}"
