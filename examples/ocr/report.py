"""The table of what was compiled and how long it took, a column a model."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from .session import Model, Session

ABSENT = "-"


@dataclass(frozen=True)
class ModelFacts:
    """What a runtime says of a model at the shape that it ran last; None is what it does not say. Sizes are bytes."""

    nodes: int | None = None
    kernels: int | None = None
    weight_transforms: int | None = None
    calls: int | None = None
    planned_bytes: int | None = None
    naive_bytes: int | None = None
    compile_ms: float | None = None
    hits: int | None = None
    misses: int | None = None


def describe(session: Session) -> ModelFacts:
    """Ask a session what it compiled. This is the only place that knows more than ``run`` of a Shaderloom session."""
    if not hasattr(session, "report"):
        return ModelFacts()
    report, stats = session.report(), session.stats  # type: ignore[attr-defined]
    return ModelFacts(
        nodes=report["nodes"],
        kernels=len(report["kernels"]),
        weight_transforms=report["weight_transforms"],
        calls=report["calls"],
        planned_bytes=report["planned_bytes"],
        naive_bytes=report["naive_bytes"],
        compile_ms=stats.compile_ms,
        hits=stats.hits,
        misses=stats.misses,
    )


def model_table(models: Mapping[str, Model]) -> Table:
    """One column a model. Median runs leave out the first run of every shape, which compiles."""
    columns = [_column(model) for model in models.values()]
    table = Table(title="Models")
    table.add_column("")
    for name in models:
        table.add_column(name, justify="right")
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    return table


def _column(model: Model) -> dict[str, str]:
    facts = describe(model.session)
    first, later = _split_runs(model)
    return {
        "ONNX nodes": _count(facts.nodes),
        "kernels": _count(facts.kernels),
        "weight transforms": _count(facts.weight_transforms),
        "calls a run": _count(facts.calls),
        "device MiB planned": _mebibytes(facts.planned_bytes),
        "device MiB unplanned": _mebibytes(facts.naive_bytes),
        "shapes": str(len(set(model.input_shapes))) if model.input_shapes else ABSENT,
        "shape key hits / misses": ABSENT if facts.hits is None else f"{facts.hits} / {facts.misses}",
        "compile ms, all shapes": _milliseconds(facts.compile_ms),
        "first run ms, compile included": _milliseconds(first[0] * 1e3 if first else None),
        "median run ms": _milliseconds(statistics.median(later) * 1e3 if later else None),
        "runs": str(len(model.run_seconds)),
    }


def _split_runs(model: Model) -> tuple[list[float], list[float]]:
    """The seconds of the first run of each shape, and those of all other runs."""
    seen: set[tuple[int, ...]] = set()
    first: list[float] = []
    later: list[float] = []
    for shape, seconds in zip(model.input_shapes, model.run_seconds, strict=True):
        (later if shape in seen else first).append(seconds)
        seen.add(shape)
    return first, later


def _count(value: int | None) -> str:
    return ABSENT if value is None else str(value)


def _mebibytes(value: int | None) -> str:
    return ABSENT if value is None else f"{value / 2**20:.2f}"


def _milliseconds(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f}"
