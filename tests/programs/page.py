"""The page ``docs/guide/programs.md``: a row for each program, with what a user sees and the times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .running import ROOT, Program, Result

PAGE: Path = ROOT / "docs" / "guide" / "programs.md"

HEAD = """# Programs written for onnxruntime

Written by `./dev programs`; do not edit. Programs from PyPI that ship their models, unchanged: the main job of each
runs on onnxruntime and, by `python -m shaderloom.as_onnxruntime`, on this package, and what a user sees is compared:
words, counts and kinds must be equal, numbers within {tolerance} of theirs or of 1. Jobs and pinned packages are in
`tests/programs`.

On {device}, {date}, with a load of {load:.0f} on {cores} cores. Times are seconds of the first run, which imports the
program, opens its models and compiles them, and of a second run in the same process, which opens them again. `on cpu`
counts nodes that the device left to the provider `cpu`.

**{same} of {ran} programs that ran show their user the same.**

| program | its job | a user sees | on cpu | onnxruntime | here |
|---|---|---|---:|---:|---:|
"""


def write(programs: Sequence[Program], results: Mapping[str, Result], device: str, date: str) -> str:
    """Return the page; a program without a result or a reason is not in it."""
    ran = [results[program.name] for program in programs if program.name in results]
    head = HEAD.format(
        tolerance=max(program.tolerance for program in programs),
        device=device,
        date=date,
        load=os.getloadavg()[2],
        cores=os.cpu_count(),
        same=sum(not result.fault for result in ran),
        ran=len(ran),
    )
    return head + "".join(_row(program, results.get(program.name)) for program in programs)


def _row(program: Program, result: Result | None) -> str:
    package = program.packages[0] if program.packages else program.name
    if result is None:
        return ""
    seen = "the same" if not result.fault else result.fault.replace("|", "\\|")
    times = [f"{first:.1f} / {again:.2f}" for first, again in (result.theirs, result.ours)]
    return f"| {package} | {program.task} | {seen} | {result.on_cpu or ''} | {' | '.join(times)} |\n"
