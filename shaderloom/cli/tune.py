"""``shaderloom tune``: measure configurations of a model's kernels on a device, and keep the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .command import as_command
from .common import count_text, print_json
from .options import CompilerOptions, DeviceOption, JsonOption, ModelArgument, ShapeOptions
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..tuner.parent import TuningResult


@as_command
def command(
    model: ModelArgument,
    *,
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
    inputs: ShapeOptions,
    compiler: CompilerOptions,
    device: DeviceOption = None,
    as_json: JsonOption = False,
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
    from ..model.feeds import complete_shapes
    from ..model.model import Model
    from ..runtime.device.opening import open_device
    from ..tuner.parent import tune

    profile = open_device(device).profile
    opened = Model(model, dynamic=inputs.dynamic, cache=False, options=compiler.chosen)
    try:
        shapes = complete_shapes(opened.header, inputs.shapes, opened.dynamic)
    finally:
        opened.close()
    with progress(quiet=as_json) as report:
        result = tune(
            model,
            shapes,
            adapter=profile.adapter,
            driver=driver_of(profile),
            dynamic=opened.dynamic,
            options=compiler.chosen,
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


def _print(result: TuningResult) -> None:
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
