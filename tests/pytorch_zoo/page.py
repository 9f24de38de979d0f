"""The page docs/guide/pytorch-models.md: for each device a table of models, their differences and times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .names import MODELS

ROOT = Path(__file__).resolve().parents[2]
RESULTS: Path = ROOT / "bench" / "results"
PAGE: Path = ROOT / "docs" / "guide" / "pytorch-models.md"
#: As in :mod:`.comparing`, which needs PyTorch
TOLERANCE = 1e-4
#: Headings of the columns of times
RUNTIMES = {"eager": "eager", "inductor": "`inductor`", "session": "Shaderloom"}

HEAD = f"""# PyTorch's models

Written by `./dev pytorch`; do not edit. Models of torchvision, timm and transformers with random weights, as sessions
of `from_torch` and under `torch.compile(backend="shaderloom")`, compared with eager PyTorch on the processor. A
difference is the largest over all results, in parts of the largest magnitude of each if that is more than 1; up to
{TOLERANCE:g} is right. Pictures are two of 224 x 224 (of detectors one of 320 x 320 and one of 320 x 240), texts two of
64 tokens. Noise is added to weights that a library initialises with one number, and statistics of batch normalisation
are those of the inputs. The models are in `tests/pytorch_zoo`.

*Graphs* are those into which `torch.compile` divides the model and that compute with elements: how many the device
runs, of how many.
"""


def is_right(row: Mapping[str, Any]) -> bool:
    """Return whether a model is right by ``torch.compile``, and as a session unless PyTorch cannot export it."""
    session, compiled = row["session"], row["compiled"]
    refused = isinstance(session, str) and "PyTorch cannot export" in session
    return _is_right(compiled) and (refused or _is_right(session))


def write() -> None:
    """Write the page of all results that are stored."""
    PAGE.write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the page of all results that are stored."""
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("pytorch-*.json"))]
    return "\n".join([HEAD, *map(section, stored)])


def _is_right(part: Any) -> bool:
    return isinstance(part, Mapping) and part["difference"] <= TOLERANCE


def section(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the part of the page on one device, whose results are ``rows``."""
    latest = max(rows, key=lambda row: row["date"])
    right = sum(map(is_right, rows))
    whole = sum(
        isinstance(row["compiled"], Mapping) and row["compiled"]["graphs"] == row["compiled"]["on_device"]
        for row in rows
    )
    timed = [row["times"] for row in rows if isinstance(row["times"], Mapping)]
    runtimes = [name for name in RUNTIMES if any(times[name] for times in timed)]
    notes = _notes(rows)
    left = sorted(set(MODELS) - {row["model"] for row in rows})
    headings = ["model", "`from_torch`", "`torch.compile`", "graphs", *map(RUNTIMES.__getitem__, runtimes)]
    return "\n".join(
        [
            f"## {latest['device']}\n",
            *_runs(rows),
            f"{_what_was_timed(runtimes)}\n",
            f"**{right} of {len(rows)} models are right, {whole} of {len(rows)} run wholly on the device.**\n",
            f"| {' | '.join(headings)} |",
            f"|---|{'---:|' * (len(headings) - 1)}",
            *(_row(row, notes, runtimes) for row in rows),
            "",
            *(f"{number}. {text}" for text, number in notes.items()),
            *([] if not left else [f"Not run: {', '.join(left)}."]),
            "",
        ]
    )


def _runs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each run of models its libraries, its day and the load of the machine."""
    lines = []
    runs = [(row["libraries"], row["date"], row["cores"]) for row in rows]
    for libraries, date, cores in dict.fromkeys(runs):
        loads = [row["load"] for row, run in zip(rows, runs) if run == (libraries, date, cores)]
        load = " to ".join(f"{value:g}" for value in sorted({min(loads), max(loads)}))
        count = f" ({len(loads)} of {len(rows)} models)" if len(loads) < len(rows) else ""
        lines.append(f"{libraries}; {date}, with a load of {load} on {cores} cores{count}.")
    return lines


def _what_was_timed(runtimes: Sequence[str]) -> str:
    if not runtimes:
        return "Times were not measured."
    medians = "medians of rounds in which all run in turns"
    if "inductor" in runtimes:
        return f"Times are milliseconds of a call on the processor, of all threads in sum: {medians}."
    return (
        f"Times are milliseconds of a call: {medians}. Eager PyTorch runs on CUDA without TensorFloat-32; tensors are "
        "on the GPU (on the host where there is no session)."
    )


def _notes(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the reasons of all rows, each with a number."""
    reasons = [_reason(row[part]) for row in rows for part in ("session", "compiled")]
    return {reason: number for number, reason in enumerate(dict.fromkeys(filter(None, reasons)), 1)}


def _reason(part: Any) -> str:
    text = part if isinstance(part, str) else part["reason"]
    return text if len(text) <= 400 else f"{text[:400]}..."


def _row(row: Mapping[str, Any], notes: Mapping[str, int], runtimes: Sequence[str]) -> str:
    session, compiled, times = row["session"], row["compiled"], row["times"]
    cells = [row["model"], _cell(session, notes), _cell(compiled, notes)]
    cells.append("" if isinstance(compiled, str) else f"{compiled['on_device']} of {compiled['graphs']}")
    cells += ["" if isinstance(times, str) or times[name] is None else _time(times[name]) for name in runtimes]
    return f"| {' | '.join(cells)} |"


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.3g}" if milliseconds < 100 else f"{milliseconds:,.0f}"


def _cell(part: Any, notes: Mapping[str, int]) -> str:
    note = notes.get(_reason(part))
    text = "no session" if isinstance(part, str) else f"{part['difference']:.1e}"
    return text if note is None else f"{text} ({note})"
