"""``shaderloom profile``: the time of every kernel, slowest first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.plan.errors import UnsupportedError, unwritable
from .command import as_command
from .common import count_text, print_json
from .options import ExecutionOptions, JsonOption, ModelOrBundleArgument, RepeatOption
from .session import keep_model, make_feeds, open_session
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..plans.profiling import PlanProfile
    from ..runtime.execution.roofline import Roofline


@as_command
def command(
    model: ModelOrBundleArgument,
    *,
    repeat: RepeatOption = 5,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of the table.")] = 30,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE.json", help="Write a trace that Perfetto and Chrome open."),
    ] = None,
    options: ExecutionOptions,
    as_json: JsonOption = False,
) -> None:
    """Measure every kernel of a model on the device, and show the slowest first with its ONNX nodes.

    "of roof" compares with what the device can reach: the time that a kernel's arithmetic or its memory traffic
    must take at least, over the time that it took. It is "-" for a kernel whose traffic exceeds that of memory, as
    its data lies in caches.

    [bold]Examples[/bold]

      shaderloom profile resnet50.onnx

      shaderloom profile bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --trace bert.json
    """
    if trace is not None:
        keep_model(trace, model)
    from ..plans.profiling import chrome_trace, summarise_stages
    from ..runtime.execution.roofline import measure_roofline

    with progress(quiet=as_json) as report, open_session(model, options, report) as session:
        feeds = make_feeds(session, options)
        session.run(None, feeds)  # the first run includes one-time costs
        runs = []
        for number in range(repeat):
            report(f"run {number + 1} of {repeat}", number, repeat)
            runs.append(session.profile_stages(feeds))
        report("measuring the device", 0, 0)
        roofline = measure_roofline(session.device)
        if not runs[0]:
            raise UnsupportedError("nothing of the model runs on the device", hint="inspect --show placement says why")
        result = summarise_stages(runs, roofline)
        name = session.device.name
    if trace is not None:
        try:
            trace.write_text(json.dumps(chrome_trace(result, name, model.name)), encoding="utf-8")
        except OSError as error:
            raise unwritable(trace, error) from error
    if as_json:
        print_json(_to_json(result, roofline, name))
    else:
        _print(result, roofline, name, top)


def _to_json(result: PlanProfile, roofline: Roofline, device: str) -> dict[str, Any]:
    return {
        "device": device,
        "method": result.method,
        "runs": result.runs,
        "ns": result.nanoseconds,
        "roofline": {
            "bytes_per_second": roofline.bytes_per_second,
            "flops_per_second": roofline.flops_per_second,
        },
        "calls": [call.to_json() for call in result.by_time],
    }


def _print(result: PlanProfile, roofline: Roofline, device: str, top: int) -> None:
    echo(f"{'call':>5} {'ms':>10} {'share':>6} {'GFLOP/s':>9} {'GB/s':>8} {'of roof':>7}  {'kernel':12}  template")
    for call in result.by_time[:top]:
        reached = "-" if call.roofline is None else f"{call.roofline:.0%}"
        echo(
            f"{call.position:5} {call.nanoseconds / 1e6:10.3f} {call.share:6.1%} {call.flops_per_second / 1e9:9.2f} "
            f"{call.bytes_per_second / 1e9:8.2f} {reached:>7}  {call.kernel}  {call.template}"
        )
        stage = "" if call.stage is None else f"stage {call.stage}: "
        times = "" if call.iterations == 1 else f" ({call.iterations} times)"
        echo(f"      {stage}{', '.join(call.origins)}{times}")
    if len(result.calls) > top:
        echo(f"      {count_text(len(result.calls) - top, 'faster call')} not shown (--top)")
    echo()
    for template, count, time in result.by_template():
        echo(f"{template}: {count_text(count, 'call')}, {time / 1e6:.2f} ms, {time / max(result.nanoseconds, 1):.0%}")
    how = (
        "by the device's timestamps"
        if result.method == "timestamps"
        else "by wall time around single calls, as the device has no timestamps: about 0.1 ms too long each"
    )
    echo(
        f"{count_text(len(result.calls), 'call')}, {result.nanoseconds / 1e6:.2f} ms in all, "
        f"medians of {count_text(result.runs, 'run')} "
        f"measured {how}"
    )
    echo(
        f"{device} reaches {roofline.flops_per_second / 1e9:.1f} GFLOP/s and {roofline.bytes_per_second / 1e9:.1f} GB/s"
    )
