"""Memory, overhead and leaks of sessions, as JSON in ``bench/results`` and in ``docs/benchmarks/sessions.md``."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

from .report import processor, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "sessions.md"
STORE = Path(__file__).resolve().parent / "results" / "sessions.json"
HEAD = """# Benchmarks of sessions

Written by `python -m bench.overhead`, `bench.memory`, `bench.leaks` and `bench.many_inputs`; do not edit. The other
figures are in [models.md](models.md).
"""


def save(section: str, content: dict[str, Any]) -> None:
    """Store the figures of a section, and write it in place of the one of the page; the others stay."""
    stored = json.loads(STORE.read_text()) if STORE.is_file() else {}
    part = stored[section] = {"machine": processor(), "date": datetime.date.today().isoformat(), **content}
    STORE.write_text(json.dumps(stored, indent=1) + "\n")
    write = {"overhead": _overhead, "memory": _memory, "leaks": _leaks, "many inputs": _many_inputs}[section]
    text = write(part) + f"\n{part['machine']}, {part['date']}; {part['device']}."
    PAGE.write_text(HEAD + "\n" + with_section(PAGE.read_text() if PAGE.is_file() else "", text))


def with_section(page: str, section: str) -> str:
    """Return the sections of a page with ``section`` in place of the one of its title, or else behind the others."""
    _, *present = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    sections = {text.partition("\n")[0]: text.strip() for text in (*present, section)}
    return "\n\n".join(sections.values()) + "\n"


def _overhead(part: dict[str, Any]) -> str:
    text = (
        "## Overhead of a run\n\n"
        "Median microseconds for a plan of so many tiny kernels. *Queued*: tensors on the device in and out, nothing\n"
        "awaited; *host*: what the calling thread computes of it; *new size*: the same where each run has another\n"
        "size of a declared dimension and an input of its own. *Arrays*: numpy in and out, completion included.\n"
        "Mesa's software driver does not accept a submission before the one before it has been computed: there the\n"
        "queued time is the time of the kernels.\n"
    )
    for device in part["devices"]:
        rows = [
            [str(item["calls"]), *(f"{item[name]:.0f}" for name in ("queued_us", "host_us", "new_size_us", "numpy_us"))]
            for item in device["results"]
        ]
        text += (
            f"\n{device['device']}:\n\n"
            + table(["calls", "queued", "host", "new size", "arrays"], rows)
            + f"\nA line through the host's: {device['call_us']:.1f} us each call, {device['run_us']:.0f} us a run.\n"
        )
    return text


def _memory(part: dict[str, Any]) -> str:
    def row(item: dict[str, Any]) -> list[str]:
        ort = item["onnxruntime"]
        return [
            item["model"],
            f"{item['upload_peak'] / 1e6:,.0f}",
            f"{item['load_peak'] / 1e6:,.0f}",
            f"{(item['load_peak'] - item['upload_peak']) / 1e6:,.0f}",
            f"{item['load_seconds'] / item['upload_seconds']:.2f}",
            "-" if ort is None else f"{ort['load_peak'] / 1e6:,.0f}",
        ]

    return (
        "## Memory while a model is loaded\n\n"
        "Peak of anonymous memory (RssAnon, MB) above an idle process. A bare upload of the same bytes shows the\n"
        "memory of the device, which is in the same process here; the difference is what loading adds. *Time*:\n"
        "loading over the bare upload, both from a warm file.\n\n"
        + table(["model", "bare upload", "loading", "difference", "time", "onnxruntime CPU"], map(row, part["results"]))
    )


def _leaks(part: dict[str, Any]) -> str:
    rows = [
        [item["what"], f"{item['repeats']:,}", f"{item['growth'] / 1e3:,.0f}", f"{item['objects']:+}", item["device"]]
        for item in part["results"]
    ]
    return (
        "## What many runs leave behind\n\n"
        "Growth of resident memory in use (kB, after the C library has returned what was freed) and of the number of\n"
        "Python objects after the first twentieth.\n\n"
        + table(["what", "repeats", "growth", "objects", "objects of the device"], rows)
    )


def _many_inputs(part: dict[str, Any]) -> str:
    rows = [
        [
            item["model"],
            "cpu" if item["device"] == "cpu" else item["device"].partition(" ")[0],
            way,
            f"{row['rate']:,.1f}",
            f"{row['ratio']:.2f}",
            f"{row['difference']:.1e}",
            f"{row['equal']:,} of {item['items']:,}",
        ]
        for item in part["results"]
        for way, row in item["ways"].items()
    ]
    text = (
        "## Many inputs\n\n"
        "Items a second, numpy in and out: a loop of `session.run`, and of 16 threads that call it;\n"
        "requests of `session.batched()` from one thread\n"
        "with 128 futures, and `run` from one thread and from 16; a pool of one process that joins nothing or up to\n"
        "32 items, and `shaderloom map` from Parquet to npz through that pool.\n"
        "*Ratio*: to the loop, the median of rounds in turns; *difference*: the largest from the results of the loop;\n"
        "*equal*: items whose results are the same bits.\n\n"
        + table(["model", "device", "way", "items/s", "ratio", "difference", "equal"], rows)
    )
    memory = part["memory"]
    if memory is None:
        return text
    before, after = (
        " and ".join(f"{kilobytes / 1e3:,.0f}" for kilobytes in memory[key]) for key in ("before", "after")
    )
    return text + (
        f"\nMemory of the program and of the pool's process: {before} MB after {memory['items'] // 10:,} items of the\n"
        f"five kernels, {after} MB after {memory['items']:,}.\n"
    )
