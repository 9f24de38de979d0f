"""Results as JSON under ``build/bench``, as tables in ``docs/benchmarks.md``, and as pictures beside it."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from .compile_speed import STAGES, CompileTime, exceeds_linearithmic
from .models import MODELS
from .runner import Result
from .runtimes import BUILD, DRIVERS, RUNTIMES

PAGE = Path("docs") / "benchmarks.md"
HEAD = """# Benchmarks

Written by `./dev bench models` and `./dev bench compile`; do not edit. Batch 1, f32, numpy arrays in and out. Every
runtime has a process of its own, and they take turns, one run each a round; figures are medians with the least and the
most. *Cold* is the time from the start of the process to the first output with empty caches, *warm* the same in a
second process. *Difference* is the largest difference from onnxruntime on the CPU over its largest output.
"""


def processor() -> str:
    """Name of the processor and the number of its cores that are ours."""
    import os

    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


def save_models(results: Sequence[Result]) -> None:
    """Add to what is stored for the driver; a model measured again replaces its figures."""
    for name in {result.driver for result in results}:
        path = BUILD / f"models-{name}.json"
        mine = [asdict(result) for result in results if result.driver == name]
        measured = {(item["model"], item["runtime"]) for item in mine}
        kept = [item for item in _load(path).get("results", []) if (item["model"], item["runtime"]) not in measured]
        _store(path, {"processor": processor(), "results": kept + mine})


def save_compile(models: Sequence[CompileTime], graphs: Sequence[CompileTime], date: str) -> None:
    content = {"models": [asdict(item) for item in models], "graphs": [asdict(item) for item in graphs]}
    _store(BUILD / "compile.json", {"processor": processor(), "date": date, **content})


def write_page() -> None:
    """The page and its pictures, from everything that is stored."""
    parts = [HEAD]
    for name, driver in DRIVERS.items():
        stored = _load(BUILD / f"models-{name}.json")
        if stored:
            results = [Result(**item) for item in stored["results"]]
            parts.append(_driver_section(driver.title, stored["processor"], results))
            picture = PAGE.with_name(f"benchmarks-{name}.png")
            if draw_models(results, driver.title, picture):
                parts.append(f"![Median time of each model]({picture.name})\n")
    stored = _load(BUILD / "compile.json")
    if stored:
        models, graphs = ([CompileTime(**item) for item in stored[key]] for key in ("models", "graphs"))
        parts.append(f"## Compiling\n\n{stored['processor']}, {stored['date']}.\n")
        parts.append(compile_tables(models, graphs))
        picture = PAGE.with_name("benchmarks-compile.png")
        if graphs and draw_compile(graphs, picture):
            parts.append(f"![Time to compile by number of nodes]({picture.name})\n")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(parts))


def _driver_section(title: str, machine: str, results: Sequence[Result]) -> str:
    dates = sorted(result.date[:10] for result in results)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    devices = sorted(
        {f"{RUNTIMES[r.runtime].title} {r.facts['version']} on {r.facts['device']}" for r in results if r.facts}
    )
    lines = [
        f"## {title}\n",
        f"{machine}, {span}. {'; '.join(devices)}.\n",
        run_table(results),
        comparison(results),
        start_table(results),
    ]
    failed = [
        f"* {result.model} on {RUNTIMES[result.runtime].title}: {result.error}" for result in results if result.error
    ]
    if failed:
        lines.append("Failed:\n\n" + "\n".join(failed) + "\n")
    return "\n".join(lines)


def run_table(results: Sequence[Result]) -> str:
    """Milliseconds a run: models by runtimes."""
    cells = {(result.model, result.runtime): result for result in results}
    runtimes = [name for name in RUNTIMES if any(result.runtime == name for result in results)]
    rows = []
    for model in MODELS:
        if any(result.model == model for result in results):
            rows.append([model, *(_run_cell(cells.get((model, runtime))) for runtime in runtimes)])
    return table(["ms a run", *(RUNTIMES[name].title for name in runtimes)], rows)


def _run_cell(result: Result | None) -> str:
    if result is None:
        return ""
    if result.median_ms is None:
        return "fails"
    return f"{number(result.median_ms)} ({number(result.least_ms)} to {number(result.most_ms)})"


def comparison(results: Sequence[Result]) -> str:
    """How many times the time of ours each other runtime takes, on the models that both run."""
    medians = {(result.model, result.runtime): result.median_ms for result in results if result.median_ms is not None}
    lines = []
    for name, runtime in RUNTIMES.items():
        ratios = {
            model: taken / medians[model, "shaderloom"]
            for (model, other), taken in medians.items()
            if other == name != "shaderloom" and (model, "shaderloom") in medians
        }
        if ratios:
            least = min(ratios, key=lambda model: ratios[model])
            mean = statistics.geometric_mean(ratios.values())
            lines.append(
                f"* {runtime.title} takes {mean:.2f} times as long as Shaderloom in the geometric mean of "
                f"{len(ratios)} models, at least {ratios[least]:.2f} times ({least})."
            )
    return "\n".join(lines) + "\n"


def start_table(results: Sequence[Result]) -> str:
    """Starts, memory and error, a row for each model and runtime."""
    rows = []
    for result in sorted(
        results, key=lambda item: (list(MODELS).index(item.model), list(RUNTIMES).index(item.runtime))
    ):
        if result.cold is None:
            continue
        seconds = [
            "" if start is None else f"{start[key]:.2f}"
            for start in (result.cold, result.warm)
            for key in ("start_s", "create_s", "first_s")
        ]
        peak = "" if result.peak_mb is None else f"{result.peak_mb:.0f}"
        difference = "" if result.difference is None else f"{result.difference:.1e}"
        rows.append([result.model, RUNTIMES[result.runtime].title, *seconds, peak, difference])
    heads = ["cold s", "creation s", "first run s", "warm s", "creation s", "first run s", "peak MB", "difference"]
    return table(["model", "runtime", *heads], rows)


def compile_tables(models: Sequence[CompileTime], graphs: Sequence[CompileTime]) -> str:
    """Times of models by stage, and growth over sizes of synthetic graphs."""
    parts = [
        "From the file to the plan, pipelines excluded. *First* is wall time in a fresh process, imports included; "
        "then the fastest of the later times, and its processor time by stage.\n"
    ]
    heads = ["nodes", "kernels", "calls", "first s", "wall s", "processor s", *(f"{stage} ms" for stage in STAGES)]
    for title, times in (("model", models), ("graph", graphs)):
        rows = [
            [
                item.name, str(item.nodes), str(item.kernels), str(item.calls), f"{item.first_s:.2f}",
                f"{item.wall_s:.2f}", f"{item.processor_s:.2f}", *(f"{item.stages_ms[stage]:.0f}" for stage in STAGES),
            ]
            for item in times
        ]  # fmt: skip
        if rows:
            parts.append(table([title, *heads], rows))
    for item in models:
        if item.new_shape_s is not None and item.first_processor_s is not None:
            parts.append(
                f"A new input shape of {item.name} in a running session takes {item.new_shape_s:.2f} s of processor "
                f"time, {item.new_shape_s / item.first_processor_s:.0%} of the first compilation in the process "
                f"({item.first_processor_s:.2f} s, the compiler's own modules included).\n"
            )
    steep = [
        f"{small.name} from {small.nodes} to {large.nodes} nodes"
        for small, large in pairwise(graphs)
        if small.name == large.name and exceeds_linearithmic(small, large)
    ]
    if graphs:
        parts.append(f"Faster than n log n grew: {', '.join(steep) or 'none'}.\n")
    return "\n".join(parts)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    """Three significant digits, no exponent."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw_models(results: Sequence[Result], title: str, target: Path) -> bool:
    """Bars by model and runtime on a logarithmic axis.  False where matplotlib is not installed."""
    pyplot = _pyplot()
    if pyplot is None:
        return False
    models = [name for name in MODELS if any(result.model == name and result.median_ms for result in results)]
    runtimes = [name for name in RUNTIMES if any(result.runtime == name and result.median_ms for result in results)]
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    width = 0.8 / max(len(runtimes), 1)
    for position, runtime in enumerate(runtimes):
        mine = {result.model: result for result in results if result.runtime == runtime and result.median_ms}
        places = [index for index, model in enumerate(models) if model in mine]
        shown = [mine[models[index]] for index in places]
        medians = [result.median_ms or 0.0 for result in shown]
        spread = [
            [result.median_ms - result.least_ms for result in shown],  # type: ignore[operator]
            [result.most_ms - result.median_ms for result in shown],  # type: ignore[operator]
        ]
        offset = (position - (len(runtimes) - 1) / 2) * width
        axes.bar(
            [place + offset for place in places], medians, width, yerr=spread, label=RUNTIMES[runtime].title,
            error_kw={"linewidth": 0.8},
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds a run")
    axes.set_title(title)
    axes.set_xticks(range(len(models)), models, rotation=20, ha="right")
    axes.legend()
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(target, dpi=110)
    pyplot.close(figure)
    return True


def draw_compile(graphs: Sequence[CompileTime], target: Path) -> bool:
    """Time over nodes on logarithmic axes, a line for each shape of graph."""
    pyplot = _pyplot()
    if pyplot is None:
        return False
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for shape in dict.fromkeys(item.name for item in graphs):
        mine = [item for item in graphs if item.name == shape]
        axes.plot([item.nodes for item in mine], [item.processor_s for item in mine], marker="o", label=shape)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nodes")
    axes.set_ylabel("processor seconds from file to plan")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(target, dpi=110)
    pyplot.close(figure)
    return True


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def _store(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))
