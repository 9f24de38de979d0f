"""``shaderloom inspect``: what a model compiles to, without running it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.errors import DeviceError, InputError
from .common import (
    CacheOption,
    DebugOption,
    DeviceOption,
    DynamicOption,
    JsonOption,
    ModelArgument,
    ShapeOption,
    format_bytes,
    parse_dynamic,
    parse_shapes,
    print_json,
    progress,
    readable_errors,
)

if TYPE_CHECKING:
    from ..model import Model
    from ..runtime.device_profile import DeviceProfile
    from ..runtime.plan import Plan


class Stage(StrEnum):
    """How far the model is compiled before it is shown."""

    graph = "graph"
    fused = "fused"
    plan = "plan"
    wgsl = "wgsl"


@readable_errors
def command(
    model: ModelArgument,
    shapes: ShapeOption = None,
    dynamic: DynamicOption = None,
    stage: Annotated[
        Stage,
        typer.Option(
            "--stage",
            help="graph: operators with shapes; fused: kernels with their operators; plan: calls and memory; "
            "wgsl: shader text.",
        ),
    ] = Stage.plan,
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="N|ID", help="Only this kernel: its number, or start of its id.")
    ] = None,
    device: DeviceOption = None,
    web: Annotated[
        bool, typer.Option("--web", help="Compile for WebGPU's default limits instead of a device of this machine.")
    ] = False,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the graph, the fused kernels, the plan or the shaders of a model.

    [bold]Examples[/bold]

      shaderloom inspect resnet50.onnx

      shaderloom inspect bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --stage fused

      shaderloom inspect resnet50.onnx --stage wgsl --kernel 0

      shaderloom inspect resnet50.onnx --json | jq '.kernels[].template'
    """
    from ..model import Model

    with progress(quiet=as_json) as report:
        opened = Model(model, dynamic=parse_dynamic(dynamic), cache=cache, progress=report)
        sizes = _input_shapes(opened, parse_shapes(shapes))
        if stage in (Stage.plan, Stage.wgsl):
            plan = _compile(opened, sizes, _profile(device, web))
        elif stage is Stage.fused:
            groups = _groups(opened, sizes, _profile(device, web))
        else:
            text = _graph_text(opened, sizes)
    if stage is Stage.graph:
        _print_graph(text, as_json)
    elif stage is Stage.fused:
        _print_groups(groups, as_json)
    elif stage is Stage.wgsl:
        _print_wgsl(plan, kernel, as_json)
    else:
        _print_plan(plan, kernel, as_json)


def _input_shapes(model: Model, given: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of all inputs: those given, and those that the model declares as numbers."""
    shapes = dict(given)
    for port in model.header.inputs:
        if port.name in shapes:
            continue
        if port.dims is None or not all(isinstance(dim, int) for dim in port.dims):
            declared = "unknown" if port.dims is None else "x".join("?" if d is None else str(d) for d in port.dims)
            raise InputError(
                f"the model declares the shape {declared}",
                tensor=port.name,
                hint=f"give the sizes: --shape {port.name}=...",
            )
        shapes[port.name] = tuple(dim for dim in port.dims if isinstance(dim, int))
    return shapes


def _profile(device: str | None, web: bool) -> DeviceProfile:
    """The profile to compile for; without any adapter that of the web, which every device satisfies."""
    from ..runtime.device_profile import WEB

    if web:
        return WEB
    from ..runtime.device import open_device

    try:
        return open_device(device).profile
    except DeviceError as error:
        if device is not None:
            raise
        typer.echo(f"note: {error.reason}; compiling for WebGPU's default limits", err=True)
        return WEB


def _compile(model: Model, sizes: dict[str, tuple[int, ...]], profile: DeviceProfile) -> Plan:
    from ..feeds import shape_key

    return model.compile(shape_key(model.header, sizes, model.dynamic), sizes, profile).plan


def _graph_text(model: Model, sizes: dict[str, tuple[int, ...]]) -> str:
    """The specialised graph, before any pass."""
    from ..compiler.specialise import bind_shapes, specialise

    bound = bind_shapes(model.imported, sizes, model.dynamic)
    return specialise(model.imported, bound.shapes).text()


def _groups(model: Model, sizes: dict[str, tuple[int, ...]], profile: DeviceProfile) -> dict[str, Any]:
    """The graph after fusion and layout."""
    from ..compiler.driver import CompileOptions, lower
    from ..compiler.specialise import bind_shapes
    from ..inspection import describe_groups

    bound = bind_shapes(model.imported, sizes, model.dynamic)
    return describe_groups(lower(model.imported, bound, profile, CompileOptions()))


def _print_graph(text: str, as_json: bool) -> None:
    if as_json:
        print_json({"stage": "graph", "text": text.splitlines()})
    else:
        typer.echo(text)


def _print_groups(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    for group in facts["groups"]:
        once = ", once, for weights" if group["when"] == "weights" else ""
        typer.echo(f"{group['index']:4}  {group['family']}{once}: {' '.join(group['operators'])} -> {group['output']}")
        for origin in group["origins"]:
            typer.echo(f"        {origin}")
    if facts["not_fused"]:
        typer.echo("\nnot fused:")
    for row in facts["not_fused"]:
        typer.echo(f"  {row['producer']} with {row['consumer']}: {row['why']}")


def _print_wgsl(plan: Plan, choice: str | None, as_json: bool) -> None:
    from ..inspection import find_kernels

    found = find_kernels(plan, choice)
    if choice is not None and not found:
        raise InputError(f"the plan has no kernel '{choice}'", hint="--stage plan lists them")
    if as_json:
        print_json([{"id": kernel.id, "template": kernel.template, "wgsl": kernel.wgsl} for kernel in found])
        return
    for kernel in found:
        typer.echo(f"// kernel {kernel.id}, template {kernel.template}, workgroup {kernel.workgroup}")
        typer.echo(kernel.wgsl)


def _print_plan(plan: Plan, choice: str | None, as_json: bool) -> None:
    from ..inspection import describe_plan, find_kernels

    facts = describe_plan(plan)
    if choice is not None:
        chosen = {kernel.id for kernel in find_kernels(plan, choice)}
        if not chosen:
            raise InputError(f"the plan has no kernel '{choice}'", hint="--stage plan lists them")
        facts["kernels"] = [row for row in facts["kernels"] if row["id"] in chosen]
        facts["call_list"] = [row for row in facts["call_list"] if row["kernel"] in chosen]
    if as_json:
        print_json(facts)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    numbers = {row["id"]: index for index, row in enumerate(facts["kernels"])}
    templates = {row["id"]: row["template"] for row in facts["kernels"]}
    table = Table()
    for title in ("call", "kernel", "id", "template", "grid", "ONNX nodes"):
        table.add_column(title)
    for index, row in enumerate(facts["call_list"]):
        identity = row["kernel"]
        grid = " ".join(_dim(size) for size in row["grid"])
        origins = escape("\n".join(row["origins"]))
        table.add_row(str(index), str(numbers[identity]), identity, templates[identity], grid, origins)
    console = Console()
    console.print(table)
    for line in _summary(facts):
        console.print(line, highlight=False)


def _summary(facts: dict[str, Any]) -> list[str]:
    lines = [
        f"{facts.get('nodes', '?')} ONNX nodes, {len(facts['kernels'])} kernels, {facts['calls']} calls a run, "
        f"{facts['weight_transforms']} weight transforms"
    ]
    if isinstance(facts.get("planned_bytes"), int):
        lines.append(
            f"activations: {format_bytes(facts['planned_bytes'])} planned, "
            f"{format_bytes(facts['naive_bytes'])} with a buffer for every tensor, "
            f"{format_bytes(facts['lower_bound_bytes'])} at least"
        )
    placement = facts.get("placement")
    if isinstance(placement, dict):
        lines.append(
            "placement: " + ", ".join(f"{name} {count}" for name, count in placement.items() if name != "reasons")
        )
    return lines


def _dim(size: Any) -> str:
    """A dimension of a plan for people: a number, a name, or an expression in prefix form."""
    if isinstance(size, (int, str)):
        return str(size)
    return "(" + " ".join(_dim(part) for part in size) + ")"
