"""The page of the benchmarks on GPUs: a section for each card whose results are stored, and its picture."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .decoders import TEXT
from .plotting import draw_bars
from .starts import HEADS, cells

RESULTS, PAGE = Path("bench") / "results", Path("docs") / "benchmarks" / "gpus.md"
#: (worker, mode) -> the head of its column
COLUMNS = {
    ("gpu_shaderloom", "arrays"): "Shaderloom, arrays",
    ("gpu_onnxruntime", "arrays"): "onnxruntime WebGPU, arrays",
    ("gpu_shaderloom", "device"): "Shaderloom, tensors",
    ("gpu_onnxruntime", "best"): "onnxruntime WebGPU, bound, unvalidated",
    ("gpu_torch", "device"): "PyTorch CUDA graph, tensors",
}
#: The same of recurrent layers
RECURRENT_COLUMNS = {
    ("gpu_shaderloom", "arrays"): COLUMNS["gpu_shaderloom", "arrays"],
    ("gpu_onnxruntime_cpu", "arrays"): "onnxruntime CPU, arrays",
    ("gpu_shaderloom", "device"): COLUMNS["gpu_shaderloom", "device"],
    ("gpu_torch", "device"): COLUMNS["gpu_torch", "device"],
}
#: The same of halves
HALF_COLUMNS = {
    ("gpu_shaderloom_halves", "float32"): "Shaderloom, float32",
    ("gpu_shaderloom_halves", "precision"): '`precision="float16"`',
    ("gpu_shaderloom_halves", "file"): "Shaderloom, file of halves",
    ("gpu_onnxruntime", "best"): "onnxruntime WebGPU, file of halves",
}
#: Workers of decoders -> the heads of their columns
DECODER_COLUMNS = {
    "decoder_shaderloom": "Shaderloom",
    "decoder_onnxruntime": "onnxruntime WebGPU",
    "decoder_torch": "PyTorch CUDA graph, float16",
}
#: The same of texts; and those of each runtime of which the fastest is compared
TOKEN_COLUMNS = {
    ("generator_shaderloom", "plans"): "plans, greedy",
    ("generator_shaderloom", "greedy"): "texts, greedy",
    ("generator_shaderloom", "plans, drawn"): "plans, drawn",
    ("generator_shaderloom", "drawn"): "texts, drawn",
    ("generator_onnxruntime", "on the device"): "onnxruntime WebGPU, ArgMax",
    ("generator_onnxruntime", "on the host"): "onnxruntime WebGPU, numpy",
}
GREEDY_TEXTS = (
    (("generator_shaderloom", "greedy"),),
    (("generator_onnxruntime", "on the device"), ("generator_onnxruntime", "on the host")),
)
HEAD = """# Benchmarks on GPUs

Written by `./dev bench-gpu`; do not edit. f32, medians of single runs in milliseconds with the least, from the call to
the outputs: *arrays* in host memory, or *tensors* on the device after waiting for it. Every runtime has a process of
its own, and they take turns. PyTorch runs the libraries' modules of the same architecture, TF32 off. *Difference* is
Shaderloom's largest from onnxruntime's CPU provider over the largest output.

Models of 8 bits are what onnxruntime's quantiser makes of the float32 models: static (QDQ, scales of channels) or
dynamic; minilm_int8 has weights of bytes alone, with a scale a column, which Cast and Mul make floats again. Recurrent
layers are three of 768 units, one sequence; onnxruntime runs them on the host's processor.

Decoders have weights of 4 bits in blocks of 32, halves as activations, and caches in place; all logits are computed.
PyTorch's weights are halves. onnxruntime copies its smallest output to the host, as it has no other way to wait.
"""

#: Workers of many pictures -> their names
MANY_RUNTIMES = {
    "many_shaderloom": "Shaderloom",
    "many_onnxruntime": "onnxruntime WebGPU",
    "many_torch": "PyTorch, DataLoader",
}
MANY = """Pictures of 224 x 224 in float32, numpy in and out; *device*: batches of 32 that stay there. *map* is
`Pool.map` over single pictures, joined up to 32.
"""
SCALING = """`Pool.map` on GPUs of one host. That the memory of their cards grew, and of no other, was looked at.
"""

#: What a part of ``./dev bench-gpu`` measured on one machine, and all parts by their names
Measured = dict[str, Any]
Results = dict[str, Measured]


def card(results: Results) -> str:
    """The card's name, without its driver and clocks."""
    return str(next(iter(results.values()))["machine"]).partition(",")[0]


def slug(results: Results) -> str:
    """The card's name in names of files."""
    return re.sub(r"[^a-z0-9]+", "-", card(results).lower()).strip("-")


def keep(results: Results, root: Path = Path()) -> None:
    """Store results with the project: a part replaces what it measured before on the same card."""
    path = root / RESULTS / f"gpu-{slug(results)}.json"
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**before, **results}, indent=1) + "\n")


def stored_results(root: Path = Path()) -> list[Results]:
    """Return the stored results, the newest first."""
    stored = [json.loads(path.read_text()) for path in sorted((root / RESULTS).glob("gpu-*.json"))]
    return sorted(stored, key=lambda results: max(part["date"] for part in results.values()), reverse=True)


def write(root: Path = Path()) -> None:
    """The page of all stored results."""
    (root / PAGE).write_text("\n".join([HEAD, *map(section, stored_results(root))]))


def draw(root: Path = Path()) -> None:
    """A picture for each card, where matplotlib is installed: the machine with the GPU may lack it."""
    for results in stored_results(root):
        bars: dict[str, dict[str, tuple[float, None]]] = {}
        for result in results.get("models", {}).get("models", []):
            for (worker, mode), head in COLUMNS.items():
                summary = result["summary"].get(f"{worker}/{mode}")
                if summary:
                    bars.setdefault(head, {})[result["model"]] = (summary["median"], None)
        draw_bars(bars, card(results), root / PAGE.with_name(_picture(results)))


def _picture(results: Results) -> str:
    return f"{PAGE.stem}-{slug(results)}.png"


def section(results: Results) -> str:
    """One card's results as Markdown."""
    return "\n".join([f"## {card(results)}\n", *(PARTS[part](measured) for part, measured in results.items())])


def _opening(measured: Measured) -> list[str]:
    versions = [
        f"{name.partition('_')[2]} {item['facts'].get('version')}" for name, item in measured["runtimes"].items()
        if "facts" in item
    ]  # fmt: skip
    machine, date, seconds = measured["machine"], measured["date"], measured["seconds"]
    return [f"{machine}; {date}; {seconds:.0f} s in all.\n", f"Versions: {'; '.join(versions)}.\n"]


def _errors(measured: Measured) -> list[str]:
    errors = [f"* {r['model']}, {name}: {text}" for r in measured["models"] for name, text in r["errors"].items()]
    return ["Not run:\n\n" + "\n".join(errors) + "\n"] if errors else []


def _models(measured: Measured) -> str:
    parts = _opening(measured)
    heads = ["model", *COLUMNS.values(), "calls", "difference"]
    parts.append(table(heads, [_row(result) for result in measured["models"]]))
    parts.append(f"![Time of each model]({_picture({'models': measured})})\n")
    parts += _ratios(measured["models"]) + _errors(measured)
    if "starts" in measured:
        parts.append(_start_table(measured["starts"]))
    if "kernels" in measured:
        parts.append(_kernel_table(measured["kernels"]))
    return "\n".join(parts)


def _decoders(measured: Measured) -> str:
    rows = []
    for result in measured["models"]:
        modes = dict.fromkeys(key.partition("/")[2] for key in result["summary"])
        for mode in modes:
            times = [_time(result["summary"].get(f"{worker}/{mode}")) for worker in DECODER_COLUMNS]
            rows.append([result["model"], mode, *times])
    differences = [
        f"{result['model']} {result['differences'].get('decoder_shaderloom', math.nan):.1e}"
        for result in measured["models"]
    ]
    closing = f"Largest difference of a token's logits from onnxruntime's CPU provider: {', '.join(differences)}.\n"
    heads = ["decoder", "run", *DECODER_COLUMNS.values()]
    return "\n".join(["### Decoders\n", *_opening(measured), table(heads, rows), closing, *_errors(measured)])


def _tokens(measured: Measured) -> str:
    """Milliseconds of a token in each mode, tokens a second of the greedy texts, and how many of theirs agree."""
    rows = []
    for result in measured["models"]:
        times = {mode: result["summary"].get("/".join(mode)) for mode in TOKEN_COLUMNS}
        each = {mode: _by_token(summary) for mode, summary in times.items()}
        texts = [facts["tokens"] for facts in result["facts"].values()]
        agree = next((place for place, pair in enumerate(zip(*texts)) if pair[0] != pair[1]), TEXT.count)
        equal = f"{agree} of {TEXT.count}" if len(texts) == 2 else "-"
        fastest = [
            min((each[mode]["median"] for mode in modes if each[mode]), default=math.inf) for modes in GREEDY_TEXTS
        ]
        rates = [f"{1e3 / time:.0f}" if time < math.inf else "-" for time in fastest]
        rows.append([result["model"], *map(_time, each.values()), " / ".join(rates), equal])
    heads = ["decoder", *TOKEN_COLUMNS.values(), "greedy tokens/s", "equal tokens"]
    about = (
        f"Milliseconds a token, of texts of {TEXT.count} tokens behind {TEXT.prompt}. *Plans* are runs one after the "
        "other on tensors, of which\nnothing is read; *texts* are what `shaderloom.Generator` returns, with the words "
        "of a tokenizer. Drawn ones have a\ntemperature, `top_k` and `top_p`. onnxruntime's texts are a loop by hand "
        "with caches in place; their tokens are found by\nan ArgMax that is added to the model, or by numpy, and the "
        "faster one is compared.\n"
    )
    return "\n".join(["### Texts\n", about, *_opening(measured), table(heads, rows), *_errors(measured)])


def _by_token(summary: dict[str, float] | None) -> dict[str, float] | None:
    return summary and {name: summary[name] / TEXT.count for name in ("median", "least")}


def _compared(title: str, columns: Mapping[tuple[str, str], str], measured: Measured) -> str:
    heads = ["model", *columns.values(), "calls", "difference"]
    rows = [_row(result, columns) for result in measured["models"]]
    return "\n".join([f"### {title}\n", *_opening(measured), table(heads, rows), *_errors(measured)])


def _halves(measured: Measured) -> str:
    """Return times on tensors, and those of halves over float32."""
    rows = []
    for result in measured["models"]:
        times = [result["summary"].get("/".join(mode)) for mode in HALF_COLUMNS]
        plain, *halves = times[:3]
        ratios = [f"{half['median'] / plain['median']:.2f}" if plain and half else "-" for half in halves]
        calls = result["facts"].get("gpu_shaderloom_halves", {}).get("calls", {})
        difference = result["differences"].get("gpu_shaderloom_halves", math.nan)
        shown = " / ".join(str(count) for count in calls.values())
        rows.append([result["model"], *map(_time, times), " / ".join(ratios), shown, f"{difference:.1e}"])
    heads = ["model", *HALF_COLUMNS.values(), "of float32", "calls", "difference"]
    about = (
        "Tensors on the device. *Of float32*: the medians of both ways over that of float32. *Difference* is that of"
        "\nthe file from onnxruntime's CPU provider on it.\n"
    )
    return "\n".join(["### Halves\n", about, *_opening(measured), table(heads, rows), *_errors(measured)])


def _many(title: str, closing: str, whole: str, measured: Measured) -> str:
    """Return pictures a second of each way, and their part of those of one way."""
    rows = []
    for result in measured["models"]:
        all_of = result["rates"].get(f"many_shaderloom/{whole}", math.nan)
        for way, rate in result["rates"].items():
            worker, _, mode = way.partition("/")
            rows.append([result["model"], MANY_RUNTIMES[worker], mode, f"{rate:,.0f}", f"{rate / all_of:.2f}"])
    heads = ["model", "runtime", "way", "pictures a second", f"of {whole}"]
    return "\n".join([f"### {title}\n", *_opening(measured), table(heads, rows), closing, *_errors(measured)])


#: A part of the results -> its text
PARTS: dict[str, Callable[[Measured], str]] = {
    "models": _models,
    "decoders": _decoders,
    "tokens": _tokens,
    "int8": partial(_compared, "Models of 8 bits", COLUMNS),
    "halves": _halves,
    "recurrent": partial(_compared, "Recurrent layers", RECURRENT_COLUMNS),
    "many": partial(_many, "Many pictures", MANY, "device"),
    "scaling": partial(_many, "Several GPUs", SCALING, "map"),
}


def _row(result: dict[str, Any], columns: Mapping[tuple[str, str], str] = COLUMNS) -> list[str]:
    cells = []
    for worker, mode in columns:
        cells.append(_time(result["summary"].get(f"{worker}/{mode}")))
    calls = result["facts"].get("gpu_shaderloom", {}).get("calls", "")
    difference = result["differences"].get("gpu_shaderloom")
    return [result["model"], *cells, str(calls), "-" if difference is None else f"{difference:.1e}"]


def _time(summary: dict[str, float] | None) -> str:
    return f"{summary['median']:.3f} ({summary['least']:.3f})" if summary else "-"


def _ratios(models: list[dict[str, Any]]) -> list[str]:
    """How often faster than each peer, in the geometric mean and at least."""
    lines = []
    for peer, ours in (
        ("gpu_onnxruntime/arrays", "gpu_shaderloom/arrays"),
        ("gpu_onnxruntime/best", "gpu_shaderloom/device"),
        ("gpu_torch/device", "gpu_shaderloom/device"),
    ):
        both = [r for r in models if peer in r["summary"] and ours in r["summary"]]
        if not both:
            continue
        ratios = {r["model"]: r["summary"][peer]["median"] / r["summary"][ours]["median"] for r in both}
        mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
        worst = min(ratios, key=lambda name: ratios[name])
        worker, _, mode = peer.partition("/")
        lines.append(
            f"* Time of {COLUMNS[worker, mode]} over Shaderloom's: {mean:.2f} in the geometric mean, "
            f"least {ratios[worst]:.2f} ({worst}).\n"
        )
    return lines


def _start_table(models: list[dict[str, Any]]) -> str:
    """Seconds from the start of a process to its first output, and the parts of the first process."""
    rows = []
    for item in models:
        for runtime, starts in item["starts"].items():
            runs = " / ".join(f"{start['run_ms']:.2f}" for start in starts if "run_ms" in start)
            rows.append([item["model"], runtime, *cells(starts), runs])
    title = (
        "Seconds from the start of a process to its first output, arrays in and out: with empty caches, and in two\n"
        "processes after it, with processor time in brackets; the parts of the first; a later run of each. Medians of\n"
        "rounds in turns.\n\n"
    )
    return title + table(["model", "runtime", *HEADS, "a later run, ms"], rows) + "\n" + _start_ratios(models)


def _start_ratios(models: list[dict[str, Any]]) -> str:
    """Cold starts over onnxruntime's, and runs in processes that took the plan from the disk over the first's."""
    cold, cached = {}, {}
    for item in models:
        ours, theirs = item["starts"]["shaderloom"], item["starts"]["onnxruntime"]
        if all("start_s" in starts[0] for starts in (ours, theirs)):
            cold[item["model"]] = ours[0]["start_s"] / theirs[0]["start_s"]
        if all("run_ms" in start for start in ours):
            cached[item["model"]] = statistics.fmean(start["run_ms"] for start in ours[1:]) / ours[0]["run_ms"]
    lines = [
        _ratio_line("Shaderloom's cold start over onnxruntime's", cold),
        _ratio_line("Shaderloom's runs of a plan from the disk over those of one just compiled", cached),
    ]
    return "\n".join(lines)


def _ratio_line(what: str, ratios: Mapping[str, float]) -> str:
    if not ratios:
        return ""
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    most = max(ratios, key=lambda name: ratios[name])
    return f"* {what}: {mean:.2f} in the geometric mean, most {ratios[most]:.2f} ({most}).\n"


def _kernel_table(kernels: dict[str, Any]) -> str:
    if "error" in kernels:
        return f"Kernels: {kernels['error']}\n"
    peaks = kernels["peaks"]
    copy, rate = peaks["bytes_per_second"], peaks["flops_per_second"]
    rows = []
    for item in kernels["kernels"]:
        checks = "checked" if item["checked"] else "unchecked"
        if "error" in item:
            rows.append([item["name"], checks, item["error"], "", "", ""])
            continue
        seconds = item["microseconds"] * 1e-6
        tera, giga = item["flops"] / seconds / 1e12, item["bytes"] / seconds / 1e9
        least = max(item["flops"] / rate, item["bytes"] / copy)
        shown = f"{tera:.1f} TFLOP/s" if item["flops"] / rate > item["bytes"] / copy else f"{giga:,.0f} GB/s"
        rows.append(
            [item["name"], checks, f"{item['microseconds']:.1f}", shown, f"{least / seconds:.0%}",
             f"{item['difference']:.0e}"]
        )  # fmt: skip
    title = f"Kernels on {kernels['device']}: copy {copy / 1e9:,.0f} GB/s, multiply-adds {rate / 1e12:.1f} TFLOP/s.\n\n"
    return title + table(["kernel", "bounds", "us", "rate", "of the roofline", "difference"], rows)


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
