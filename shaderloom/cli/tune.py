"""``shaderloom tune``: measure configurations of a model's kernels on a device, and keep the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..runtime.plan.errors import InputError
from .common import count_text, parse_dynamic, parse_options, parse_shapes, print_json, readable_errors, with_precision
from .options import (
    DebugOption,
    DeviceOption,
    DynamicOption,
    HalfOption,
    JsonOption,
    ModelArgument,
    OptionOption,
    ShapeOption,
)
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..tuner.parent import Tuned


@readable_errors
def command(
    model: ModelArgument,
    shapes: ShapeOption = None,
    dynamic: DynamicOption = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", help="Time limit; results until then are stored.")
    ] = 60.0,
    candidates: Annotated[
        int, typer.Option("--candidates", min=1, help="Number of the cost model's best to measure for each problem.")
    ] = 8,
    again: Annotated[
        bool, typer.Option("--again", help="Also measure problems that the database already has.")
    ] = False,
    forms: Annotated[
        bool, typer.Option("--forms/--no-forms", help="Also try other forms of the graph: Winograd, split products.")
    ] = True,
    database: Annotated[
        Path | None,
        typer.Option("--database", metavar="FILE.json", help="Store results there instead of in the user's database."),
    ] = None,
    options: OptionOption = None,
    f16: HalfOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure configurations of a model's kernels on this device, and keep the best for every later compilation.

    A cost model ranks the tiles and workgroups that a kernel may have; this command runs the best of them and compares
    their results and times. What takes most of a run comes first, so a short budget finds most of the gain; run it
    again to go on. Results are keyed by adapter, driver and problem, and serve every model with the same problem. On
    software drivers the time of compiling counts too: a kernel must pay within 300 runs.

    Sessions and 'shaderloom compile --target this-device' use what is in the database by themselves;
    'shaderloom inspect MODEL' says for each kernel where its configuration came from. SHADERLOOM_TUNING names another
    database, or 'off'.

    [bold]Examples[/bold]

      shaderloom tune resnet50.onnx

      shaderloom tune bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --budget 300

      shaderloom tune decoder.onnx --device nvidia --candidates 16 --json
    """
    from ..measurements.device_records import driver_of
    from ..model.header import ModelHeader
    from ..model.model import Model
    from ..runtime.device.device import open_device
    from ..tuner.parent import tune

    sizes, ranges = parse_shapes(shapes), parse_dynamic(dynamic)
    chosen = with_precision(parse_options(options), f16)
    opened_device = open_device(device)
    opened = Model(model, dynamic=ranges, cache=False, options=chosen)
    try:
        header: ModelHeader = opened.header
        complete = {**_declared(header), **sizes}
        for port in header.inputs:
            if port.name not in complete:
                raise InputError(
                    "the model does not declare all sizes of the input as numbers",
                    tensor=port.name,
                    hint=f"give its shape: --shape {port.name}=...",
                )
    finally:
        opened.close()
    with progress(quiet=as_json) as report:
        result = tune(
            model,
            complete,
            adapter=opened_device.profile.adapter,
            driver=driver_of(opened_device.profile),
            dynamic=ranges,
            options=chosen,
            budget=budget,
            candidates=candidates,
            again=again,
            forms=forms,
            path=database,
            progress=report,
        )
    if as_json:
        print_json(result.to_json())
    else:
        _print(result)


def _declared(header: object) -> dict[str, tuple[int, ...]]:
    from ..model.header import ModelHeader

    assert isinstance(header, ModelHeader)
    found = {}
    for port in header.inputs:
        sizes = tuple(dim for dim in port.dims or () if isinstance(dim, int))
        if port.dims is not None and len(sizes) == len(port.dims):
            found[port.name] = sizes
    return found


def _print(result: Tuned) -> None:
    from ..compiler.tuning.config_choice import describe

    changed = sorted(
        (row for row in result.rows if row.is_changed),
        key=lambda row: -row.calls * (row.entry.analytic_ns - row.entry.ns),
    )
    if changed:
        echo(f"{'calls':>5} {'before ms':>10} {'after ms':>10} {'gain':>6}  problem")
    for row in changed:
        entry = row.entry
        echo(f"{row.calls:5} {entry.analytic_ns / 1e6:10.3f} {entry.ns / 1e6:10.3f} {entry.gain:5.2f}x  {row.problem}")
        echo(f"      {describe(entry.analytic)} -> {describe(entry.choice)}")
    for problem, refusal in result.refused:
        echo(f"refused: {describe(refusal.choice)} for {problem}: {refusal.why}")
    if changed or result.refused:
        echo()
    before = sum(row.calls * row.entry.analytic_ns for row in result.rows) / 1e6
    after = sum(row.calls * row.entry.ns for row in result.rows) / 1e6
    how = {"cpu": "processor time", "timestamps": "the device's timestamps", "wall": "the clock"}[
        result.method or "wall"
    ]
    echo(
        f"{count_text(len(result.rows), 'problem')} measured by {how}, {len(changed)} changed: "
        f"{before:.2f} -> {after:.2f} ms a run; {result.present} known before; {result.seconds:.0f} s"
    )
    if result.method == "cpu" and changed:
        echo("on a software driver a slower kernel may be better: compiling counts as much as 300 runs")
    if result.left:
        echo(f"{count_text(result.left, 'problem')} not reached: run the command again, or with more --budget")
