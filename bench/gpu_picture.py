"""A picture of the first table of ``docs/benchmarks-gpu.md``.

It is drawn from the page, because the machine with the GPU may lack matplotlib: ``python -m bench page`` draws it
anywhere.
"""

from __future__ import annotations

from pathlib import Path

from .plotting import draw_bars

PAGE = Path("docs") / "benchmarks-gpu.md"


def draw(page: Path = PAGE) -> bool:
    """Write the picture beside the page.  False if there is no page, no table, or no matplotlib."""
    if not page.is_file():
        return False
    text = page.read_text()
    runtimes, rows = first_table(text)
    bars = {
        runtime: {model: (float(value.split()[0].replace(",", "")), None) for model, value in column if _is_time(value)}
        for runtime, column in (
            (name, [(row[0], row[index]) for row in rows]) for index, name in enumerate(runtimes, start=1)
        )
    }
    machine = next((line for line in text.splitlines() if line.startswith("NVIDIA")), "GPU")
    return bool(rows) and draw_bars(bars, machine.partition(",")[0], page.with_suffix(".png"))


def first_table(text: str) -> tuple[list[str], list[list[str]]]:
    """Heads of the columns of times, and rows with the model first."""
    lines = [line for line in text.split("\n\n| model", 1)[-1].split("\n\n", 1)[0].splitlines() if line]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if len(cells) < 3:
        return [], []
    heads = [head for head in cells[0][1:] if head not in ("calls", "difference")]
    return heads, [row[: len(heads) + 1] for row in cells[2:]]


def _is_time(text: str) -> bool:
    return text[:1].isdigit()
