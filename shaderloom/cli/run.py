"""``shaderloom run``: run a model or a bundle once and show or save its outputs."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.bundle.files import is_bundle
from ..runtime.plan.errors import unwritable
from .command import as_command
from .common import count_text, print_json
from .options import ExecutionOptions, JsonOption, ModelOrBundleArgument, RepeatOption
from .session import keep_model, make_feeds, open_session
from .terminal import echo, print_table, progress

if TYPE_CHECKING:
    import numpy as np

    from ..model.compiled import Progress
    from ..session.session import InferenceSession


@as_command
def command(
    model: ModelOrBundleArgument,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="OUT.npz", help="Write the outputs to this file.")
    ] = None,
    repeat: RepeatOption = 1,
    options: ExecutionOptions,
    as_json: JsonOption = False,
) -> None:
    """Run a model or a bundle on the GPU. Inputs that are not given are random: normal floats, integers 0 and 1.

    [bold]Examples[/bold]

      shaderloom run resnet50.onnx

      shaderloom run detector.onnx --shape x=1x3x640x640 --repeat 10

      shaderloom run bert.onnx --input input_ids=ids.npy --input attention_mask=mask.npy --output out.npz
    """
    with progress(quiet=as_json) as report, open_session(model, options, report) as session:
        feeds = make_feeds(session, options)
        names = [port.name for port in session.get_outputs()]
        on_device = "wgpu" in session.get_providers()
        if options.f16 and on_device:
            session.calibrate(feeds)
        is_ready = not on_device or session.prepare({name: array.shape for name, array in feeds.items()})
        if not is_ready:
            session.run(names, feeds)  # several steps are compiled by the first run, which depends on the inputs
        results, times = _time_runs(session, names, feeds, repeat, report)
        stats = session.stats
        device_name = session.device.name if on_device and set(stats.steps) != {"cpu"} else "cpu"
    if output is not None:
        keep_model(output, model)
        _save(output, dict(zip(names, results)))
    summary = {
        "device": device_name,
        "inputs": [_describe(name, array) for name, array in feeds.items()],
        "outputs": [_describe(name, array) for name, array in zip(names, results)],
        "compile_ms": stats.compile_ms,
        "from_disk": stats.misses == stats.disk_hits,
        "prepare_ms": stats.prepare_ms,
        "stages": stats.steps.count("wgpu"),
        "run_ms": sorted(times)[len(times) // 2],
        "runs": repeat,
        "calls": stats.calls,
    }
    if as_json:
        print_json(summary)
    else:
        source = "from the bundle" if is_bundle(model) else "from the disk cache"
        _print(summary, "the first run" if is_ready else "a run after the first", source)


def _time_runs(
    session: InferenceSession, names: list[str], feeds: dict[str, Any], repeat: int, report: Progress
) -> tuple[list[Any], list[float]]:
    """Return the outputs of the last of ``repeat`` runs, and the milliseconds of each."""
    times = []
    for index in range(repeat):
        report(f"run {index + 1} of {repeat}", index, repeat)
        start = time.perf_counter()
        results = session.run(names, feeds)
        times.append((time.perf_counter() - start) * 1e3)
    return results, times


def _save(path: Path, results: dict[str, np.ndarray]) -> None:
    from ..mapping.npz import write_arrays

    try:
        write_arrays(path, results)
    except OSError as error:
        raise unwritable(path, error) from error


def _describe(name: str, array: np.ndarray) -> dict[str, Any]:
    """Return name, dtype, shape and the range of the finite elements."""
    import numpy as np

    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    return {
        "name": name,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "mean": float(finite.mean()) if finite.size else None,
        "not_finite": int(values.size - finite.size),
    }


def _print(summary: dict[str, Any], single: str, read: str) -> None:
    """Print the outputs and the times; ``single`` says which run was timed where that is one, ``read`` where plans that
    were not compiled are from.
    """
    rows = []
    for row in summary["outputs"]:
        numbers = ["-" if row[key] is None else f"{row[key]:.6g}" for key in ("min", "max", "mean")]
        rows.append([row["name"], row["dtype"], "x".join(map(str, row["shape"])) or "scalar", *numbers])
    print_table(("output", "type", "shape", "min", "max", "mean"), rows)
    for row in summary["outputs"]:
        if row["not_finite"]:
            echo(f"{row['name']}: {row['not_finite']} of {math.prod(row['shape'])} elements are not finite")
    runs = single if summary["runs"] == 1 else f"a run, the median of {summary['runs']},"
    took = f"{summary['run_ms']:.2f} ms {runs} on {summary['device']}"
    if summary["device"] == "cpu":
        echo(took)
        return
    stages = "" if summary["stages"] < 2 else f" in {summary['stages']} stages"
    plans = "plan" if summary["stages"] < 2 else "plans"
    source = read if summary["from_disk"] else "compiled"
    echo(
        f"{count_text(summary['calls'], 'call')}{stages}, {took}; "
        f"{plans} {source} in {summary['compile_ms']:.0f} ms, device prepared in {summary['prepare_ms']:.0f} ms"
    )
