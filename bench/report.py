"""Results as JSON in ``bench/results``, as tables in ``docs/benchmarks/models.md``, and as pictures beside it."""

from __future__ import annotations

import json
import platform
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from .compile_speed import LEAST_MS, PASS_SLACK, CompileTime, exceeds_linearithmic, steep_passes
from .models import MODELS
from .plotting import draw_bars, pyplot
from .runner import Result
from .runtimes import DRIVERS, OURS, RUNTIMES
from .starts import HEADS, cells, load_note
from .workers.compile_time import PARTS

PAGE = Path("docs") / "benchmarks" / "models.md"
#: What was measured; kept with the project, so that a part that is measured again replaces its part of the page alone
RESULTS = Path("bench") / "results"
HEAD = """# Benchmarks of models and of the compiler

Written by `./dev bench models` and `./dev bench compile`; do not edit. Batch 1, f32, numpy arrays in and out. Every
runtime has a process of its own, and they take turns, one run each a round; figures are medians with the least and the
most. Ratios are of medians in the same rounds, also where the figures of a table were measured in several parts. *Cold*
is the time in seconds from the start of the process to the first output with empty caches, *second* and *third* the
same in two processes after it; in brackets the processor time of the process until then, and beside them the parts of
the cold start. In Chromium they are browsers with one profile, from the navigation of the page on. *Difference* is the
largest difference from onnxruntime on the CPU over its largest output.
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
        path = RESULTS / f"models-{name}.json"
        mine = [asdict(result) for result in results if result.driver == name]
        measured = {(item["model"], item["runtime"]) for item in mine}
        stored = {(item["model"], item["runtime"]): item for item in _load(path).get("results", [])}
        unchanged = [item for key, item in stored.items() if key not in measured]
        mine = [_with_starts(stored.get((item["model"], item["runtime"])), item) for item in mine]
        _store(path, {"processor": processor(), "results": unchanged + mine})


def _with_starts(stored: dict[str, Any] | None, measured: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured; if that is starts alone, with the runs that are stored."""
    if stored is None or measured["median_ms"] is not None or measured["error"] is not None:
        return measured
    return {**stored, **{key: measured[key] for key in ("starts", "cold_compile_ms")}, "started": measured["date"]}


def load_models(driver: str) -> list[Result]:
    """What is stored for a driver; results without the time of ours take it from the same run."""
    results = [Result(**item) for item in _load(RESULTS / f"models-{driver}.json").get("results", [])]
    ours = {(result.model, result.date): result.median_ms for result in results if result.runtime in OURS}
    for result in results:
        if result.ours_ms is None:
            result.ours_ms = ours.get((result.model, result.date))
    return results


def save_compile(models: Sequence[CompileTime], graphs: Sequence[CompileTime], date: str) -> None:
    """Add to what is stored; a model, or a graph of a size, that was measured again replaces its figures."""
    path = RESULTS / "compile.json"
    content: dict[str, Any] = {"processor": processor(), "date": date}
    for key, times in (("models", models), ("graphs", graphs)):
        mine = [asdict(item) for item in times]
        measured = {_identity(item) for item in mine}
        unchanged = [item for item in _load(path).get(key, []) if _identity(item) not in measured]
        content[key] = sorted(unchanged + mine, key=_identity)
    _store(path, content)


def _identity(item: dict[str, Any]) -> tuple[int, str, int]:
    """Of a measured model or graph; models in the order of the list, graphs by name and size."""
    name = item["name"]
    return (list(MODELS).index(name), name, 0) if name in MODELS else (len(MODELS), name, item["nodes"])


def write_page() -> None:
    """The page and its pictures, from everything that is stored."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    parts = [HEAD]
    for name, driver in DRIVERS.items():
        stored = _load(RESULTS / f"models-{name}.json")
        if stored:
            results = load_models(name)
            parts.append(_driver_section(driver.title, stored["processor"], results))
            picture = PAGE.with_name(f"{name}.png")
            if (
                draw_models(results, driver.title, picture) or picture.is_file()
            ):  # of an earlier time, without matplotlib
                parts.append(f"![Median time of each model]({picture.name})\n")
    stored = _load(RESULTS / "compile.json")
    if stored:
        models, graphs = ([CompileTime(**item) for item in stored[key]] for key in ("models", "graphs"))
        parts.append(f"## Compiling\n\n{stored['processor']}, {stored['date']}.\n")
        parts.append(compile_tables(models, graphs))
        picture = PAGE.with_name("compile.png")
        if graphs and (draw_compile(graphs, picture) or picture.is_file()):
            parts.append(f"![Time to compile by number of nodes]({picture.name})\n")
    PAGE.write_text("\n".join(map(_wrapped, "\n".join(parts).split("\n"))))


def _wrapped(line: str) -> str:
    """Return a line of a page with at most 120 characters in each; rows of tables, headings and pictures stay."""
    if line.startswith(("|", "#", "!")):
        return line
    return textwrap.fill(line, 120, subsequent_indent="  " * line.startswith("* "), break_on_hyphens=False)


def _driver_section(title: str, machine: str, results: Sequence[Result]) -> str:
    dates = sorted(date[:10] for result in results for date in (result.date, result.started) if date)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    devices = sorted(
        {f"{RUNTIMES[r.runtime].title} {r.facts['version']} on {r.facts['device']}" for r in results if r.facts}
    )
    share = compile_share(results)
    lines = [
        f"## {title}\n",
        f"{machine}, {span}. {'; '.join(devices)}.\n",
        run_table(results),
        comparison(results),
        start_table(results),
        *filter(None, (load_note(start for result in results for start in result.starts), share)),
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
    if result is None or result.median_ms is None:
        return "fails" if result is not None and result.error else ""
    return f"{number(result.median_ms)} ({number(result.least_ms)} to {number(result.most_ms)})"


def comparison(results: Sequence[Result]) -> str:
    """How many times the time of ours each other runtime takes, where both ran in the same rounds.

    Says it plainly where the CPU is faster than the driver.
    """
    lines = []
    for name, runtime in RUNTIMES.items():
        ratios = {
            result.model: result.median_ms / result.ours_ms
            for result in results
            if result.runtime == name and name not in OURS and result.median_ms and result.ours_ms
        }
        if ratios:
            least = min(ratios, key=lambda model: ratios[model])
            mean = statistics.geometric_mean(ratios.values())
            lines.append(
                f"* {runtime.title} takes {mean:.2f} times as long as Shaderloom in the geometric mean of "
                f"{count(len(ratios), 'model')}, at least {ratios[least]:.2f} times ({least})."
            )
        if not runtime.drivers and ratios and max(ratios.values()) < 1:
            lines.append(
                "* **The CPU is the faster choice here**, for every model: a software driver computes on the same "
                'cores as `providers=["cpu"]`, which runs onnxruntime where it is installed.'
            )
    return "\n".join(lines) + "\n"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def compile_share(results: Sequence[Result]) -> str:
    """The compiler's part of Shaderloom's cold and later starts; empty where no later start read a plan from the disk.

    Facts of a process that compiled are of an earlier measurement, to which new starts were added.
    """
    parts = [
        f"{result.model} {cold:,.0f} and {warm:,.0f} ms ({warm / cold:.0%})"
        for result in results
        if (cold := result.cold_compile_ms)
        and result.starts[1:]
        and (facts := result.facts or {}).get("from_disk")
        and (warm := facts.get("compile_ms"))
    ]
    return f"Parsing, passes and code in Shaderloom's cold and later starts: {', '.join(parts)}.\n" if parts else ""


def start_table(results: Sequence[Result]) -> str:
    """Starts, memory and error, a row for each model and runtime."""
    rows = []
    for result in sorted(
        results, key=lambda item: (list(MODELS).index(item.model), list(RUNTIMES).index(item.runtime))
    ):
        if not result.starts:
            continue
        peak = "" if result.peak_mb is None else f"{result.peak_mb:.0f}"
        difference = "" if result.difference is None else f"{result.difference:.1e}"
        rows.append([result.model, RUNTIMES[result.runtime].title, *cells(result.starts), peak, difference])
    heads = [*HEADS, "peak MB", "difference"]
    return table(["model", "runtime", *heads], rows)


def compile_tables(models: Sequence[CompileTime], graphs: Sequence[CompileTime]) -> str:
    """Times of models by part, and growth over sizes of synthetic graphs."""
    parts = [
        "From the file to the plan, pipelines excluded. *First* is wall time in a fresh process, imports included; "
        "then the fastest of the later times, and its processor time by part.\n"
    ]
    heads = ["nodes", "kernels", "calls", "first s", "wall s", "processor s", *(f"{part} ms" for part in PARTS)]
    for title, times in (("model", models), ("graph", graphs)):
        rows = [
            [
                item.name, str(item.nodes), str(item.kernels), str(item.calls), f"{item.first_s:.2f}",
                f"{item.wall_s:.2f}", f"{item.processor_s:.2f}", *(f"{item.parts_ms[part]:.0f}" for part in PARTS),
            ]
            for item in times
        ]  # fmt: skip
        if rows:
            parts.append(table([title, *heads], rows))
    for item in models:
        if item.new_shape_s is not None and item.first_processor_s is not None:
            share = item.new_shape_s / item.first_processor_s
            parts.append(
                f"A new input shape of {item.name} in a running session takes {item.new_shape_s:.2f} s of processor "
                f"time, {share:.0%} of the first compilation in the process ({item.first_processor_s:.2f} s, the "
                "compiler's modules and onnx included; medians of some processes).\n"
            )
    steep = [
        f"{small.name} from {small.nodes} to {large.nodes} nodes"
        for small, large in pairwise(graphs)
        if small.name == large.name and exceeds_linearithmic(small, large)
    ]
    if graphs:
        parts.append(f"Faster than n log n grew: {', '.join(steep) or 'none'}.\n")
        parts.append(_growth_of_passes(graphs))
    return "\n".join(parts)


def _growth_of_passes(graphs: Sequence[CompileTime]) -> str:
    """A row for each pass and driver's part of each graph that takes any time, with a column for each size."""
    sizes: dict[str, list[CompileTime]] = {}
    for item in graphs:
        sizes.setdefault(item.name, []).append(item)
    rows, steep = [], []
    for name, items in sizes.items():
        largest = items[-1].passes_ms
        for part in sorted(largest, key=lambda part: -largest[part]):
            if largest[part] >= LEAST_MS:
                rows.append([name, part, *(f"{item.passes_ms.get(part, 0.0):.0f}" for item in items)])
        for small, large in pairwise(items):
            steep += [
                f"{each} in {name} from {small.nodes} to {large.nodes} nodes" for each in steep_passes(small, large)
            ]
    if not rows:
        return ""
    counts = [f"about {item.nodes} nodes, ms" for item in max(sizes.values(), key=len)]
    return (
        f"Processor time of every pass that takes {LEAST_MS:.0f} ms or more in the largest graph of its shape:\n\n"
        + table(["graph", "pass or part", *counts], rows)
        + f"\nPasses that grew faster than n log n (more than {PASS_SLACK:.0f} times as much): "
        + f"{', '.join(steep) or 'none'}.\n"
    )


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
    """Bars by model and runtime.  False where matplotlib is not installed."""
    cells = {(result.runtime, result.model): result for result in results if result.median_ms is not None}
    bars = {
        runtime.title: {
            model: (cell.median_ms, (cell.least_ms, cell.most_ms))
            for model in MODELS
            if (cell := cells.get((name, model))) is not None
            and cell.median_ms is not None
            and cell.least_ms is not None
            and cell.most_ms is not None
        }
        for name, runtime in RUNTIMES.items()
        if any(key[0] == name for key in cells)
    }
    return draw_bars(bars, title, target)


def draw_compile(graphs: Sequence[CompileTime], target: Path) -> bool:
    """Time over nodes on logarithmic axes, a line for each shape of graph."""
    plot = pyplot()
    if plot is None:
        return False
    figure, axes = plot.subplots(figsize=(7, 4.5), layout="constrained")
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
    plot.close(figure)
    return True


def _load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def _store(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
