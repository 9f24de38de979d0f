"""``shaderloom inspect``: show what a model compiles to, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.plan.errors import DeviceError, DeviceLimitError, InputError, NotKnownError, UnsupportedError
from . import inspect_output as output
from .common import parse_dynamic, parse_options, parse_pairs, parse_shapes, print_json, readable_errors, with_precision
from .options import (
    CacheOption,
    DebugOption,
    DeviceOption,
    DynamicOption,
    HalfOption,
    InputOption,
    JsonOption,
    KernelOption,
    ModelOrBundleArgument,
    OptionOption,
    ShapeOption,
)
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..inspect.inspected_plan import InspectedPlan
    from ..inspect.program_view import ProgramView
    from ..model.compiled import Progress
    from ..model.model import Model
    from ..runtime.plan.device_profile import DeviceProfile


class Stage(StrEnum):
    """The point of the compilation to show."""

    passes = "passes"
    graph = "graph"
    canonical = "canonical"
    layout = "layout"
    fused = "fused"
    plan = "plan"
    wgsl = "wgsl"
    placement = "placement"


#: Errors of a model that is no single plan; it may run in several steps
_IN_STEPS = (NotKnownError, UnsupportedError, DeviceLimitError)

GRAPH_STAGES = (Stage.passes, Stage.graph, Stage.canonical, Stage.layout, Stage.fused)


@readable_errors
def command(
    model: ModelOrBundleArgument,
    inputs: InputOption = None,
    shapes: ShapeOption = None,
    dynamic: DynamicOption = None,
    stage: Annotated[
        Stage,
        typer.Option(
            "--stage",
            help="passes: what each pass did, and its time; graph: operators with shapes; canonical: after "
            "all rewrites; layout: with the order of axes in "
            "memory; fused: kernels with their operators; plan: calls and memory; wgsl: shader text; placement: where "
            "each node runs, and why.",
        ),
    ] = Stage.plan,
    after: Annotated[
        str | None, typer.Option("--after", metavar="PASS", help="The graph after this pass, instead of a stage.")
    ] = None,
    kernel: KernelOption = None,
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write numbered files of every stage to a new folder.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Write a report for a browser: one file, offline."),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--profile", help="With --html: run on random inputs, and show the time of every kernel.")
    ] = False,
    other: Annotated[
        Path | None,
        typer.Option(
            "--diff",
            metavar="OTHER",
            help="What changes from OTHER (a model, a bundle, or what inspect --json printed) to this model.",
        ),
    ] = None,
    other_options: Annotated[
        list[str] | None,
        typer.Option("--diff-option", metavar="NAME=JSON", help="Option of the compiler for OTHER; repeatable."),
    ] = None,
    options: OptionOption = None,
    f16: HalfOption = False,
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

      shaderloom inspect resnet50.onnx --after simplify

      shaderloom inspect resnet50.onnx --dump stages

      shaderloom inspect resnet50.onnx --html report.html --profile

      shaderloom inspect new.onnx --diff old.onnx

      shaderloom inspect resnet50.onnx --diff resnet50.onnx --diff-option 'disabled_passes=["fuse"]'

      shaderloom inspect detector.onnx --stage placement

      shaderloom inspect resnet50.onnx --json | jq '.kernels[].template'
    """
    chosen = with_precision(parse_options(options), f16)
    with progress(quiet=as_json) as report:
        values = parse_pairs(inputs, "--input")
        if values and stage is not Stage.placement and html is None:
            raise InputError("--input is for what runs the model", hint="--stage placement and --html may")
        opening = Opening(parse_shapes(shapes), values, device, web, parse_dynamic(dynamic), cache, report)
        if other is not None:
            before = opening.describe(other, parse_options(other_options))
            show_difference(before, opening.describe(model, chosen), as_json)
            return
        if other_options:
            raise InputError("--diff-option is an option of OTHER", hint="give --diff OTHER too")
        if html is not None:
            from .session import keep_model

            keep_model(html, model)
            opening.write_html(html, model, chosen, measure)
            if not as_json:
                echo(f"wrote {html}")
            return
        if dump is not None or after is not None or stage in GRAPH_STAGES:
            opened, sizes = opening.model(model, chosen)
            if dump is not None:
                show_dump(opened, sizes, opening.profile, dump, as_json)
            else:
                show_graph(opened, sizes, opening.profile, stage, after, as_json)
        elif stage is Stage.placement:
            output.print_placement(opening.view(model, chosen), as_json)
        else:
            show_plan(opening.inspected(model, chosen), stage, kernel, as_json)


@dataclass
class Opening:
    """Opens models and bundles with the options of this command."""

    shapes: dict[str, tuple[int, ...]]
    values: dict[str, str]
    device: str | None
    web: bool
    dynamic: dict[str, tuple[int, ...]]
    cache: bool
    progress: Progress

    @cached_property
    def profile(self) -> DeviceProfile:
        return choose_profile(self.device, self.web)

    def model(self, path: Path, options: dict[str, Any]) -> tuple[Model, dict[str, tuple[int, ...]]]:
        """Open a model and return it with its input shapes; raise :class:`InputError` for a bundle."""
        from ..inspect.inspected_plan import looks_like_bundle
        from ..model.model import Model

        if looks_like_bundle(path):
            raise InputError(f"'{path}' is a bundle: it holds plans and shaders, no graph", hint="inspect the model")
        opened = Model(path, dynamic=self.dynamic, cache=self.cache, options=options, progress=self.progress)
        return opened, input_shapes(opened, self.shapes)

    def inspected(self, path: Path, options: dict[str, Any]) -> InspectedPlan:
        """Compile the model, or select the bundle's plan, for inspection."""
        from ..inspect.inspected_plan import inspect_bundle, inspect_model, looks_like_bundle

        if looks_like_bundle(path):
            self.check_bundle_options(options)
            return inspect_bundle(path, self.shapes)
        opened, sizes = self.model(path, options)
        try:
            return inspect_model(opened, sizes, self.profile)
        except _IN_STEPS as error:
            error.hint = (
                f"{error.hint}; " if error.hint else ""
            ) + "the model is no single plan: --stage placement and --html show its stages"
            raise

    def view(self, path: Path, options: dict[str, Any]) -> ProgramView:
        """Return where the nodes of a model run; a model of several plans runs once, on random inputs by default."""
        from ..inspect.inspected_plan import looks_like_bundle
        from ..inspect.program_view import view_of
        from ..runtime.device.device import open_device
        from .session import make_feeds

        if looks_like_bundle(path):
            raise InputError(f"'{path}' is a bundle: it does not hold the model's nodes", hint="inspect the model")
        if self.web:
            raise InputError("stages are compiled for a device of this machine", hint="leave out --web")
        return view_of(
            path,
            lambda session: make_feeds(session, self.values, self.shapes, 0),
            device=open_device(self.device),
            dynamic=self.dynamic,
            cache=self.cache,
            options=options,
        )

    def check_bundle_options(self, options: dict[str, Any]) -> None:
        if options or self.dynamic:
            raise InputError("the plans of a bundle are compiled already", hint="leave out --option and --dynamic")

    def write_html(self, target: Path, path: Path, options: dict[str, Any], measure: bool) -> None:
        """Write the report of a model or a bundle, with measurements if ``measure``."""
        from .inspect_html import write_report

        if not measure:
            try:
                inspected = self.inspected(path, options)
            except _IN_STEPS:
                if self.web:
                    raise
                inspected = self.view(path, options).largest()
            write_report(target, inspected)
            return
        from ..inspect.inspected_plan import inspect_bundle, looks_like_bundle
        from ..session.session import InferenceSession
        from .session import make_feeds

        if self.web and not looks_like_bundle(path):
            raise InputError("times are measured on a device of this machine", hint="leave out --web or --profile")
        if looks_like_bundle(path):
            from ..bundles.session import load_bundle

            self.check_bundle_options(options)
            session: InferenceSession = load_bundle(path, device=self.device)
            inspected = inspect_bundle(path, self.shapes, session.device.profile.kind)
        else:
            inspected = self.inspected(path, options)
            session = InferenceSession(
                path, device=self.device, dynamic=self.dynamic, cache=self.cache, options=options
            )
        with session:
            write_report(target, inspected, session, make_feeds(session, self.values, self.shapes, 0))

    def describe(self, path: Path, options: dict[str, Any]) -> dict[str, Any]:
        """Return the description of a model's or a bundle's plan, or the one stored in a JSON file."""
        from ..inspect.inspected_plan import read_description

        if path.suffix == ".json":
            return read_description(path)
        return self.inspected(path, options).describe()


def show_dump(
    model: Model, sizes: dict[str, tuple[int, ...]], profile: DeviceProfile, folder: Path, as_json: bool
) -> None:
    from ..inspect import pass_trace

    written = pass_trace.dump(pass_trace.trace_passes(model, sizes, profile), folder)
    if as_json:
        print_json([str(path) for path in written])
    else:
        echo(f"{len(written)} files in {folder}")


def show_graph(
    model: Model,
    sizes: dict[str, tuple[int, ...]],
    profile: DeviceProfile,
    stage: Stage,
    after: str | None,
    as_json: bool,
) -> None:
    """Print the graph after a pass or stage, the fused groups, or what the passes did."""
    from ..compiler.passes.pipeline import LOWERED, PIPELINE
    from ..inspect.pass_trace import trace_passes

    if after is None and stage is Stage.passes:
        reports = trace_passes(model, sizes, profile).reports
        output.print_passes(reports, [name for name in PIPELINE.names if name not in PIPELINE.optional], as_json)
        return
    trace = trace_passes(model, sizes, profile, until=after or LOWERED)
    if after is None and stage is Stage.fused:
        output.print_groups(trace.groups, as_json)
        return
    graph = trace.after(after) if after is not None else trace.stage(stage)
    output.print_graph(graph, [] if graph.after == "specialise" else trace.rewrites, as_json)


def show_plan(inspected: InspectedPlan, stage: Stage, kernel: str | None, as_json: bool) -> None:
    if stage is Stage.wgsl:
        output.print_wgsl(inspected.plan, kernel, as_json)
    else:
        output.print_plan(inspected, kernel, as_json)


def show_difference(before: dict[str, Any], after: dict[str, Any], as_json: bool) -> None:
    from ..plans.diff import diff_plans, to_json

    difference = diff_plans(before, after)
    if as_json:
        print_json(to_json(difference))
    else:
        output.print_difference(difference)


def input_shapes(model: Any, given: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all inputs: the given ones, and the static ones of the model; raise :class:`InputError` for
    others.
    """
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
    """Choose the profile to compile for; without an adapter WebGPU's default limits, which every device satisfies."""
    from ..runtime.plan.device_profile import WEB

    if web:
        return WEB
    from ..runtime.device.device import open_device

    try:
        return open_device(device).profile
    except DeviceError as error:
        if device is not None:
            raise
        echo(f"note: {error.reason}; compiling for WebGPU's default limits", err=True)
        return WEB
