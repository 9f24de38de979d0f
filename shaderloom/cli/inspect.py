"""``shaderloom inspect``: show what a model compiles to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.plan.errors import InputError
from . import inspect_output as output
from .command import as_command
from .common import parse_options, print_json
from .inspect_folder import looks_like_decoder, show_decoder
from .inspect_opening import Opening
from .options import (
    CacheOption,
    CompilerOptions,
    DeviceOption,
    InputOptions,
    JsonOption,
    KernelOption,
    ModelOrBundleArgument,
    OptionGroup,
    ProvidersOption,
)
from .session import keep_model, parse_providers
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..inspect.inspected_plan import InspectedPlan
    from ..model.model import Model
    from ..runtime.plan.device_profile import DeviceProfile


class Listing(StrEnum):
    """The listings of a compilation."""

    passes = "passes"
    graph = "graph"
    canonical = "canonical"
    layout = "layout"
    fused = "fused"
    plan = "plan"
    wgsl = "wgsl"
    placement = "placement"


GRAPH_LISTINGS = (Listing.passes, Listing.graph, Listing.canonical, Listing.layout, Listing.fused)


@dataclass(frozen=True, kw_only=True)
class ViewOptions(OptionGroup):
    """Options of the output: the listing, and where it goes."""

    show: Annotated[
        Listing,
        typer.Option(
            "--show",
            help="passes: what each pass did, and its time; graph: operators with shapes; canonical: after "
            "all rewrites; layout: with the order of axes in "
            "memory; fused: kernels with their operators; plan: calls and memory; wgsl: shader text; placement: where "
            "each node runs, and why.",
        ),
    ] = Listing.plan
    after: Annotated[
        str | None, typer.Option("--after", metavar="PASS", help="The graph after this pass, instead of a listing.")
    ] = None
    kernel: KernelOption = None
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write numbered files of every pass to a new folder.")
    ] = None
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Write a report for a browser: one file, offline."),
    ] = None
    measure: Annotated[
        bool, typer.Option("--profile", help="With --html: run on random inputs, and show the time of every kernel.")
    ] = False
    other: Annotated[
        Path | None,
        typer.Option(
            "--diff",
            metavar="OTHER",
            help="What changes from OTHER (a model, a bundle, or what inspect --json printed) to this model.",
        ),
    ] = None
    other_options: Annotated[
        list[str] | None,
        typer.Option("--diff-option", metavar="NAME=JSON", help="Option of the compiler for OTHER; repeatable."),
    ] = None


@as_command
def command(
    model: ModelOrBundleArgument,
    *,
    view: ViewOptions,
    inputs: InputOptions,
    compiler: CompilerOptions,
    device: DeviceOption = None,
    providers: ProvidersOption = None,
    web: Annotated[
        bool, typer.Option("--web", help="Compile for WebGPU's default limits instead of a device of this machine.")
    ] = False,
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Show the graph, the fused kernels, the plan or the shaders of a model.

    [bold]Examples[/bold]

      shaderloom inspect resnet50.onnx

      shaderloom inspect bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --show fused

      shaderloom inspect resnet50.onnx --show wgsl --kernel 0

      shaderloom inspect resnet50.onnx --after simplify

      shaderloom inspect resnet50.onnx --dump passes

      shaderloom inspect resnet50.onnx --html report.html --profile

      shaderloom inspect new.onnx --diff old.onnx

      shaderloom inspect resnet50.onnx --diff resnet50.onnx --diff-option 'disabled_passes=["fuse"]'

      shaderloom inspect detector.onnx --show placement

      shaderloom inspect smollm2

      shaderloom inspect resnet50.onnx --json | jq '.kernels[].template'
    """
    if looks_like_decoder(model):
        if view.show is not Listing.plan or any((view.after, view.dump, view.html, view.other)):
            raise InputError("of a folder the plans are shown", hint="inspect the model in it for all else")
        with progress(quiet=as_json) as report:
            show_decoder(model, Opening(inputs, device, web, cache, report), compiler.chosen, as_json)
        return
    if view.other_options and view.other is None:
        raise InputError("--diff-option is an option of OTHER", hint="give --diff OTHER too")
    with progress(quiet=as_json) as report:
        opening = Opening(inputs, device, web, cache, report, parse_providers(providers))
        if view.other is not None:
            before = opening.describe(view.other, parse_options(view.other_options))
            show_difference(before, opening.describe(model, compiler.chosen), as_json)
        elif view.html is not None:
            keep_model(view.html, model)
            opening.write_html(view.html, model, compiler.chosen, view.measure)
            if not as_json:
                echo(f"wrote {view.html}")
        elif view.dump is not None or view.after is not None or view.show in GRAPH_LISTINGS:
            if inputs.values:
                raise InputError("--input is for what runs the model", hint="graphs are made by compiling alone")
            opened, sizes = opening.model(model, compiler.chosen)
            if view.dump is not None:
                show_dump(opened, sizes, opening.profile, view.dump, as_json)
            else:
                show_graph(opened, sizes, opening.profile, view.show, view.after, as_json)
        elif view.show is Listing.placement:
            output.print_placement(opening.view(model, compiler.chosen), as_json)
        else:
            show_plan(opening.inspected(model, compiler.chosen), view.show, view.kernel, as_json)


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
    listing: Listing,
    after: str | None,
    as_json: bool,
) -> None:
    """Print the graph after a pass or at a point of the compilation, the fused groups, or what the passes did."""
    from ..compiler.passes.pipeline import LOWERED, PIPELINE
    from ..inspect.pass_trace import trace_passes

    if after is None and listing is Listing.passes:
        reports = trace_passes(model, sizes, profile).reports
        output.print_passes(reports, [name for name in PIPELINE.names if name not in PIPELINE.optional], as_json)
        return
    trace = trace_passes(model, sizes, profile, until=after or LOWERED)
    if after is None and listing is Listing.fused:
        output.print_groups(trace.groups, as_json)
        return
    graph = trace.after(after) if after is not None else trace.graph_at(listing)
    output.print_graph(graph, [] if graph.after == "specialise" else trace.rewrites, as_json)


def show_plan(inspected: InspectedPlan, listing: Listing, kernel: str | None, as_json: bool) -> None:
    if listing is Listing.wgsl:
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
