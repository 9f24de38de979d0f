"""The page ``docs/guide/programs.md``: a row for each program, with what a user sees and the times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from .running import ROOT, Program, Result

PAGE: Path = ROOT / "docs" / "guide" / "programs.md"
STORE: Path = ROOT / "bench" / "results" / "programs.json"

HEAD = """# Programs written for onnxruntime

Written by `./dev programs`; do not edit. Programs from PyPI that ship their models, unchanged: the main job of each
runs on onnxruntime and, by `python -m shaderloom.as_onnxruntime`, on this package, and what a user sees is compared:
words, counts and kinds must be equal, numbers within {tolerance} of theirs or of 1. onnxruntime runs with
`session.x64quantprecision`, without which it saturates products of bytes on processors that lack VNNI. Jobs and pinned
packages are in `tests/programs`.

On {device} with {cores} cores, which others used too: `load` is that of the
machine. Times are seconds of the first run, which imports the program, opens its models and compiles them, and of a
second run in the same process, which opens them again. `on cpu` counts nodes that the device left to the provider
`cpu`.

**{same} of {ran} programs that ran show their user the same.**

| program | its job | a user sees | on cpu | onnxruntime | here | date | load |
|---|---|---|---:|---:|---:|---|---:|
"""


def stored() -> dict[str, Result]:
    """Return the results of all programs that were run, by name."""
    rows = json.loads(STORE.read_text(encoding="utf-8")) if STORE.is_file() else []
    return {
        row["program"]: Result(**{**row, "theirs": tuple(row["theirs"]), "ours": tuple(row["ours"])}) for row in rows
    }


def write(programs: Sequence[Program], results: Mapping[str, Result]) -> str:
    """Return the page; a program without a result is not in it."""
    ran = [results[program.name] for program in programs if program.name in results]
    latest = max(ran, key=lambda result: result.date)
    head = HEAD.format(
        tolerance=max(program.tolerance for program in programs),
        device=latest.device,
        cores=latest.cores,
        same=sum(not result.fault for result in ran),
        ran=len(ran),
    )
    return head + "".join(_row(program, results.get(program.name)) for program in programs)


def _row(program: Program, result: Result | None) -> str:
    package = program.packages[0] if program.packages else program.name
    if result is None:
        return ""
    seen = "the same" if not result.fault else result.fault.replace("|", "\\|")
    load = "" if result.load is None else f"{result.load:.0f}"
    times = [f"{first:.1f} / {again:.2f}" for first, again in (result.theirs, result.ours)]
    cells = [package, program.task, seen, str(result.on_cpu or ""), *times, result.date, load]
    return f"| {' | '.join(cells)} |\n"
