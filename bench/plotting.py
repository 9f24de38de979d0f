"""Bars of times by model and runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Milliseconds, with the least and the most if they are known
Bar = tuple[float, tuple[float, float] | None]


def pyplot() -> Any:
    """matplotlib's, or None where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_bars(bars: Mapping[str, Mapping[str, Bar]], title: str, target: Path) -> bool:
    """``bars`` by runtime and model, on a logarithmic axis.  False where matplotlib is not installed."""
    plot = pyplot()
    if plot is None:
        return False
    models = list(dict.fromkeys(model for mine in bars.values() for model in mine))
    figure, axes = plot.subplots(figsize=(10, 4.5), layout="constrained")
    width = 0.8 / max(len(bars), 1)
    for position, (runtime, mine) in enumerate(bars.items()):
        offset = (position - (len(bars) - 1) / 2) * width
        places = [models.index(model) + offset for model in mine]
        medians = [median for median, _ in mine.values()]
        ranges = [around or (median, median) for median, around in mine.values()]
        spread = [
            [median - least for median, (least, _) in zip(medians, ranges, strict=True)],
            [most - median for median, (_, most) in zip(medians, ranges, strict=True)],
        ]
        axes.bar(places, medians, width, yerr=spread, label=runtime, error_kw={"linewidth": 0.8})
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds a run")
    axes.set_title(title)
    axes.set_xticks(range(len(models)), models, rotation=20, ha="right")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(target, dpi=110)
    plot.close(figure)
    return True
