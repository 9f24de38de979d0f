"""``shaderloom inspect``: what a model compiles to, without running it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.errors import DeviceError, InputError
from . import inspect_output as output
from .common import (
    CacheOption,
    DebugOption,
    DeviceOption,
    DynamicOption,
    JsonOption,
    ModelArgument,
    OptionOption,
    ShapeOption,
    parse_dynamic,
    parse_options,
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
    canonical = "canonical"
    layout = "layout"
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
            help="graph: operators with shapes; canonical: after all rewrites; layout: with the order of axes in "
            "memory; fused: kernels with their operators; plan: calls and memory; wgsl: shader text.",
        ),
    ] = Stage.plan,
    after: Annotated[
        str | None, typer.Option("--after", metavar="PASS", help="The graph after this pass, instead of a stage.")
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="N|ID", help="Only this kernel: its number, or start of its id.")
    ] = None,
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write numbered files of every stage to a new folder.")
    ] = None,
    device: DeviceOption = None,
    web: Annotated[
        bool, typer.Option("--web", help="Compile for WebGPU's default limits instead of a device of this machine.")
    ] = False,
    options: OptionOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the graph, the fused kernels, the plan or the shaders of a model.

    [bold]Examples[/bold]

      shaderloom inspect resnet50.onnx

      shaderloom inspect bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --stage fused

      shaderloom inspect resnet50.onnx --stage wgsl --kernel 0

      shaderloom inspect resnet50.onnx --after simplify

      shaderloom inspect resnet50.onnx --dump stages

      shaderloom inspect resnet50.onnx --json | jq '.kernels[].template'
    """
    from ..model import Model

    with progress(quiet=as_json) as report:
        opened = Model(
            model, dynamic=parse_dynamic(dynamic), cache=cache, options=parse_options(options), progress=report
        )
        sizes = input_shapes(opened, parse_shapes(shapes))
        profile = choose_profile(device, web)
        if dump is not None:
            show_dump(opened, sizes, profile, dump, as_json)
        elif after is not None or stage in (Stage.graph, Stage.canonical, Stage.layout, Stage.fused):
            show_trail(opened, sizes, profile, stage, after, as_json)
        else:
            show_plan(compile_plan(opened, sizes, profile), stage, kernel, as_json)


def show_dump(
    model: Model, sizes: dict[str, tuple[int, ...]], profile: DeviceProfile, folder: Path, as_json: bool
) -> None:
    from .. import stages

    written = stages.dump(stages.follow(model, sizes, profile), folder)
    if as_json:
        print_json([str(path) for path in written])
    else:
        typer.echo(f"{len(written)} files in {folder}")


def show_trail(
    model: Model,
    sizes: dict[str, tuple[int, ...]],
    profile: DeviceProfile,
    stage: Stage,
    after: str | None,
    as_json: bool,
) -> None:
    """The graph after a pass or stage, or the fused groups."""
    from .. import stages

    trail = stages.follow(model, sizes, profile, with_plan=False)
    if after is None and stage is Stage.fused:
        output.print_groups(trail.groups, as_json)
        return
    step = trail.after(after) if after is not None else trail.stage(stage)
    output.print_graph(step, trail.rewrites if step.name != stages.FIRST_STEP else [], as_json)


def show_plan(plan: Plan, stage: Stage, kernel: str | None, as_json: bool) -> None:
    if stage is Stage.wgsl:
        output.print_wgsl(plan, kernel, as_json)
    else:
        output.print_plan(plan, kernel, as_json)


def input_shapes(model: Any, given: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
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


def choose_profile(device: str | None, web: bool) -> DeviceProfile:
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


def compile_plan(model: Any, sizes: dict[str, tuple[int, ...]], profile: DeviceProfile) -> Plan:
    from ..feeds import shape_key

    return model.compile(shape_key(model.header, sizes, model.dynamic), sizes, profile).plan
